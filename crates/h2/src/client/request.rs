//! The header block of a request (RFC 9113 section 8.3.1).

use crate::hpack::encode;
use lacquer_http::{Filter, Message, Slot, Workspace, header_table as h};

/// A request to be sent.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub message: &'a Message,
    pub ws: &'a Workspace,
    /// The connection to the server uses TLS.
    pub is_secure: bool,
    /// No body follows.
    pub ends: bool,
    /// Trailers of the response are wanted. Otherwise, the message decides.
    pub wants_trailers: bool,
}

/// The reason why a request cannot be sent over HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

impl Request<'_> {
    pub fn is_head(&self) -> bool {
        self.message.method(self.ws) == b"HEAD"
    }

    /// Appends the header block. Connection-specific fields are omitted.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Refused> {
        let (message, ws) = (self.message, self.ws);
        let method = message.method(ws);
        if method == b"CONNECT" {
            return Err(Refused("CONNECT is not sent over HTTP/2"));
        }
        if message.text(Slot::Method).is_none() || method.is_empty() {
            return Err(Refused("the request has no method"));
        }
        let path = message.url(ws);
        pseudo(out, 2, method, &[(b"GET", 2), (b"POST", 3)]);
        let scheme: &[u8] = if self.is_secure { b"https" } else { b"http" };
        pseudo(out, 6, scheme, &[(b"http", 6), (b"https", 7)]);
        if let Some(host) = message.get(ws, h::HOST) {
            pseudo(out, 1, host, &[]);
        }
        pseudo(out, 4, if path.is_empty() { b"/" } else { path }, &[(b"/", 4)]);
        for field in message.fields().iter().filter(|field| !field.is_filtered(Filter::HTTP2)) {
            let (name, value) = (field.name(ws), field.value(ws));
            if name.eq_ignore_ascii_case(b"host") {
                continue;
            }
            if name.eq_ignore_ascii_case(b"te") && !value.eq_ignore_ascii_case(b"trailers") {
                continue;
            }
            encode::field(out, name, value);
        }
        if self.wants_trailers && !message.has(ws, h::TE) {
            encode::field(out, b"te", b"trailers");
        }
        Ok(())
    }
}

/// Writes a pseudo-header whose name is that of `row` in the static table. `rows` has the values that are in the table.
fn pseudo(out: &mut Vec<u8>, row: usize, value: &[u8], rows: &[(&[u8], usize)]) {
    match rows.iter().find(|(known, _)| *known == value) {
        Some((_, row)) => encode::indexed(out, *row),
        None => encode::named_by_row(out, row, value),
    }
}
