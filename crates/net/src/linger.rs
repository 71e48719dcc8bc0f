//! The lingering close. A socket that is closed while received bytes are unread sends a reset. A client that gets one
//! may lose the response that was on its way, such as the 400 with the reason. So the sending side ends first, and
//! further bytes are read and discarded, within bounds of time and bytes.

use std::task::Poll;

use lacquer_http::SessClose;

use crate::deadlines::Deadline;
use crate::{Rx, TxHalf};

/// The largest number of bytes that are discarded.
const MOST: usize = 16 << 20;
/// Bytes read at a time. They are on the stack, so that a client that lingers holds no memory.
const STEP: usize = 16 << 10;

/// Returns whether a connection that ends for this reason may have unread bytes. `unread` means that part of a request
/// was not read.
pub fn is_due(reason: SessClose, unread: bool) -> bool {
    match reason {
        SessClose::RxJunk
        | SessClose::RxBad
        | SessClose::RxOverflow
        | SessClose::VclFailure
        | SessClose::Overload => true,
        SessClose::RxBody
        | SessClose::ReqClose
        | SessClose::ReqHttp10
        | SessClose::RespClose
        | SessClose::TxEof => unread,
        _ => false,
    }
}

/// Ends the sending side, then reads until the client ends its own side, has sent too much, or `seconds` are over.
pub async fn linger(tx: &TxHalf, rx: &mut Rx, deadline: &Deadline, seconds: f64) {
    if seconds <= 0.0 {
        return;
    }
    tx.shutdown();
    rx.pending = Vec::new();
    let mut left = MOST;
    let discard = std::future::poll_fn(|cx| {
        let mut scrap = [0; STEP];
        while let Poll::Ready(read) = rx.poll_read(cx, &mut scrap) {
            match read {
                Ok(n) if n > 0 && n < left => left -= n,
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    });
    deadline.limit(deadline.now(), seconds, discard).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_linger_that_may_have_something_unread() {
        for (reason, unread, expected) in [
            (SessClose::RxJunk, false, true),
            (SessClose::RxOverflow, false, true),
            (SessClose::RxBody, true, true),
            (SessClose::RespClose, true, true),
            (SessClose::RespClose, false, false),
            (SessClose::ReqClose, false, false),
            (SessClose::RemClose, true, false),
            (SessClose::RangeShort, true, false),
            (SessClose::RxCloseIdle, false, false),
        ] {
            assert_eq!(is_due(reason, unread), expected, "{}", reason.name());
        }
    }
}
