//! The transport: a TCP or UNIX stream socket, TLS over one of them, or a connection in memory, with a receiving and a
//! sending half.
//!
//! The halves are separate values because the fetch reads a request body while the session keeps the sending half.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll};

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};

use crate::memory;
use crate::negotiated::Negotiated;
use crate::rx_half::{RxHalf, poll_until_read, receive};
use crate::tls;
use crate::tx_half::TxHalf;

/// A connection before it is split into halves.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<tls::Connection>),
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
            Stream::Tls(tls) => {
                let (r, w) = tls.split();
                (RxHalf::Tls(r), TxHalf::Tls(w))
            }
            Stream::Memory(near) => {
                let (r, w) = near.split();
                (RxHalf::Memory(r), TxHalf::Memory(w))
            }
        }
    }

    /// Joins both halves of one connection. Returns `None` if they are of different connections.
    pub(crate) fn join(rx: RxHalf, tx: TxHalf) -> Option<Stream> {
        match (rx, tx) {
            (RxHalf::Tcp(r), TxHalf::Tcp(w)) => r.reunite(w).ok().map(Stream::Tcp),
            (RxHalf::Unix(r), TxHalf::Unix(w)) => r.reunite(w).ok().map(Stream::Unix),
            (RxHalf::Tls(r), TxHalf::Tls(w)) => r.reunite(w).map(|tls| Stream::Tls(Box::new(tls))),
            (RxHalf::Memory(r), TxHalf::Memory(w)) => r.reunite(w).map(Stream::Memory),
            _ => None,
        }
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(s) => s.poll_read_ready(cx),
            Stream::Unix(s) => s.poll_read_ready(cx),
            Stream::Tls(tls) => tls.poll_readable(cx),
            Stream::Memory(near) => near.poll_readable(cx),
        }
    }

    fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => receive(s.as_fd(), buf, |receive| s.try_io(Interest::READABLE, receive)),
            Stream::Unix(s) => receive(s.as_fd(), buf, |receive| s.try_io(Interest::READABLE, receive)),
            Stream::Tls(tls) => tls.try_read(buf),
            Stream::Memory(near) => near.read(buf),
        }
    }

    /// Reads the available bytes; waits until there is at least one. Returns 0 at the end of the stream.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| poll_until_read(|| self.poll_readable(cx), || self.try_read(buf))).await
    }

    /// Writes and flushes all bytes.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.write_all(bytes).await,
            Stream::Unix(s) => s.write_all(bytes).await,
            Stream::Tls(tls) => tls.write_all(bytes).await,
            Stream::Memory(near) => near.write_all(bytes).await,
        }
    }

    /// Returns the facts that the transport has negotiated with the peer.
    pub fn negotiated(&self) -> Negotiated {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Negotiated::default(),
            Stream::Tls(tls) => tls.negotiated(),
            Stream::Memory(near) => near.negotiated(),
        }
    }

    /// Returns whether the handshake is not complete, and the client has sent early data.
    pub fn is_handshaking(&self) -> bool {
        matches!(self, Stream::Tls(tls) if tls.is_handshaking())
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(s) => s.local_addr().ok(),
            Stream::Unix(_) => None,
            Stream::Tls(tls) => tls.local_addr(),
            Stream::Memory(near) => Some(near.local_addr()),
        }
    }

    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(s) => s.peer_addr().ok(),
            Stream::Unix(_) => None,
            Stream::Tls(tls) => tls.peer_addr(),
            Stream::Memory(near) => Some(near.peer_addr()),
        }
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(s) => s.as_fd(),
            Stream::Unix(s) => s.as_fd(),
            Stream::Tls(tls) => tls.as_fd(),
            Stream::Memory(near) => near.as_fd(),
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
            Stream::Tls(tls) => Stream::Tls(Box::new(tls.rebind()?)),
            near @ Stream::Memory(_) => near,
        })
    }
}
