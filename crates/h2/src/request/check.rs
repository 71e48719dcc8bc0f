//! What a field of a request must be (RFC 9113 sections 8.2 and 8.3), with the records Varnish writes. In
//! one point it is stricter: fields that are about a connection make a request malformed, as the RFC
//! has it. In one it is as lax as Varnish: pseudo-headers may follow other fields.

use crate::error_table::{Error, Reason};
use crate::fault::{Fault, Tag};
use crate::hpack::Line;
use lacquer_http::HeaderName;
use lacquer_http::ascii::{is_tchar, is_valid_line};

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

fn malformed(text: String) -> Fault {
    Error::Stream(Reason::ProtocolError).noted(Tag::BogoHeader, text)
}

fn silently_malformed() -> Fault {
    Error::Stream(Reason::ProtocolError).into()
}

/// As `%.*s` shows it: up to a NUL.
pub(super) fn shown(bytes: &[u8], len: usize) -> String {
    let bytes = &bytes[..bytes.len().min(len)];
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

const fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

const fn is_name_char(b: u8) -> bool {
    is_tchar(b) && !b.is_ascii_uppercase()
}

/// Checks name and value and tells what the field is.
#[inline]
pub(super) fn check(line: Line, bytes: &[u8], hdr_len: usize) -> Result<Role, Fault> {
    let (name, value) = (line.name(bytes), line.value(bytes));
    let plain_name = name.strip_prefix(b":").unwrap_or(name);
    let is_good = !name.is_empty()
        && plain_name.iter().all(|&b| is_name_char(b))
        && is_valid_line(value)
        && !value.first().is_some_and(|&b| is_blank(b))
        && !value.last().is_some_and(|&b| is_blank(b));
    if !is_good {
        return Err(malformed(what_is_wrong(name, value, &bytes[..line.len])));
    }
    if line.len > hdr_len {
        let text = format!("Header too large: {}", shown(&bytes[..line.len], EXCERPT));
        return Err(Error::Stream(Reason::EnhanceYourCalm).noted(Tag::BogoHeader, text));
    }
    if plain_name.len() < name.len() { pseudo(name, value, line, bytes) } else { header(name, value) }
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

fn pseudo(name: &[u8], value: &[u8], line: Line, bytes: &[u8]) -> Result<Role, Fault> {
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

fn header(name: &[u8], value: &[u8]) -> Result<Role, Fault> {
    let is_te = name == b"te";
    if (is_te && value != b"trailers") || (!is_te && HeaderName::new(name).is_hop_by_hop()) {
        return Err(malformed(format!("Illegal connection-specific field: {}", shown(name, EXCERPT))));
    }
    Ok(Role::Header)
}
