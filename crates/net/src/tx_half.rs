//! The sending half of a connection.
//!
//! A transport may hold bytes that it has accepted, such as the records of TLS. They reach the peer when the half is
//! flushed. TCP and UNIX sockets hold none, and their flush compiles to nothing.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lacquer_sources::clock;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{SendFlags, sockopt};
use tokio::io::Interest;
use tokio::net::{tcp, unix};

use crate::file_part::FilePart;
use crate::memory;
use crate::multiplex;
use crate::peek::PeerState;
use crate::tls::{self, Failure};

/// The interval at which a waiting writer tries to write, whatever the reactor reports.
const ROOM_CHECK: Duration = Duration::from_millis(250);

/// The sending half of a connection.
pub enum TxHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(tls::Tx),
    Memory(memory::Tx),
    /// A stream of a connection with several.
    Stream(Arc<multiplex::Stream>),
}

impl AsFd for TxHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        TxHalf::as_fd(self)
    }
}

impl TxHalf {
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            TxHalf::Tcp(s) => s.as_ref().as_fd(),
            TxHalf::Unix(s) => s.as_ref().as_fd(),
            TxHalf::Tls(tx) => tx.connection().as_fd(),
            TxHalf::Memory(tx) => tx.as_fd(),
            TxHalf::Stream(stream) => stream.as_fd(),
        }
    }

    /// Writes with a direct system call. The function of the C library is a cancellation point, which costs two
    /// atomic operations for each call.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) => {}
            TxHalf::Tls(tx) => return tx.try_write(buf),
            TxHalf::Memory(tx) => return tx.write(buf),
            TxHalf::Stream(stream) => return stream.try_write(buf),
        }
        self.try_send(buf.len(), || rustix::net::send(self.as_fd(), buf, SendFlags::NOSIGNAL))
    }

    /// Writes like `try_write`, but the kernel may hold back bytes that do not fill a packet, because more follow at
    /// once.
    pub fn try_write_before_more(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) => {}
            TxHalf::Tls(tx) => return tx.try_write_before_more(buf),
            TxHalf::Memory(tx) => return tx.write(buf),
            TxHalf::Stream(stream) => return stream.try_write(buf),
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        self.try_send(buf.len(), || rustix::net::send(self.as_fd(), buf, flags))
    }

    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) => {}
            TxHalf::Tls(tx) => return tx.try_write_vectored(bufs),
            TxHalf::Memory(tx) => return tx.write_vectored(bufs),
            TxHalf::Stream(stream) => return stream.try_write(bufs.first().map_or(&[], |buf| buf)),
        }
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.try_send(len, || rustix::io::writev(self.as_fd(), bufs))
    }

    /// Returns whether the kernel can send parts of files to this socket.
    pub fn sends_files(&self) -> bool {
        match self {
            TxHalf::Memory(tx) => tx.sends_files(),
            TxHalf::Tls(_) | TxHalf::Stream(_) => false,
            TxHalf::Tcp(_) | TxHalf::Unix(_) => true,
        }
    }

    /// Returns the state of the peer. Costs a system call.
    pub fn peer(&self) -> PeerState {
        if let TxHalf::Memory(tx) = self {
            return tx.peer();
        }
        let mut states = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::RDHUP)];
        let looked = rustix::event::poll(&mut states, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        let found = if looked.is_ok() { states[0].revents() } else { PollFlags::empty() };
        if found.intersects(PollFlags::ERR | PollFlags::HUP) {
            PeerState::Broken
        } else if found.contains(PollFlags::RDHUP) {
            PeerState::ShutDown
        } else {
            PeerState::Open
        }
    }

    /// Sends bytes of a file, and removes them from `part`. Returns their number. If it sends fewer than there are, there
    /// may be room for more: a signal can end `sendfile` early.
    pub fn try_send_file(&self, part: &mut impl FilePart) -> io::Result<usize> {
        match self {
            TxHalf::Tcp(s) => s.as_ref().try_io(Interest::WRITABLE, || part.send(self.as_fd())),
            TxHalf::Unix(s) => s.as_ref().try_io(Interest::WRITABLE, || part.send(self.as_fd())),
            // Files are not sent to streams; see `sends_files`.
            TxHalf::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
            TxHalf::Tls(_) => part.send(self.as_fd()),
            TxHalf::Memory(tx) => tx.send_file(part),
        }
    }

    /// Runs `send`, which returns how many bytes of `len` it wrote. A short write has filled the socket; the next
    /// write waits until the reactor reports room.
    fn try_send<E>(&self, len: usize, send: impl FnOnce() -> Result<usize, E>) -> io::Result<usize>
    where
        io::Error: From<E>,
    {
        let mut written = 0;
        let send = || {
            written = send()?;
            if written == 0 || written == len { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        let done = match self {
            TxHalf::Tcp(s) => s.as_ref().try_io(Interest::WRITABLE, send),
            TxHalf::Unix(s) => s.as_ref().try_io(Interest::WRITABLE, send),
            TxHalf::Tls(_) | TxHalf::Memory(_) | TxHalf::Stream(_) => send(),
        };
        if written > 0 { Ok(written) } else { done.map(|()| 0) }
    }

    /// Ready when a write would complete at once.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TxHalf::Tcp(s) => s.as_ref().poll_write_ready(cx),
            TxHalf::Unix(s) => s.as_ref().poll_write_ready(cx),
            TxHalf::Tls(tx) => tx.poll_writable(cx),
            TxHalf::Memory(tx) => tx.poll_writable(cx),
            TxHalf::Stream(stream) => stream.poll_writable(cx),
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            TxHalf::Tcp(s) => s.writable().await,
            TxHalf::Unix(s) => s.writable().await,
            TxHalf::Tls(tx) => std::future::poll_fn(|cx| tx.poll_writable(cx)).await,
            TxHalf::Memory(tx) => std::future::poll_fn(|cx| tx.poll_writable(cx)).await,
            TxHalf::Stream(stream) => std::future::poll_fn(|cx| stream.poll_writable(cx)).await,
        }
    }

    /// Waits until the peer has shut down its sending side or the connection is broken. Makes no system call and
    /// reads no bytes. Unread data does not end the wait.
    pub async fn peer_shut_down(&self) {
        if let TxHalf::Memory(tx) = self {
            return tx.peer_shut_down().await;
        }
        // Priority data never becomes ready, so this interest reports only "read closed".
        self.becomes(Interest::PRIORITY | Interest::ERROR).await;
    }

    /// Waits until the connection is broken: reset by the peer, or timed out.
    pub async fn broken(&self) {
        self.becomes(Interest::ERROR).await;
    }

    async fn becomes(&self, interest: Interest) {
        // An error means that the runtime is shutting down.
        let _ = match self {
            TxHalf::Tcp(s) => s.ready(interest).await,
            TxHalf::Unix(s) => s.ready(interest).await,
            TxHalf::Tls(tx) => {
                tx.becomes(interest).await;
                return;
            }
            TxHalf::Memory(tx) => {
                tx.broken().await;
                return;
            }
            TxHalf::Stream(stream) => {
                std::future::poll_fn(|cx| stream.poll_broken(cx)).await;
                return;
            }
        };
    }

    /// Returns the number of accepted bytes that the transport holds.
    #[inline]
    pub fn held(&self) -> usize {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) | TxHalf::Stream(_) => 0,
            TxHalf::Tls(tx) => tx.held(),
            TxHalf::Memory(tx) => tx.held(),
        }
    }

    /// Passes on the bytes that the transport holds, as many as possible without waiting.
    #[inline]
    pub fn try_flush(&self) -> io::Result<()> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) | TxHalf::Stream(_) => Ok(()),
            TxHalf::Tls(tx) => tx.try_flush(),
            TxHalf::Memory(tx) => tx.try_flush(),
        }
    }

    /// Passes on the bytes that the transport holds. Ready when it holds none.
    #[inline]
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) | TxHalf::Stream(_) => Poll::Ready(Ok(())),
            TxHalf::Tls(tx) => tx.poll_flush(cx),
            TxHalf::Memory(tx) => tx.poll_flush(cx),
        }
    }

    /// Passes on the bytes that the transport holds, and waits until it holds fewer, or none.
    pub async fn flush_some(&self) -> io::Result<()> {
        let before = self.held();
        std::future::poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Pending if self.held() < before => Poll::Ready(Ok(())),
            polled => polled,
        })
        .await
    }

    /// Passes on all bytes that the transport holds.
    pub async fn flush(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Writes and flushes all bytes.
    pub async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let written = self.write_some(buf).await?;
            buf = &buf[written..];
        }
        self.flush().await
    }

    /// Writes and flushes all bytes. Fails with `TimedOut` and without an error number if the peer accepts no byte for
    /// `idle` seconds.
    pub async fn write_all_within(&self, mut buf: &[u8], idle: f64) -> io::Result<()> {
        while !buf.is_empty() {
            let written = match self.try_write(buf) {
                Err(e) if is_full(&e) => {
                    // Boxed: few writes wait, and the future is large.
                    let some = Box::pin(tokio::time::timeout(clock::seconds(idle), self.write_some(buf)));
                    // A limit shorter than `ROOM_CHECK` ends before the first attempt of `write_some`.
                    let late = |_| self.write_unasked(buf).map_err(|_| io::ErrorKind::TimedOut.into());
                    some.await.unwrap_or_else(late)?
                }
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => written?,
            };
            buf = &buf[written..];
        }
        while self.held() > 0 {
            let some = Box::pin(tokio::time::timeout(clock::seconds(idle), self.flush_some()));
            some.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        }
        Ok(())
    }

    /// Writes as many bytes as fit, and waits until at least one byte fits.
    ///
    /// The reactor reports room only once a third of a socket's buffer is free, which takes minutes if the peer is
    /// slow. Meanwhile this tries to write every `ROOM_CHECK`, so that the caller sees each byte of progress.
    pub async fn write_some(&self, buf: &[u8]) -> io::Result<usize> {
        let mut written = self.try_write(buf);
        while written.as_ref().is_err_and(is_full) {
            // Boxed: few writes wait, and the future is large.
            written = match Box::pin(tokio::time::timeout(ROOM_CHECK, self.writable())).await {
                Ok(ready) => ready.and_then(|()| self.try_write(buf)),
                Err(_) => self.write_unasked(buf),
            };
        }
        if matches!(written, Ok(0)) { Err(io::ErrorKind::WriteZero.into()) } else { written }
    }

    /// Writes as many bytes as fit, even if the reactor has reported no room.
    fn write_unasked(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) => {}
            TxHalf::Tls(tx) => return tx.write_unasked(buf),
            TxHalf::Memory(tx) => return tx.write(buf),
            TxHalf::Stream(stream) => return stream.try_write(buf),
        }
        Ok(rustix::net::send(self.as_fd(), buf, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Completes the sending side: flushes, and sends the transport's farewell. Dropping the connection then ends it in
    /// order. Sockets have no farewell. The caller limits the time; a second call continues the first.
    pub async fn finish(&self) -> io::Result<()> {
        match self {
            TxHalf::Tcp(_) | TxHalf::Unix(_) => Ok(()),
            TxHalf::Tls(tx) => std::future::poll_fn(|cx| tx.poll_finish(cx)).await,
            TxHalf::Memory(tx) => std::future::poll_fn(|cx| tx.poll_finish(cx)).await,
            TxHalf::Stream(stream) => stream.end_body(&[]).map(drop),
        }
    }

    /// Returns whether the peer can tell an end by [`finish`](Self::finish) from another end.
    pub fn has_farewell(&self) -> bool {
        !matches!(self, TxHalf::Tcp(_) | TxHalf::Unix(_))
    }

    /// Completes and ends the sending side; the peer reads end of stream. The caller limits the time.
    pub async fn end(&self) -> io::Result<()> {
        self.finish().await?;
        self.shutdown();
        Ok(())
    }

    /// Ends the sending side at once, without flush and farewell. A peer that requires the farewell detects that bytes
    /// are missing.
    pub fn shutdown(&self) {
        match self {
            TxHalf::Memory(tx) => return tx.shutdown(),
            // The other streams go on.
            TxHalf::Stream(_) => return,
            _ => {}
        }
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Write);
    }

    /// Returns the failure of TLS that has ended the connection.
    pub fn tls_failure(&self) -> Option<Failure> {
        match self {
            TxHalf::Tls(tx) => tx.connection().failure(),
            TxHalf::Tcp(_) | TxHalf::Unix(_) | TxHalf::Memory(_) | TxHalf::Stream(_) => None,
        }
    }

    /// Returns whether the handshake is not complete, and the client has sent early data.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, TxHalf::Tls(tx) if tx.connection().is_handshaking())
    }

    /// Drops the sending half so that closing resets the connection. This end then keeps neither a port in TIME_WAIT
    /// nor unacknowledged bytes, which are lost.
    pub fn reset(self) {
        if let TxHalf::Memory(tx) = &self {
            tx.close_by_reset();
            return self.forget();
        }
        if let TxHalf::Stream(_) = &self {
            // Dropping a stream before its end resets it.
            return;
        }
        // A UNIX socket has no ports, so a failure does not matter.
        let _ = sockopt::set_socket_linger(self.as_fd(), Some(Duration::ZERO));
        self.forget();
    }

    /// Drops the sending half without shutting it down.
    pub fn forget(self) {
        match self {
            TxHalf::Tcp(s) => s.forget(),
            TxHalf::Unix(s) => s.forget(),
            TxHalf::Tls(tx) => tx.forget(),
            TxHalf::Memory(tx) => tx.forget(),
            // Dropping a stream before its end resets it.
            TxHalf::Stream(_) => {}
        }
    }
}

