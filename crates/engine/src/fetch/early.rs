//! Watches for responses that arrive before the whole request was sent. An origin may refuse a body before it has read
//! it, and close its connection (RFC 9112 section 9.5).

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::{Context, Poll, ready};

use lacquer_http::h1;
use lacquer_net::Rx;
use tokio::task::yield_now;

/// The most bytes that are read while the request is being sent. They suffice for a few interim responses.
const MOST: usize = 4096;
/// The number of bytes to read at a time.
const STEP: usize = 512;
/// The least status of an error response. Such a response ends the upload. After others the origin may still read.
const ERROR: u16 = 400;
/// The least status of a final response.
const FINAL: u16 = 200;

/// How much of a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Whole,
    /// The response has begun to arrive before the end of the request.
    Part,
    /// The same, and the rest of the request is sent meanwhile.
    Overlapping,
}

/// The responses for which an upload is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Errors.
    Refusal,
    /// All final responses.
    Response,
}

/// The bytes that have arrived while a request is being sent.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    /// The status of the final response, if it has begun.
    status: Option<u16>,
    /// Nothing more is read before the request was sent.
    is_over: bool,
}

/// Sends a request by `upload`, unless its response begins before. The bytes that arrive meanwhile are put back.
pub async fn send_unless_answered(
    rx: &mut Rx,
    until: Until,
    upload: impl Future<Output = io::Result<()>>,
) -> io::Result<Sent> {
    let (mut upload, mut early) = (pin!(upload), Early::default());
    let sent = poll_fn(|cx| match upload.as_mut().poll(cx) {
        Poll::Ready(sent) => Poll::Ready(sent.map(|()| Sent::Whole)),
        Poll::Pending => early.poll(cx, rx, until),
    })
    .await;
    let sent = match sent {
        Err(e) if is_of_origin(&e) => {
            // The response may have arrived just before the connection broke, and is read only once the reactor has
            // reported it.
            yield_now().await;
            if early.has_response(rx) { Ok(Sent::Part) } else { Err(e) }
        }
        sent => sent,
    };
    early.put_back(rx);
    sent
}

/// Returns whether the origin has caused this failure to send, not the client.
fn is_of_origin(e: &io::Error) -> bool {
    is_broken(e) || e.kind() == ErrorKind::TimedOut
}

fn is_broken(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

impl Early {
    /// Puts the bytes back that have arrived.
    fn put_back(&self, rx: &mut Rx) {
        if !self.bytes.is_empty() {
            rx.unread(&self.bytes);
        }
    }

    /// Ready when such a response has begun, or the connection is broken.
    fn poll(&mut self, cx: &mut Context<'_>, rx: &mut Rx, until: Until) -> Poll<io::Result<Sent>> {
        while !self.is_over {
            let mut piece = [0; STEP];
            match ready!(rx.poll_read(cx, &mut piece[..STEP.min(MOST - self.bytes.len())])) {
                Ok(n) => self.add(&piece[..n]),
                Err(e) if is_broken(&e) && until == Until::Refusal => return Poll::Ready(Err(e)),
                // The error is met again when the head is read.
                Err(_) => self.is_over = true,
            }
        }
        match until {
            Until::Refusal if self.status.is_none_or(|status| status < ERROR) => Poll::Pending,
            _ => Poll::Ready(Ok(Sent::Part)),
        }
    }

    fn add(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        self.status = final_status(&self.bytes);
        self.is_over = piece.is_empty() || self.bytes.len() == MOST || self.status.is_some();
    }

    /// Returns whether the final response has begun, after a look at the bytes that have just arrived.
    fn has_response(&mut self, rx: &mut Rx) -> bool {
        let mut piece = [0; MOST];
        if !self.is_over
            && let Some(Ok(n)) = rx.try_read(&mut piece[..MOST - self.bytes.len()])
        {
            self.add(&piece[..n]);
        }
        self.status.is_some()
    }
}

/// Returns the status of the final response that has begun after any interim ones.
fn final_status(mut bytes: &[u8]) -> Option<u16> {
    while let Some((_, length)) = h1::interim_head(bytes) {
        bytes = &bytes[length..];
    }
    let status = bytes.trim_ascii_start().strip_prefix(b"HTTP/1.")?.get(1..)?.strip_prefix(b" ")?;
    let status = status.first_chunk::<3>()?;
    let status = std::str::from_utf8(status).ok()?.parse().ok()?;
    (status >= FINAL).then_some(status)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use lacquer_net::Stream;

    use super::*;

    /// The bytes and the end arrive while the upload fails, before the reactor looks at the socket.
    #[tokio::test]
    async fn a_response_that_arrives_as_the_connection_breaks_is_read() {
        for (bytes, is_answered) in [(&b"HTTP/1.1 405 Method Not Allowed\r\n\r\n"[..], true), (b"", false)] {
            let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
            near.set_nonblocking(true).expect("a socket");
            let near = tokio::net::UnixStream::from_std(near).expect("a reactor");
            let (half, _tx) = Stream::Unix(near).split();
            let mut rx = Rx::new(half);
            let upload = async move {
                far.write_all(bytes).expect("it is open");
                drop(far);
                Err(ErrorKind::BrokenPipe.into())
            };
            let sent = send_unless_answered(&mut rx, Until::Refusal, upload).await.ok();
            assert_eq!(sent, is_answered.then_some(Sent::Part));
        }
    }

    #[test]
    fn final_responses_are_found_behind_interim_ones() {
        for (bytes, status) in [
            ("", None),
            ("HTTP/1.1 41", None),
            ("HTTP/1.1 413", Some(413)),
            ("HTTP/1.0 200 OK\r\n", Some(200)),
            ("\r\nHTTP/1.1 413 Too Large\r\n\r\n", Some(413)),
            ("HTTP/1.1 100 Continue\r\n\r\n", None),
            ("HTTP/1.1 100 Continue\r\n", None),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103\r\nLink: a\r\n\r\nHTTP/1.1 500 x", Some(500)),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n", None),
            ("HTTP/2.0 413 x\r\n\r\n", None),
            ("HTTP/1.1  413", None),
            ("HTTP/1.1 +13", None),
            ("garbage HTTP/1.1 413", None),
        ] {
            assert_eq!(final_status(bytes.as_bytes()), status, "{bytes:?}");
        }
    }
}
