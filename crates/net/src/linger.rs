//! The lingering close. The kernel sends a reset when a socket is closed while received bytes are unread. A client
//! that receives the reset may lose the response that was on its way, such as a 400 with its reason. So the sending
//! side is shut down first, and further bytes are read and discarded, up to limits of time and bytes.

use std::pin::pin;
use std::task::Poll;

use lacquer_http::SessClose;

use crate::deadlines::Deadline;
use crate::{ClientSocket, Rx};

/// The maximum number of bytes that are discarded.
const MOST: usize = 16 << 20;
/// Bytes read at a time. The buffer is on the stack, so a lingering connection holds no memory for it.
const STEP: usize = 16 << 10;

/// Returns whether a connection that ends for this reason may have unread bytes. `unread` means that part of a
/// request was not read.
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

/// Ends the sending side, and reads until the client ends its own, has sent too much, or `seconds` have passed.
pub async fn linger(tx: &ClientSocket, rx: &mut Rx, deadline: &Deadline, seconds: f64) {
    if seconds <= 0.0 {
        return;
    }
    let mut end = pin!(tx.end());
    let mut is_ended = false;
    drop(rx.take_read_ahead());
    let mut left = MOST;
    let discard = std::future::poll_fn(|cx| {
        // A client that does not read may still be sending, so its bytes are read in any case.
        if !is_ended {
            is_ended = end.as_mut().poll(cx).is_ready();
        }
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
    fn connections_with_possibly_unread_bytes_linger() {
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
