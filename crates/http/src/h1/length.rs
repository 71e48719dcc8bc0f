//! `Content-Length`: its value, and its canonical form, which the next reader cannot interpret as a different number:
//! "005" might be octal, and a repeated line might be read as a list.

use crate::ascii::{Decimal, trim_ows};
use crate::header_table::CONTENT_LENGTH;
use crate::message::Message;
use crate::number::parse_uint;
use crate::workspace::{Overflow, Workspace};

/// The error for a malformed `Content-Length`, or for several with different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// Returns the value of `Content-Length`, or `None` without one. Fails if it is malformed.
pub fn content_length(msg: &Message, ws: &Workspace) -> Result<Option<u64>, BadLength> {
    msg.get(ws, CONTENT_LENGTH).map(parse_content_length).transpose()
}

fn parse_content_length(value: &[u8]) -> Result<u64, BadLength> {
    match parse_uint(value) {
        Some((n, rest)) if trim_ows(rest).is_empty() && i64::try_from(n).is_ok() => Ok(n),
        _ => Err(BadLength),
    }
}

/// The combined `Content-Length` headers of a response.
pub(super) struct ResponseLength {
    /// `Ok(None)` without a length; an error if one is malformed or two differ.
    pub value: Result<Option<u64>, BadLength>,
    is_canonical: bool,
}

impl ResponseLength {
    pub fn of(msg: &Message, ws: &Workspace) -> ResponseLength {
        let mut values = msg.get_all(ws, CONTENT_LENGTH);
        let Some(first) = values.next() else {
            return ResponseLength { value: Ok(None), is_canonical: true };
        };
        let length = parse_content_length(first);
        let (mut agree, mut is_canonical) = (true, is_canonical(first));
        for value in values {
            agree &= parse_content_length(value) == length;
            is_canonical = false;
        }
        ResponseLength { value: length.and_then(|n| agree.then_some(Some(n)).ok_or(BadLength)), is_canonical }
    }

    /// Rewrites a length that is not canonical, and merges several equal lines into one.
    pub fn make_canonical(&self, msg: &mut Message, ws: &mut Workspace) -> Result<(), Overflow> {
        match self.value {
            Ok(Some(length)) if !self.is_canonical => rewrite(msg, ws, length),
            _ => Ok(()),
        }
    }
}

/// Rewrites a length that is not canonical. A malformed length is refused by the framing; several lengths are refused
/// later.
pub fn canonical_request_length(msg: &mut Message, ws: &mut Workspace) -> Result<(), Overflow> {
    match msg.get(ws, CONTENT_LENGTH) {
        Some(value) if !is_canonical(value) && msg.count(ws, CONTENT_LENGTH) == 1 => {
            parse_content_length(value).map_or(Ok(()), |length| rewrite(msg, ws, length))
        }
        _ => Ok(()),
    }
}

/// Returns whether a value is "0", or digits without a leading zero. Any other value is not canonical.
fn is_canonical(value: &[u8]) -> bool {
    match value {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cold]
fn rewrite(msg: &mut Message, ws: &mut Workspace, length: u64) -> Result<(), Overflow> {
    msg.set(ws, CONTENT_LENGTH, Decimal::new(length).as_bytes(), |_| ()).map(drop)
}
