//! A TLS connection over a socket, and its halves. Both use one session, under a lock because the pool of idle
//! connections moves them between reactors; it is never contended.
//!
//! A write seals its bytes and sends them at once. The connection holds bytes only while the socket is full, and then
//! accepts no further ones.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::Interest;

use super::failure::Failure;
use super::output::Parts;
use super::session::{Advance, Session};
use super::socket::Socket;
use crate::negotiated::Negotiated;
use crate::peek::{Peeked, SAMPLE};

/// The number of bytes from which on a single write is short, so that a fast peer does not occupy the reactor.
const MAX_WRITE: usize = 256 << 10;

/// A TLS connection before it is split into halves.
pub struct Connection {
    socket: Socket,
    session: Mutex<Session>,
    negotiated: Negotiated,
}

/// The receiving half.
pub struct Rx(Arc<Connection>);

/// The sending half. Dropping it shuts down that direction of the socket.
pub struct Tx {
    connection: Arc<Connection>,
    is_forgotten: bool,
}

/// Selects when the sealed bytes of a write are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// They are sent if the reactor has reported room.
    Asked,
    /// They are sent in any case.
    Unasked,
    /// The kernel may hold back a partial packet, because more follow at once.
    BeforeMore,
}

impl Connection {
    pub fn new(socket: Socket, session: Session, negotiated: Negotiated) -> Connection {
        Connection { socket, session: Mutex::new(session), negotiated }
    }

    pub fn negotiated(&self) -> Negotiated {
        self.negotiated.clone()
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(s) => s.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(s) => s.peer_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    pub fn is_tcp(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }

    /// Returns the failure that has ended the connection.
    pub fn failure(&self) -> Option<Failure> {
        self.session.lock().failure().cloned()
    }

    pub fn split(self) -> (Rx, Tx) {
        let this = Arc::new(self);
        (Rx(this.clone()), Tx { connection: this, is_forgotten: false })
    }

    /// Moves the connection to the current reactor.
    pub fn rebind(self) -> io::Result<Connection> {
        Ok(Connection { socket: self.socket.rebind()?, ..self })
    }

    /// Returns the next data, or what the socket reports.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut session = self.session.lock();
        loop {
            match self.advance(&mut session, Some(buf))? {
                Advance::Read(n) => return Ok(n),
                Advance::Data => return Ok(session.input().take_data(buf)),
                Advance::End => return Ok(0),
                Advance::More | Advance::Handshaken => self.receive(&mut session)?,
            }
        }
    }

    /// Opens records, and sends the alert if that fails.
    fn advance(&self, session: &mut MutexGuard<'_, Session>, out: Option<&mut [u8]>) -> io::Result<Advance> {
        let advanced = session.advance(out);
        if !matches!(advanced, Err(_) | Ok(Advance::Handshaken)) {
            return Ok(advanced?);
        }
        // The peer may be gone.
        let _ = self.send(session, Sending::Asked);
        match advanced {
            // The caller comes again for the records behind the handshake.
            Ok(Advance::Handshaken) => Ok(session.advance(None)?),
            _ => Ok(advanced?),
        }
    }

    /// Returns whether the handshake is not complete, and the client has sent early data.
    pub fn is_handshaking(&self) -> bool {
        self.session.lock().is_handshaking()
    }

    /// Ready when the handshake of a client that has sent early data is complete.
    pub fn poll_handshaken(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.lock();
        loop {
            let advanced = session.advance_handshake();
            let _ = self.send(&mut session, Sending::Asked);
            if advanced? {
                return Poll::Ready(Ok(()));
            }
            ready!(self.socket.poll_read_ready(cx))?;
            match self.receive(&mut session) {
                Err(e) if !is_full(&e) => return Poll::Ready(Err(e)),
                _ => {}
            }
        }
    }

    /// Receives bytes. Fails with `WouldBlock` if there are none.
    fn receive(&self, session: &mut Session) -> io::Result<()> {
        match self.socket.try_receive(session.input().free_space()) {
            Ok(0) => Ok(session.end_of_stream()?),
            Ok(n) => {
                session.input().received(n);
                Ok(())
            }
            Err(e) => {
                session.input().settle();
                Err(e)
            }
        }
    }

