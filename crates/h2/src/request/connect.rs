//! CONNECT without a protocol (RFC 9113 section 8.5, RFC 9114 section 4.4): a request whose only target is an authority,
//! as over HTTP/1.1.

use super::check::{Log, MALFORMED};
use crate::error_table::Error;
use crate::fault::{Note, Tag};
use lacquer_http::authority::has_port;
use lacquer_http::header_table::HOST;
use lacquer_http::{Field, Message, Slot, Workspace};

/// Returns whether the request has this method.
#[inline]
pub(super) fn is_connect(ws: &Workspace, msg: &Message) -> bool {
    msg.method(ws) == b"CONNECT"
}

/// Makes the authority the target of the request. `has_scheme` and `has_authority` are whether it has these fields.
#[cold]
pub(super) fn set_target(
    ws: &Workspace,
    msg: &mut Message,
    (has_scheme, has_authority): (bool, bool),
    log: Log<'_>,
) -> Result<(), Error> {
    let mut refuse = |text: &'static str| {
        log(Note::new(Tag::BogoHeader, text));
        MALFORMED
    };
    if has_scheme || msg.text(Slot::Url).is_some() {
        return Err(refuse("CONNECT with :scheme or :path"));
    }
    match msg.find(ws, HOST).map(Field::value_text) {
        Some(host) if has_authority && has_port(ws.get(host)) => msg.put(ws, Slot::Url, host),
        _ => return Err(refuse("CONNECT without host and port in :authority")),
    }
    Ok(())
}
