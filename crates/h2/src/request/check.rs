//! Checks of a request's fields (RFC 9113 sections 8.2 and 8.3), with the records that Varnish writes. They are
//! stricter than Varnish in one point: connection-specific fields make a request malformed, as the RFC requires. They
//! are as lenient as Varnish in one point: without TLS, pseudo-headers may follow other fields.

use crate::error_table::{Error, Reason};
use crate::fault::{Note, Tag};
use crate::hpack::{Line, is_blank};
use lacquer_http::ascii::is_tchar;
use lacquer_http::trailers::RequestTrailers;
use lacquer_http::{Filter, HeaderName};

pub(super) const CALM: Error = Error::Stream(Reason::EnhanceYourCalm);
pub(super) const MALFORMED: Error = Error::Stream(Reason::ProtocolError);

pub(super) type Log<'a> = &'a mut dyn FnMut(Note);

/// The maximum number of bytes of a field in a log record.
const EXCERPT: usize = 20;

/// The role of a field in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Method,
    Path,
    Scheme,
    Authority,
    /// Of extended CONNECT. It is unknown unless that is available.
    Protocol,
    Header,
}

/// Returns the text that C's `%.*s` prints: it ends at a NUL.
pub(super) fn shown(bytes: &[u8], len: usize) -> String {
    let bytes = &bytes[..bytes.len().min(len)];
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Writes the record and returns the error of the stream.
#[cold]
fn bogus(log: Log<'_>, error: Error, text: String) -> Error {
    log(Note::new(Tag::BogoHeader, text));
    error
}

/// Checks name and value of the line in `bytes`. Returns the role of the field.
#[inline]
pub(super) fn check(line: Line, bytes: &[u8], hdr_len: usize, log: Log<'_>) -> Result<Role, Error> {
    let (name, value) = (line.name(bytes), line.value(bytes));
    if !line.is_well_formed() {
        return Err(bogus(log, MALFORMED, what_is_wrong(name, value, bytes)));
    }
    if line.len > hdr_len {
        return Err(bogus(
            log,
            CALM,
            format!("Header too large: {} (http_req_hdr_len)", shown(bytes, EXCERPT)),
        ));
    }
    if name.starts_with(b":") { pseudo(name, value, bytes, log) } else { Ok(Role::Header) }
}

/// Returns the text of the record about the first fault.
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

/// Adds a line of trailers, which may be neither a pseudo-header nor connection-specific.
pub(super) fn add_trailer(
    trailers: &mut RequestTrailers,
    line: Line,
    bytes: &[u8],
    hdr_len: usize,
    log: Log<'_>,
) -> Result<(), Error> {
    let role = check(line, bytes, hdr_len, log)?;
    let name = line.name(bytes);
    if role != Role::Header {
        return Err(bogus(log, MALFORMED, format!("Pseudo-header in trailers: {}", shown(bytes, EXCERPT))));
    }
    if HeaderName::new(name).is_filtered(Filter::HTTP2) {
        return Err(connection_specific(name, log));
    }
    trailers.add(name, line.value(bytes));
    Ok(())
}

fn pseudo(name: &[u8], value: &[u8], bytes: &[u8], log: Log<'_>) -> Result<Role, Error> {
    let role = match name {
        b":method" => Role::Method,
        b":path" => Role::Path,
        b":scheme" => Role::Scheme,
        b":authority" => return Ok(Role::Authority),
        b":protocol" => Role::Protocol,
        _ => return Err(unknown(bytes, log)),
    };
    if role == Role::Path {
        if !value.is_empty() && value[0] != b'/' && value != b"*" {
            let text = format!("Illegal :path pseudo-header {}", shown(value, value.len()));
            return Err(bogus(log, MALFORMED, text));
        }
        // Other control characters were rejected before.
        if value.iter().any(|&b| is_blank(b)) {
            return Err(MALFORMED);
        }
    } else if !value.iter().all(|&b| is_tchar(b)) {
        return Err(MALFORMED);
    }
    if value.is_empty() {
        return Err(bogus(log, MALFORMED, format!("Empty pseudo-header {}", shown(name, name.len()))));
    }
    Ok(role)
}

/// Returns the error for a pseudo-header that does not exist.
#[cold]
pub(super) fn unknown(line: &[u8], log: Log<'_>) -> Error {
    bogus(log, MALFORMED, format!("Unknown pseudo-header: {}", shown(line, EXCERPT)))
}

/// Returns the error for a connection-specific field.
#[cold]
pub(super) fn connection_specific(name: &[u8], log: Log<'_>) -> Error {
    bogus(log, MALFORMED, format!("Illegal connection-specific field: {}", shown(name, EXCERPT)))
}
