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
    drop(rx.take_read_ahead());
    let mut end = pin!(tx.end());
    let (mut is_ended, mut is_read) = (false, false);
    let mut left = MOST;
    let discard = std::future::poll_fn(|cx| {
        is_ended = is_ended || end.as_mut().poll(cx).is_ready();
        // The client may send more before it reads, so its bytes are read meanwhile.
        let mut scrap = [0; STEP];
        while !is_read && let Poll::Ready(read) = rx.poll_read(cx, &mut scrap) {
            match read {
                Ok(n) if n > 0 && n < left => left -= n,
                _ => is_read = true,
            }
        }
        if is_ended && is_read { Poll::Ready(()) } else { Poll::Pending }
    });
    deadline.limit(deadline.now(), seconds, discard).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;
    use crate::deadlines::Deadlines;
    use crate::memory::{Ends, Limits, Peer, connection};

    /// Returns a client's connection whose transport holds bytes back, and its peer.
    fn client() -> (ClientSocket, Rx, Peer) {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let limits = Limits { window: 10, step: 10, buffer: 10, sends_files: false };
        let (near, peer) = connection(limits, Ends { engine: address, peer: address });
        let (half, tx) = Stream::Memory(near).split();
        (ClientSocket::new(tx), Rx::new(half), peer)
    }

    #[tokio::test]
    async fn a_client_that_sends_before_it_reads_gets_the_response_and_an_orderly_end() {
        for is_cut in [false, true] {
            let (tx, mut rx, peer) = client();
            tx.write_all(&[b'x'; 10]).await.expect("the client has room");
            if is_cut {
                tx.cut();
            }
            let deadline = Deadlines::default().add_deadline();
            let script = async {
                peer.write_all(&[b'y'; 100]).await.expect("the bytes are read");
                peer.shutdown();
                assert!(!peer.has_farewell(), "there is no room for it");
                assert_eq!(peer.read(&mut [0; 20]).await.expect("a response"), 10);
                assert_eq!(peer.read(&mut [0; 20]).await.expect("its end"), 0);
            };
            tokio::join!(linger(&tx, &mut rx, &deadline, 9.0), script);
            assert_eq!((peer.has_farewell(), peer.is_cut()), (!is_cut, is_cut));
        }
    }

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