    /// Ready when a read would complete at once.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.lock();
        loop {
            match self.advance(&mut session, None) {
                Ok(Advance::More) => {}
                // The read returns the error.
                Ok(_) | Err(_) => return Poll::Ready(Ok(())),
            }
            ready!(self.socket.poll_read_ready(cx))?;
            match self.receive(&mut session) {
                Err(e) if !is_full(&e) => return Poll::Ready(Ok(())),
                _ => {}
            }
        }
    }

    /// Returns what waits to be read. Handles messages of the protocol, such as tickets, which are none of it.
    pub fn peek(&self) -> Peeked {
        let mut session = self.session.lock();
        loop {
            if let Some(peeked) = self.found(&mut session) {
                return peeked;
            }
            match self.receive(&mut session) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Peeked::Closed,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Peeked::Quiet,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Peeked::Broken,
            }
        }
    }

    fn found(&self, session: &mut MutexGuard<'_, Session>) -> Option<Peeked> {
        match self.advance(session, None) {
            Ok(Advance::More) => None,
            Ok(Advance::End) => Some(Peeked::Closed),
            Ok(Advance::Data | Advance::Read(_) | Advance::Handshaken) => {
                let data = session.input().data();
                Some(Peeked::of(&data[..data.len().min(SAMPLE)]))
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Some(Peeked::Closed),
            Err(_) => Some(Peeked::Broken),
        }
    }

    pub fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<Peeked> {
        loop {
            match self.peek() {
                Peeked::Quiet => {}
                found => return Poll::Ready(found),
            }
            if ready!(self.socket.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Peeked::Broken);
            }
        }
    }

    /// Seals and sends bytes, as many as fit.
    fn write(&self, bufs: &[IoSlice<'_>], sending: Sending) -> io::Result<usize> {
        let mut parts = Parts::new(bufs);
        if parts.len() == 0 {
            return Ok(0);
        }
        let mut session = self.session.lock();
        if !session.is_open() {
            return Err(session.failure().cloned().map_or_else(|| Errno::PIPE.into(), io::Error::from));
        }
        if !session.output().is_empty() {
            self.send(&mut session, sending)?;
            if !session.output().is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        let mut written = 0;
        while parts.len() > 0 && written < MAX_WRITE {
            written += session.seal(&mut parts)?;
            self.send(&mut session, sending)?;
            if !session.output().is_empty() {
                break;
            }
        }
        Ok(written)
    }

    /// Sends sealed bytes, as many as fit.
    fn send(&self, session: &mut Session, sending: Sending) -> io::Result<()> {
        let output = session.output();
        while !output.is_empty() {
            let sent = match sending {
                Sending::Asked => self.socket.try_send(output.bytes(), SendFlags::empty()),
                Sending::BeforeMore => self.socket.try_send(output.bytes(), SendFlags::MORE),
                Sending::Unasked => self.socket.send_unasked(output.bytes()),
            };
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => output.sent(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    output.clear();
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut session = self.session.lock();
        while !session.output().is_empty() {
            ready!(self.socket.poll_write_ready(cx))?;
            self.send(&mut session, Sending::Asked)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes and flushes all bytes, before the connection is split.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            std::future::poll_fn(|cx| self.poll_writable(cx)).await?;
            match self.write(&[IoSlice::new(bytes)], Sending::Asked) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if is_full(&e) => {}
                Err(e) => return Err(e),
            }
        }
        std::future::poll_fn(|cx| self.poll_flush(cx)).await
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.socket.poll_write_ready(cx)
    }

    fn shutdown(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Rx {
    pub fn connection(&self) -> &Connection {
        &self.0
    }

    /// Joins both halves of one connection.
    pub fn reunite(self, mut tx: Tx) -> Option<Connection> {
        if !Arc::ptr_eq(&self.0, &tx.connection) {
            return None;
        }
        tx.is_forgotten = true;
        drop(tx);
        Arc::into_inner(self.0)
    }
}

impl Tx {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.connection.write(&[IoSlice::new(buf)], Sending::Asked)
    }

    pub fn try_write_before_more(&self, buf: &[u8]) -> io::Result<usize> {
        self.connection.write(&[IoSlice::new(buf)], Sending::BeforeMore)
    }

    pub fn write_unasked(&self, buf: &[u8]) -> io::Result<usize> {
        self.connection.write(&[IoSlice::new(buf)], Sending::Unasked)
    }

    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.write(bufs, Sending::Asked)
    }

    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.poll_writable(cx)
    }

    /// Returns the number of accepted bytes that are not sent.
    pub fn held(&self) -> usize {
        self.connection.session.lock().output().held()
    }

    pub fn try_flush(&self) -> io::Result<()> {
        self.connection.send(&mut self.connection.session.lock(), Sending::Asked)
    }

    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.poll_flush(cx)
    }

    /// Sends all bytes and close_notify.
    pub fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.connection.poll_flush(cx))?;
        self.connection.session.lock().close();
        self.connection.poll_flush(cx)
    }

    pub async fn becomes(&self, interest: Interest) {
        // An error means that the runtime is shutting down.
        let _ = self.connection.socket.ready(interest).await;
    }

    pub fn shutdown(&self) {
        self.connection.shutdown();
    }

    /// Drops the half without shutting it down.
    pub fn forget(mut self) {
        self.is_forgotten = true;
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if !self.is_forgotten {
            self.connection.shutdown();
        }
    }
}
