//! The transport: a TCP or UNIX stream socket, or a connection in memory, with a receiving and a sending half.
//!
//! The halves are separate values because the fetch reads a request body while the session keeps the sending half.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use crate::memory;
use crate::rx_half::RxHalf;
use crate::tx_half::TxHalf;

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

    /// Joins both halves of one connection. Returns `None` if they are of different connections.
    pub(crate) fn join(rx: RxHalf, tx: TxHalf) -> Option<Stream> {
        match (rx, tx) {
            (RxHalf::Tcp(r), TxHalf::Tcp(w)) => r.reunite(w).ok().map(Stream::Tcp),
            (RxHalf::Unix(r), TxHalf::Unix(w)) => r.reunite(w).ok().map(Stream::Unix),
            (RxHalf::Memory(r), TxHalf::Memory(w)) => r.reunite(w).map(Stream::Memory),
            _ => None,
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
