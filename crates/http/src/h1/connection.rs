//! The `Connection` header: the persistence of the connection, and the headers for this hop only.

use crate::header_table::{CONNECTION, Filter, HeaderName};
use crate::message::{Message, split_list};
use crate::session_close_table::SessClose;
use crate::workspace::{Overflow, Workspace};

/// Decides from the protocol version and `Connection` whether the connection must be closed after the message.
/// `on_close` is the reason if the header contains "close" ([`SessClose::ReqClose`] for requests,
/// [`SessClose::RespClose`] for responses). Marks the headers that `Connection` names, so that they are not
/// forwarded. It is an error to name a header that must be forwarded.
pub fn decide_connection(
    msg: &mut Message,
    ws: &mut Workspace,
    on_close: SessClose,
) -> Result<Option<SessClose>, Overflow> {
    let mut decision = (msg.version() == 10).then_some(SessClose::ReqHttp10);
    msg.collect(ws, CONNECTION, b", ")?;
    let Some(value) = msg.get(ws, CONNECTION) else { return Ok(decision) };
    for token in split_list(value, b',') {
        if token.eq_ignore_ascii_case(b"close") {
            decision = Some(on_close);
        } else if token.eq_ignore_ascii_case(b"keep-alive") {
            decision = None;
        }
        let name = HeaderName::new(token);
        if name.is_known() && !name.is_filtered(Filter::PASS) {
            return Ok(Some(SessClose::RxBad));
        }
        for field in msg.fields_mut() {
            if field.is(ws, name) {
                field.dropped = true;
            }
        }
    }
    Ok(decision)
}
