//! What a field of a request must be (RFC 9113 sections 8.2 and 8.3), with the records Varnish writes. In
//! one point it is stricter: fields that are about a connection make a request malformed, as the RFC
//! has it. In one it is as lax as Varnish: pseudo-headers may follow other fields.

use crate::error_table::{Error, Reason};
use crate::fault::{Fault, Note, Tag};
use crate::hpack::Line;
use crate::hpack::well_formed::is_blank;
use lacquer_http::ascii::is_tchar;

/// Bytes of a field that the log shows.
const EXCERPT: usize = 20;

/// What a field is for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Method,
    Path,
    Scheme,
    Authority,
    Header,
}

#[cold]
fn malformed(text: String) -> Box<Fault> {
    Box::new(Error::Stream(Reason::ProtocolError).noted(Tag::BogoHeader, text))
}

#[cold]
fn too_long(line: Line, bytes: &[u8]) -> Box<Fault> {
    let text = format!("Header too large: {}", shown(&bytes[..line.len], EXCERPT));
    Box::new(Error::Stream(Reason::EnhanceYourCalm).noted(Tag::BogoHeader, text))
}

#[cold]
fn silently_malformed() -> Box<Fault> {
    Box::new(Error::Stream(Reason::ProtocolError).into())
}

/// As `%.*s` shows it: up to a NUL.
pub(super) fn shown(bytes: &[u8], len: usize) -> String {
    let bytes = &bytes[..bytes.len().min(len)];
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Checks name and value and tells what the field is.
#[inline]
pub(super) fn check(line: Line, bytes: &[u8], hdr_len: usize) -> Result<Role, Box<Fault>> {
    let (name, value) = (line.name(bytes), line.value(bytes));
    if !line.is_well_formed() {
        return Err(malformed(what_is_wrong(name, value, &bytes[..line.len])));
    }
    if line.len > hdr_len {
        return Err(too_long(line, bytes));
    }
    if name.starts_with(b":") { pseudo(name, value, line, bytes) } else { Ok(Role::Header) }
}

/// The record for the first thing that is wrong.
#[cold]
fn what_is_wrong(name: &[u8], value: &[u8], line: &[u8]) -> String {
    let excerpt = || shown(line, EXCERPT);
    if name.is_empty() {
        return "Empty name".into();
    }
    for (i, &b) in name.iter().enumerate() {
        if b.is_ascii_uppercase() {
            return format!("Illegal field header name (upper-case): {}", excerpt());
        }
        if !is_tchar(b) && (i > 0 || b != b':') {
            return format!("Illegal field header name (non-token): {}", excerpt());
        }
    }
    if let Some(&b) = value.first().filter(|&&b| is_blank(b)) {
        return format!("Illegal field value 0x{b:02x} start {}", excerpt());
    }
    match value.iter().find(|&&b| (b < b' ' && b != b'\t') || b == 0x7f) {
        Some(b) => format!("Illegal field value 0x{b:02x} {}", excerpt()),
        None => {
            format!("Illegal field value 0x{:02x} (end) at {}", value.last().unwrap_or(&0), excerpt())
        }
    }
}

fn pseudo(name: &[u8], value: &[u8], line: Line, bytes: &[u8]) -> Result<Role, Box<Fault>> {
    let role = match name {
        b":method" => Role::Method,
        b":path" => Role::Path,
        b":scheme" => Role::Scheme,
        b":authority" => return Ok(Role::Authority),
        _ => {
            let text = format!("Unknown pseudo-header: {}", shown(&bytes[..line.len], EXCERPT));
            return Err(malformed(text));
        }
    };
    if role == Role::Path {
        if !value.is_empty() && value[0] != b'/' && value != b"*" {
            return Err(malformed(format!("Illegal :path pseudo-header {}", shown(value, value.len()))));
        }
        // No other control character has come so far.
        if value.iter().any(|&b| is_blank(b)) {
            return Err(silently_malformed());
        }
    } else if !value.iter().all(|&b| is_tchar(b)) {
        return Err(silently_malformed());
    }
    if value.is_empty() {
        return Err(malformed(format!("Empty pseudo-header {}", shown(name, name.len()))));
    }
    Ok(role)
}

/// The fault of a field that is about a connection.
#[cold]
pub(super) fn connection_specific(name: &[u8]) -> Note {
    Note::new(Tag::BogoHeader, format!("Illegal connection-specific field: {}", shown(name, EXCERPT)))
}
