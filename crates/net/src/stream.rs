//! The transport: a TCP or UNIX stream socket, or a connection in memory, with a receiving and a sending half.
//!
//! The halves are separate values because the fetch reads a request body while the session keeps the sending half.
//! Reads go through `poll_read`. It clears readiness after a short read, so that an exchange needs a single read and
//! no second one that finds nothing.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

use lacquer_sources::clock;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::file_part::FilePart;
use crate::memory;
use crate::peek::{Peeked, PeerState, SAMPLE};

/// The interval at which a waiting writer tries to write, whatever the reactor reports.
const ROOM_CHECK: Duration = Duration::from_millis(250);

/// The half of a connection that is read from.
pub enum RxHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Memory(memory::Rx),
}

/// The sending half of a connection.
pub enum TxHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Memory(memory::Tx),
}

/// A connection before it is split into halves.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(memory::Near),
}

impl Stream {
    pub fn split(self) -> (RxHalf, TxHalf) {
        match self {
            Stream::Tcp(s) => {
                let (r, w) = s.into_split();
                (RxHalf::Tcp(r), TxHalf::Tcp(w))
            }
            Stream::Unix(s) => {
                let (r, w) = s.into_split();
                (RxHalf::Unix(r), TxHalf::Unix(w))
            }
            Stream::Memory(near) => {
                let (r, w) = near.split();
                (RxHalf::Memory(r), TxHalf::Memory(w))
            }
        }
    }

    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.write_all(bytes).await,
            Stream::Unix(s) => s.write_all(bytes).await,
            Stream::Memory(near) => near.write_all(bytes).await,
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(s) => s.as_fd(),
            Stream::Unix(s) => s.as_fd(),
            Stream::Memory(_) => memory::descriptor(),
        }
    }

    pub fn raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// Moves the socket from the reactor that it is registered with to the current one.
    pub fn rebind(self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Tcp(s) => Stream::Tcp(TcpStream::from_std(s.into_std()?)?),
            Stream::Unix(s) => Stream::Unix(UnixStream::from_std(s.into_std()?)?),
            near @ Stream::Memory(_) => near,
        })
    }
}

impl RxHalf {
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.poll_readable(cx))?;
            match self.try_read(buf) {
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Reads the available bytes. Makes no system call unless the reactor reported some. For repeated reads use
    /// `poll_read`, which lets other tasks run.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if let RxHalf::Memory(rx) = self {
            return rx.read(buf);
        }
        let len = buf.len();
        let mut read = 0;
        // A short read has emptied the socket. The next read waits until the reactor reports more.
        let receive = || {
            read = rustix::net::recv(self.as_fd(), &mut *buf, RecvFlags::empty())?.0;
            if read == 0 || read == len { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        let done = self.try_io(receive);
        if read > 0 { Ok(read) } else { done.map(|()| 0) }
    }

    /// Runs `receive` if the reactor reported something to read. If `receive` fails with `WouldBlock`, the socket
    /// counts as empty until the reactor reports more.
    fn try_io<R>(&self, receive: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            RxHalf::Tcp(s) => s.as_ref().try_io(Interest::READABLE, receive),
            RxHalf::Unix(s) => s.as_ref().try_io(Interest::READABLE, receive),
            RxHalf::Memory(_) => receive(),
        }
    }

    /// Reads the available bytes; waits until there is at least one. Returns 0 at the end of the stream.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    /// Checks the kernel's receive buffer without reading from it. Costs a system call.
    pub fn peek(&self) -> Peeked {
        if let RxHalf::Memory(rx) = self {
            return rx.peek();
        }
        let mut window = [0u8; SAMPLE];
        match rustix::net::recv(self.as_fd(), &mut window, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => Peeked::Closed,
            Ok((n, _)) => Peeked::of(&window[..n]),
            Err(Errno::AGAIN) => Peeked::Quiet,
            Err(_) => Peeked::Broken,
        }
    }

    /// Acknowledges the handshake of a new connection at once. Otherwise the first packet with data does, and the
    /// peer does not see the connection before that.
    pub fn confirm(&self) {
        if let RxHalf::Tcp(_) = self {
            let _ = sockopt::set_tcp_quickack(self.as_fd(), true);
        }
    }

    /// Checks the connection like `peek`, but makes no system call unless the reactor reported an event. If there is
    /// nothing to report, the next event wakes the task.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<Peeked> {
        loop {
            if let Err(_gone) = std::task::ready!(self.poll_readable(cx)) {
                return Poll::Ready(Peeked::Broken);
            }
            let peek = || match self.peek() {
                Peeked::Quiet => Err(io::ErrorKind::WouldBlock.into()),
                found => Ok(found),
            };
            match self.try_io(peek) {
                Ok(found) => return Poll::Ready(found),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Peeked::Broken),
            }
        }
    }

    /// Ready when a read would complete at once.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            RxHalf::Tcp(s) => s.as_ref().poll_read_ready(cx),
            RxHalf::Unix(s) => s.as_ref().poll_read_ready(cx),
            RxHalf::Memory(rx) => rx.poll_readable(cx),
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            RxHalf::Tcp(s) => s.as_ref().as_fd(),
            RxHalf::Unix(s) => s.as_ref().as_fd(),
            RxHalf::Memory(_) => memory::descriptor(),
        }
    }

    pub fn raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }

    /// Joins both halves of one socket into a stream. Returns `None` if they are of different sockets.
    pub(crate) fn reunite(self, tx: TxHalf) -> Option<Stream> {
        match (self, tx) {
            (RxHalf::Tcp(r), TxHalf::Tcp(w)) => r.reunite(w).ok().map(Stream::Tcp),
            (RxHalf::Unix(r), TxHalf::Unix(w)) => r.reunite(w).ok().map(Stream::Unix),
            (RxHalf::Memory(r), TxHalf::Memory(w)) => r.reunite(w).map(Stream::Memory),
            _ => None,
        }
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            RxHalf::Tcp(s) => s.local_addr().ok(),
            RxHalf::Unix(_) => None,
            RxHalf::Memory(rx) => Some(rx.ends().engine),
        }
    }

    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            RxHalf::Tcp(s) => s.peer_addr().ok(),
            RxHalf::Unix(_) => None,
            RxHalf::Memory(rx) => Some(rx.ends().peer),
        }
    }
}

