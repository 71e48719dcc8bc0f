//! A transport: a stream socket, TCP or UNIX, or a connection in memory. It has two halves: one for the reader, one for
//! the writer.
//!
//! The halves are separate values because a request body is read by the fetch while the session keeps the
//! sending side. Reading goes through `poll_read`: it clears readiness after a short read, so that an
//! exchange costs one read and no second one that finds nothing.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::peek::{Peeked, PeerState, SAMPLE};
use crate::memory;

/// The half of a connection that is read from.
pub enum RxHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Memory(memory::Rx),
}

/// The half of a connection that is written to.
pub enum TxHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Memory(memory::Tx),
}

/// Both halves, before they are split.
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

    /// Moves the socket from the reactor it was made on to the current one.
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

    /// Reads the bytes that are there. Makes no system call if the reactor reported none. For repeated reads use
    /// `poll_read`, which gives other tasks their turn.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if let RxHalf::Memory(rx) = self {
            return rx.read(buf);
        }
        let len = buf.len();
        let mut read = 0;
        // A short read has emptied the socket. It is not tried again until the reactor reports more.
        let receive = || {
            read = rustix::net::recv(self.as_fd(), &mut *buf, RecvFlags::empty())?.0;
            if read == 0 || read == len { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        let done = self.try_io(receive);
        if read > 0 { Ok(read) } else { done.map(|()| 0) }
    }

    /// Runs `ask` if the reactor reported something to read. If `ask` fails with `WouldBlock`, the socket counts as
    /// empty until the reactor reports more.
    fn try_io<R>(&self, ask: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            RxHalf::Tcp(s) => s.as_ref().try_io(Interest::READABLE, ask),
            RxHalf::Unix(s) => s.as_ref().try_io(Interest::READABLE, ask),
            RxHalf::Memory(_) => ask(),
        }
    }

    /// Reads the bytes that are there, and waits for at least one. Returns 0 at the end of the stream.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    /// Checks the kernel's buffer without reading from it. Costs a system call.
    pub fn look(&self) -> Peeked {
        if let RxHalf::Memory(rx) = self {
            return rx.look();
        }
        let mut window = [0u8; SAMPLE];
        match rustix::net::recv(self.as_fd(), &mut window, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => Peeked::Closed,
            Ok((n, _)) => Peeked::of(&window[..n]),
            Err(Errno::AGAIN) => Peeked::Quiet,
            Err(_) => Peeked::Broken,
        }
    }

    /// Confirms a new connection at once. Otherwise the first packet with bytes confirms it, and the peer does not see
    /// the connection before.
    pub fn confirm(&self) {
        if let RxHalf::Tcp(_) = self {
            let _ = sockopt::set_tcp_quickack(self.as_fd(), true);
        }
    }

    /// Does the same as `look`, but makes no system call unless the reactor reported an event. If there is nothing, the
    /// next event wakes the task.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<Peeked> {
        loop {
            if let Err(_gone) = std::task::ready!(self.poll_readable(cx)) {
                return Poll::Ready(Peeked::Broken);
            }
            let look = || match self.look() {
                Peeked::Quiet => Err(io::ErrorKind::WouldBlock.into()),
                found => Ok(found),
            };
            match self.try_io(look) {
                Ok(found) => return Poll::Ready(found),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Peeked::Broken),
            }
        }
    }

    /// Ready when a read would not have to wait.
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

    /// Joins both halves of one socket into a stream again.
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

    /// Writes by a direct system call. The C library's function is a cancellation point, which costs two atomic
    /// operations each time.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        if let TxHalf::Memory(tx) = self {
            return tx.write(buf);
        }
        self.try_send(buf.len(), || rustix::net::send(self.as_fd(), buf, SendFlags::NOSIGNAL))
    }

    /// Does the same as `try_write`, but the kernel may hold back bytes that do not fill a packet, because
    /// more follow at once.
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

    /// Returns whether the system can send parts of files to it.
    pub fn sends_files(&self) -> bool {
        !matches!(self, TxHalf::Memory(_))
    }

    /// Checks whether the peer may still be there. Costs a system call.
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

    /// Lets `send` write up to `len` bytes to the socket by a system call of its own. Returns the number of bytes
    /// written.
    pub fn try_send_by(
        &self,
        len: usize,
        send: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.try_send(len, || send(self.as_fd()))
    }

    /// Runs `send`, which returns the number of bytes that it wrote of `len`. A short write has filled the socket. It
    /// is not tried again until the reactor reports room.
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

    /// Ready when a write would not have to wait.
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

    /// Waits until the peer has shut down its sending side or the connection is broken. Makes no system call and reads
    /// no bytes. Data to be read does not end the wait.
    pub async fn peer_shut_down(&self) {
        if let TxHalf::Memory(tx) = self {
            return tx.peer_shut_down().await;
        }
        // Nothing is registered for priority data, so only "read closed" remains of its readiness.
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
            match self.try_write(buf) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => buf = &buf[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Ends the sending side; the peer reads end of stream.
    pub fn shutdown(&self) {
        if let TxHalf::Memory(tx) = self {
            return tx.shutdown();
        }
        let _ = rustix::net::shutdown(self.as_fd(), rustix::net::Shutdown::Write);
    }

    /// Drops the sending half so that closing resets the connection, and this end keeps no port in TIME_WAIT. Bytes
    /// that the peer has not acknowledged are lost. Use it only for connections whose last response is complete.
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
