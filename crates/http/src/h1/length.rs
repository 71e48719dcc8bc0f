//! `Content-Length` in its one canonical form, so that the next reader cannot take it for another number:
//! "005" might be octal, and a repeated line might be read as a list.

use crate::ascii::Decimal;
use crate::h1::content_length;
use crate::header_table::CONTENT_LENGTH;
use crate::message::Message;
use crate::workspace::{Overflow, Workspace};

/// Rewrites a length that is not canonical. A request with several is left alone: it is refused later.
pub fn canonical_request_length(msg: &mut Message, ws: &mut Workspace) -> Result<(), Overflow> {
    match msg.get(ws, CONTENT_LENGTH) {
        Some(value) if !is_canonical(value) && msg.count(ws, CONTENT_LENGTH) == 1 => rewrite(msg, ws),
        _ => Ok(()),
    }
}

/// Rewrites a length that is not canonical, and makes one line of several that agree.
pub(super) fn canonical_response_length(msg: &mut Message, ws: &mut Workspace) -> Result<(), Overflow> {
    match msg.get(ws, CONTENT_LENGTH) {
        Some(value) if !is_canonical(value) || msg.count(ws, CONTENT_LENGTH) > 1 => rewrite(msg, ws),
        _ => Ok(()),
    }
}

/// "0", or digits without a leading zero; a value that is no number is never canonical.
fn is_canonical(value: &[u8]) -> bool {
    match value {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Leaves a malformed length as it is, for the framing refuses it.
#[cold]
fn rewrite(msg: &mut Message, ws: &mut Workspace) -> Result<(), Overflow> {
    if let Ok(Some(length)) = content_length(msg, ws) {
        msg.set(ws, CONTENT_LENGTH, Decimal::new(length).as_bytes(), |_| ())?;
    }
    Ok(())
}