impl TxHalf {
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            TxHalf::Tcp(s) => s.as_ref().as_fd(),
            TxHalf::Unix(s) => s.as_ref().as_fd(),
            TxHalf::Memory(_) => memory::descriptor(),
        }
    }

    /// Writes with a direct system call. The function of the C library is a cancellation point, which costs two
    /// atomic operations for each call.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        if let TxHalf::Memory(tx) = self {
            return tx.write(buf);
        }
        self.try_send(buf.len(), || rustix::net::send(self.as_fd(), buf, SendFlags::NOSIGNAL))
    }

    /// Writes like `try_write`, but the kernel may hold back bytes that do not fill a packet, because more follow at
    /// once.
    pub fn try_write_before_more(&self, buf: &[u8]) -> io::Result<usize> {
        if let TxHalf::Memory(tx) = self {
            return tx.write(buf);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        self.try_send(buf.len(), || rustix::net::send(self.as_fd(), buf, flags))
    }

    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let TxHalf::Memory(tx) = self {
            return tx.write_vectored(bufs);
        }
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.try_send(len, || rustix::io::writev(self.as_fd(), bufs))
    }

    /// Returns whether the kernel can send parts of files to this socket.
    pub fn sends_files(&self) -> bool {
        match self {
            TxHalf::Memory(tx) => tx.sends_files(),
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

    /// Sends bytes of a file, as many as there is room for, and removes them from `part`. Returns their number.
    pub fn try_send_file(&self, part: &mut impl FilePart) -> io::Result<usize> {
        if let TxHalf::Memory(tx) = self {
            return tx.send_file(part);
        }
        self.try_send(part.len(), || part.send(self.as_fd()))
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
            TxHalf::Memory(_) => send(),
        };
        if written > 0 { Ok(written) } else { done.map(|()| 0) }
    }

    /// Ready when a write would complete at once.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TxHalf::Tcp(s) => s.as_ref().poll_write_ready(cx),
            TxHalf::Unix(s) => s.as_ref().poll_write_ready(cx),
            TxHalf::Memory(tx) => tx.poll_writable(cx),
        }
    }

    pub async fn writable(&self) -> io::Result<()> {
        match self {
            TxHalf::Tcp(s) => s.writable().await,
            TxHalf::Unix(s) => s.writable().await,
            TxHalf::Memory(tx) => std::future::poll_fn(|cx| tx.poll_writable(cx)).await,
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
            TxHalf::Memory(tx) => {
                tx.broken().await;
                return;
            }
        };
    }

    pub async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let written = self.write_some(buf).await?;
            buf = &buf[written..];
        }
        Ok(())
    }

    /// Writes all bytes. Fails with `TimedOut` and without an error number if the peer accepts no byte for `idle`
    /// seconds.
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
        if let TxHalf::Memory(tx) = self {
            return tx.write(buf);
        }
        Ok(rustix::net::send(self.as_fd(), buf, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Ends the sending side; the peer reads end of stream.
    pub fn shutdown(&self) {
        if let TxHalf::Memory(tx) = self {
            return tx.shutdown();
        }
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Write);
    }

    /// Drops the sending half so that closing resets the connection. This end then keeps neither a port in TIME_WAIT
    /// nor unacknowledged bytes, which are lost.
    pub fn reset(self) {
        if let TxHalf::Memory(tx) = &self {
            tx.close_by_reset();
            return self.forget();
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
            TxHalf::Memory(tx) => tx.forget(),
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

    /// Returns the sending half of a connection that holds ten bytes, and its peer.
    fn narrow() -> (TxHalf, Peer) {
        let limits = Limits { window: 10, step: 4, sends_files: false };
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
}