/// Returns whether a write failed because there was no room, and may succeed later.
fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::memory::{Ends, Limits, Peer};
    use crate::stream::Stream;

    /// Returns the sending half of a connection that holds ten bytes, and its peer.
    fn narrow() -> (TxHalf, Peer) {
        connected(Limits { window: 10, step: 4, buffer: 0, sends_files: false })
    }

    fn connected(limits: Limits) -> (TxHalf, Peer) {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let (near, peer) = memory::connection(limits, Ends { engine: address, peer: address });
        (Stream::Memory(near).split().1, peer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (tx, _peer) = narrow();
        let begun = clock::Instant::now();
        let failed = tx.write_all_within(&[b'x'; 11], 2.0).await.expect_err("one byte too many");
        assert_eq!((failed.kind(), failed.raw_os_error()), (io::ErrorKind::TimedOut, None));
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_in_time_is_waited_for() {
        let (tx, peer) = narrow();
        let reads = async {
            for _ in 0..90 {
                tokio::time::sleep(Duration::from_millis(1900)).await;
                assert_eq!(peer.read(&mut [0]).await.expect("the connection is open"), 1);
            }
        };
        let (written, ()) = tokio::join!(tx.write_all_within(&[b'x'; 100], 2.0), reads);
        written.expect("each wait is shorter than the limit");
    }

    /// Returns the sending half of a connection that holds bytes back, and its peer.
    fn buffered() -> (TxHalf, Peer) {
        connected(Limits { window: 10, step: 4, buffer: 6, sends_files: false })
    }

    async fn seen(peer: &Peer) -> Option<Vec<u8>> {
        let mut buf = [0; 100];
        let read = tokio::time::timeout(Duration::ZERO, peer.read(&mut buf)).await.ok()?;
        read.ok().map(|n| buf[..n].to_vec())
    }

    #[tokio::test(start_paused = true)]
    async fn held_bytes_reach_the_peer_when_they_are_flushed() {
        let (tx, peer) = buffered();
        assert_eq!(tx.try_write(b"abcd").expect("there is room"), 4);
        assert_eq!((tx.held(), seen(&peer).await), (4, None));
        tx.flush().await.expect("the peer has room");
        assert_eq!((tx.held(), seen(&peer).await), (0, Some(b"abcd".to_vec())));
        assert_eq!(tx.try_write(b"ef").expect("there is room"), 2);
        tx.try_flush().expect("the peer has room");
        assert_eq!(seen(&peer).await, Some(b"ef".to_vec()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_write_leaves_nothing_in_the_transport() {
        let (tx, peer) = buffered();
        let (written, ()) = tokio::join!(tx.write_all_within(&[b'x'; 33], 2.0), async {
            for _ in 0..33 {
                tokio::time::sleep(Duration::from_millis(1900)).await;
                assert_eq!(peer.read(&mut [0]).await.expect("the connection is open"), 1);
            }
        });
        written.expect("each wait is shorter than the limit");
        assert_eq!(tx.held(), 0);
        let failed = tx.write_all_within(&[b'x'; 12], 2.0).await.expect_err("the peer has room for ten");
        assert_eq!((failed.kind(), tx.held()), (io::ErrorKind::TimedOut, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn an_orderly_end_is_flushed_and_has_a_farewell() {
        let (tx, peer) = buffered();
        tx.try_write(b"abcd").expect("there is room");
        tx.end().await.expect("the peer has room");
        assert!(peer.has_farewell() && !peer.is_cut());
        assert_eq!([seen(&peer).await, seen(&peer).await], [Some(b"abcd".to_vec()), Some(Vec::new())]);
        let (tx, peer) = buffered();
        tx.try_write(b"abcd").expect("there is room");
        tx.shutdown();
        assert_eq!((peer.is_cut(), seen(&peer).await), (true, Some(Vec::new())));
    }

    #[tokio::test(start_paused = true)]
    async fn the_caller_limits_the_time_of_an_end() {
        let (tx, peer) = buffered();
        tx.write_all(&[b'x'; 10]).await.expect("the peer has room");
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(second, tx.end()).await.is_err(), "there is no room for the farewell");
        assert!(!peer.has_farewell());
        peer.read(&mut [0]).await.expect("there are bytes");
        tokio::time::timeout(second, tx.end()).await.expect("there is room now").expect("the peer reads");
        assert!(peer.has_farewell());
    }

    /// A part of a file that is sent a few bytes at a time, as if signals interrupted it.
    struct Interrupted(usize);

    impl FilePart for Interrupted {
        fn len(&self) -> usize {
            self.0
        }

        fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
            let sent = rustix::net::send(socket, &[b'x'; 10][..self.0.min(10)], SendFlags::NOSIGNAL)?;
            self.0 -= sent;
            Ok(sent)
        }

        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            unreachable!("sockets send files")
        }
    }

    #[tokio::test]
    async fn a_part_of_a_file_that_is_sent_early_does_not_wait_for_room() {
        let (near, far) = tokio::net::UnixStream::pair().expect("there are descriptors");
        let tx = TxHalf::Unix(near.into_split().1);
        tx.writable().await.expect("it is open");
        let mut part = Interrupted(35);
        let sent: Vec<usize> = (0..4).map(|_| tx.try_send_file(&mut part).expect("there is room")).collect();
        assert_eq!(sent, [10, 10, 10, 5]);
        drop(far);
        assert!(tx.try_send_file(&mut Interrupted(10)).is_err(), "the peer is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn sockets_hold_nothing_and_have_no_farewell() {
        let (tx, peer) = narrow();
        assert_eq!(tx.try_write(b"abcd").expect("there is room"), 4);
        assert_eq!((tx.held(), seen(&peer).await), (0, Some(b"abcd".to_vec())));
        tx.end().await.expect("it takes no room");
        assert_eq!((peer.has_farewell(), peer.is_cut(), seen(&peer).await), (false, false, Some(Vec::new())));
    }
}
