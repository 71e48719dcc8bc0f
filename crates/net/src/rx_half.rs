//! The half of a connection that is read from.
//!
//! Reads go through `poll_read`. It clears readiness after a short read, so that an exchange needs a single read and
//! no second one that finds nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use tokio::io::Interest;
use tokio::net::{tcp, unix};

use crate::memory;
use crate::multiplex;
use crate::peek::{Peeked, SAMPLE};
use crate::tls;

/// The half of a connection that is read from.
pub enum RxHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(tls::Rx),
    Memory(memory::Rx),
    /// A stream of a connection with several.
    Stream(Arc<multiplex::Stream>),
}

/// Reads the available bytes of a socket, within its `try_io`. A short read has emptied the socket; the next read waits
/// until the reactor reports more.
#[inline]
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
    try_io: impl FnOnce(&mut dyn FnMut() -> io::Result<()>) -> io::Result<()>,
) -> io::Result<usize> {
    let len = buf.len();
    let mut read = 0;
    let mut receive = || {
        read = rustix::net::recv(fd, &mut *buf, RecvFlags::empty())?.0;
        if read == 0 || read == len { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    };
    let done = try_io(&mut receive);
    if read > 0 { Ok(read) } else { done.map(|()| 0) }
}

/// Calls `try_read` whenever `poll_readable` is ready, until it reads something.
#[inline]
pub(crate) fn poll_until_read(
    mut poll_readable: impl FnMut() -> Poll<io::Result<()>>,
    mut try_read: impl FnMut() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        std::task::ready!(poll_readable())?;
        match try_read() {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            done => return Poll::Ready(done),
        }
    }
}

impl RxHalf {
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        poll_until_read(|| self.poll_readable(cx), || self.try_read(buf))
    }

    /// Reads the available bytes. Makes no system call unless the reactor reported some. For repeated reads use
    /// `poll_read`, which lets other tasks run.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            RxHalf::Tcp(_) | RxHalf::Unix(_) => {}
            RxHalf::Tls(rx) => return rx.connection().try_read(buf),
            RxHalf::Memory(rx) => return rx.read(buf),
            RxHalf::Stream(stream) => return stream.try_read(buf),
        }
        receive(self.as_fd(), buf, |receive| self.try_io(receive))
    }

    /// Runs `receive` if the reactor reported something to read. If `receive` fails with `WouldBlock`, the socket
    /// counts as empty until the reactor reports more.
    fn try_io<R>(&self, receive: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            RxHalf::Tcp(s) => s.as_ref().try_io(Interest::READABLE, receive),
            RxHalf::Unix(s) => s.as_ref().try_io(Interest::READABLE, receive),
            RxHalf::Tls(_) | RxHalf::Memory(_) | RxHalf::Stream(_) => receive(),
        }
    }

    /// Reads the available bytes; waits until there is at least one. Returns 0 at the end of the stream.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    /// Checks the kernel's receive buffer without taking data from it. Costs a system call.
    pub fn peek(&self) -> Peeked {
        match self {
            RxHalf::Tcp(_) | RxHalf::Unix(_) => {}
            RxHalf::Tls(rx) => return rx.connection().peek(),
            RxHalf::Memory(rx) => return rx.peek(),
            // Bytes that belong to no response are a fault of the whole connection.
            RxHalf::Stream(_) => return Peeked::Quiet,
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
        let is_tcp = match self {
            RxHalf::Tcp(_) => true,
            RxHalf::Tls(rx) => rx.connection().is_tcp(),
            RxHalf::Unix(_) | RxHalf::Memory(_) | RxHalf::Stream(_) => false,
        };
        if is_tcp {
            let _ = sockopt::set_tcp_quickack(self.as_fd(), true);
        }
    }

    /// Checks the connection like `peek`, but makes no system call unless the reactor reported an event. If there is
    /// nothing to report, the next event wakes the task.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<Peeked> {
        if let RxHalf::Tls(rx) = self {
            return rx.connection().poll_peek(cx);
        }
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
            RxHalf::Tls(rx) => rx.connection().poll_readable(cx),
            RxHalf::Memory(rx) => rx.poll_readable(cx),
            RxHalf::Stream(stream) => stream.poll_readable(cx),
        }
    }

    /// Ready when the handshake is complete. It is, unless the client has sent early data.
    pub fn poll_handshaken(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            RxHalf::Tls(rx) => rx.connection().poll_handshaken(cx),
            RxHalf::Tcp(_) | RxHalf::Unix(_) | RxHalf::Memory(_) | RxHalf::Stream(_) => Poll::Ready(Ok(())),
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            RxHalf::Tcp(s) => s.as_ref().as_fd(),
            RxHalf::Unix(s) => s.as_ref().as_fd(),
            RxHalf::Tls(rx) => rx.connection().as_fd(),
            RxHalf::Memory(rx) => rx.as_fd(),
            RxHalf::Stream(stream) => stream.as_fd(),
        }
    }

    pub fn raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
