//! The socket below a TLS connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use rustix::net::SendFlags;
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

use crate::rx_half::receive;
use crate::stream::Stream;

pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(s) => s.as_fd(),
            Socket::Unix(s) => s.as_fd(),
        }
    }
}

impl Socket {
    /// Returns the socket of a stream. Fails if it has none.
    pub fn of(stream: Stream) -> io::Result<Socket> {
        match stream {
            Stream::Tcp(s) => Ok(Socket::Tcp(s)),
            Stream::Unix(s) => Ok(Socket::Unix(s)),
            Stream::Tls(_) | Stream::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(s) => s.poll_read_ready(cx),
            Socket::Unix(s) => s.poll_read_ready(cx),
        }
    }

    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(s) => s.poll_write_ready(cx),
            Socket::Unix(s) => s.poll_write_ready(cx),
        }
    }

    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Socket::Tcp(s) => s.ready(interest).await,
            Socket::Unix(s) => s.ready(interest).await,
        }
    }

    fn try_io<R>(&self, interest: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            Socket::Tcp(s) => s.try_io(interest, io),
            Socket::Unix(s) => s.try_io(interest, io),
        }
    }

    /// Reads the available bytes. Makes no system call unless the reactor reported some.
    pub fn try_receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        receive(self.as_fd(), buf, |receive| self.try_io(Interest::READABLE, receive))
    }

    /// Sends bytes. Makes no system call unless the reactor reported room. A short write has filled the socket.
    pub fn try_send(&self, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
        let mut written = 0;
        let done = self.try_io(Interest::WRITABLE, || {
            written = rustix::net::send(self, bytes, SendFlags::NOSIGNAL | flags)?;
            if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        if written > 0 { Ok(written) } else { done.map(|()| 0) }
    }

    /// Sends bytes even if the reactor has reported no room.
    pub fn send_unasked(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Moves the socket to the current reactor.
    pub fn rebind(self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(s) => Socket::Tcp(TcpStream::from_std(s.into_std()?)?),
            Socket::Unix(s) => Socket::Unix(UnixStream::from_std(s.into_std()?)?),
        })
    }
}
