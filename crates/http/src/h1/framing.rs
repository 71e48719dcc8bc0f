//! The framing of bodies. Any ambiguity is an error, because request smuggling needs two readers that disagree about
//! the end of a body (RFC 9112 section 6.3).

use super::length::{BadLength, ResponseLength, content_length};
use crate::authority::is_valid_host;
use crate::body_status::BodyStatus;
use crate::header_table::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use crate::message::Message;
use crate::workspace::Workspace;

/// How the end of a body is determined. `content_length` is defined only for `None` and `Length`. For `Length` it is
/// not 0, because that means no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    pub status: BodyStatus,
    pub content_length: u64,
}

impl Framing {
    pub const NONE: Framing = Framing { status: BodyStatus::None, content_length: 0 };
    pub const ERROR: Framing = Framing { status: BodyStatus::Error, content_length: 0 };
    pub const CHUNKED: Framing = Framing { status: BodyStatus::Chunked, content_length: 0 };
    pub const EOF: Framing = Framing { status: BodyStatus::Eof, content_length: 0 };

    pub const fn length(n: u64) -> Framing {
        let status = if n == 0 { BodyStatus::None } else { BodyStatus::Length };
        Framing { status, content_length: n }
    }
}

fn framing(
    msg: &Message,
    ws: &Workspace,
    length: Result<Option<u64>, BadLength>,
    is_request: bool,
) -> Framing {
    let Ok(length) = length else { return Framing::ERROR };
    let mut codings = msg.get_all(ws, TRANSFER_ENCODING);
    if let Some(coding) = codings.next() {
        // Origins repeat the header if both framework and application set it. From a client, a repetition is a sign
        // of an attack.
        let repeated = codings.all(|c| !is_request && c.eq_ignore_ascii_case(b"chunked"));
        let chunked = coding.eq_ignore_ascii_case(b"chunked") && repeated;
        // HTTP/1.0 has no transfer codings: a client that sends one may be behind a proxy that ignores it (RFC 9112
        // section 6.1).
        let understood = msg.version() >= 11 || !is_request;
        return if chunked && understood && length.is_none() { Framing::CHUNKED } else { Framing::ERROR };
    }
    if let Some(n) = length {
        return Framing::length(n);
    }
    if msg.version() == 11 && is_request {
        return Framing::NONE;
    }
    if msg.value_is(ws, CONNECTION, b"keep-alive") {
        return Framing::NONE; // kept alive without a length: there can be no body
    }
    Framing::EOF
}

/// Returns the framing of a request's body, or `None` if the request must be refused.
pub fn request_framing(msg: &Message, ws: &Workspace) -> Option<Framing> {
    let mut framing = framing(msg, ws, content_length(msg, ws), true);
    let method = msg.method(ws);
    match framing.status {
        BodyStatus::Error => return None,
        BodyStatus::Eof if matches!(method, b"POST" | b"PUT") => return None,
        BodyStatus::Eof => framing = Framing::NONE,
        _ => {}
    }
    if framing.status != BodyStatus::None && method == b"HEAD" {
        return None;
    }
    Some(framing)
}

/// Returns the text of the `BogoHeader` record for a request that gets a 400 after it was logged: it repeats a header
/// that must be unique, or its `Host` is malformed.
pub fn request_fault(msg: &Message, ws: &Workspace) -> Option<&'static str> {
    let mut hosts = msg.get_all(ws, HOST);
    let host = hosts.next();
    if hosts.next().is_some() {
        Some("Multiple Host: headers")
    } else if host.is_some_and(|host| !is_valid_host(host)) {
        Some("Illegal Host: header")
    } else if msg.count(ws, CONTENT_LENGTH) > 1 {
        Some("Multiple Content-Length: headers")
    } else {
        None
    }
}

/// Returns the framing that the headers of a response announce, given its length.
pub(super) fn response_framing(msg: &Message, ws: &Workspace, length: &ResponseLength) -> Framing {
    framing(msg, ws, length.value, false)
}

/// Returns the framing of the body that actually follows a response to this request.
pub fn response_body(msg: &Message, ws: &Workspace, announced: Framing, request_method: &[u8]) -> Framing {
    if request_method == b"HEAD" {
        return Framing { status: BodyStatus::None, ..announced };
    }
    match msg.status() % 1000 {
        100..=199 => Framing::ERROR,
        204 => {
            let has_length = msg.has(ws, CONTENT_LENGTH) && announced != Framing::length(0);
            if has_length || msg.has(ws, TRANSFER_ENCODING) { Framing::ERROR } else { Framing::NONE }
        }
        304 => Framing { status: BodyStatus::None, ..announced },
        _ => announced,
    }
}
