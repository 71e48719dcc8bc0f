//! Extended CONNECT (RFC 8441, RFC 9220): a request whose stream becomes a tunnel for another protocol.

use super::check::{CALM, Log, MALFORMED};
use crate::error_table::Error;
use crate::fault::{Note, Tag};
use lacquer_http::header_table::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use lacquer_http::{Message, Slot, Text, Workspace, fixed};

/// Turns a request with `:protocol` into a request to upgrade (RFC 9110 section 7.8).
pub(super) fn become_upgrade(
    ws: &mut Workspace,
    msg: &mut Message,
    protocol: Text,
    log: Log<'_>,
) -> Result<(), Error> {
    let mut refuse = |text: &'static str| {
        log(Note::new(Tag::BogoHeader, text));
        MALFORMED
    };
    if msg.method(ws) != b"CONNECT" {
        return Err(refuse("Pseudo-header :protocol without CONNECT"));
    }
    if msg.has(ws, CONTENT_LENGTH) {
        return Err(refuse("Content-Length in an extended CONNECT"));
    }
    msg.put(ws, Slot::Method, fixed::GET);
    let protocol = ws.get(protocol).to_vec();
    let added = msg.append(ws, CONNECTION, b"Upgrade").and_then(|_| msg.append(ws, UPGRADE, &protocol));
    if added.is_err() {
        log(Note::new(Tag::LostHeader, "Too many headers: upgrade (http_max_hdr)"));
        return Err(CALM);
    }
    Ok(())
}
