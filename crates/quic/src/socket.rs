//! A UDP socket with the system's support for many datagrams in one call.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;

use crate::forward::Datagram;
#[cfg(any(test, feature = "memory"))]
use crate::memory::Wire;

/// The number of buffers that are filled in one call. Each has the size of the largest group of datagrams.
const BATCH: usize = 8;
const BUFFER: usize = 64 * 1024;
/// The size that the system is asked to give to the queues of the socket.
const QUEUE: usize = 1024 * 1024;

/// The descriptor of a socket.
enum Io {
    Both(UdpSocket),
    /// Another process receives the datagrams. The reactor does not wake for them.
    Sending(AsyncFd<std::net::UdpSocket>),
    /// The reactor cannot watch the socket.
    Lost,
    #[cfg(any(test, feature = "memory"))]
    Memory(Wire),
}

impl Io {
    fn both(socket: std::net::UdpSocket) -> io::Result<Io> {
        Ok(Io::Both(UdpSocket::from_std(socket)?))
    }

    fn sending(socket: std::net::UdpSocket) -> io::Result<Io> {
        #[expect(
            deprecated,
            reason = "its replacement is unsafe, and a UdpSocket always owns its descriptor"
        )]
        let io = AsyncFd::with_interest(socket, Interest::WRITABLE)?;
        Ok(Io::Sending(io))
    }

    fn into_socket(self) -> io::Result<std::net::UdpSocket> {
        match self {
            Io::Both(io) => io.into_std(),
            Io::Sending(io) => Ok(io.into_inner()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Io::Both(io) => Some(io.as_fd()),
            Io::Sending(io) => Some(io.as_fd()),
            _ => None,
        }
    }

    fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Io::Both(io) => io.poll_send_ready(cx).map(drop),
            Io::Sending(io) => io.poll_write_ready(cx).map(drop),
            _ => Poll::Ready(()),
        }
    }

    fn try_send(&self, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self {
            Io::Both(io) => io.try_io(Interest::WRITABLE, send),
            Io::Sending(io) => io.try_io(Interest::WRITABLE, |_| send()),
            _ => Ok(()),
        }
    }
}

pub struct Socket {
    io: RefCell<Io>,
    /// The system's support; none in memory.
    state: Option<UdpSocketState>,
    local: SocketAddr,
    /// The tasks that wait until the socket accepts datagrams.
    blocked: RefCell<Vec<Waker>>,
}

/// The buffers for received datagrams.
pub struct Buffers {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH],
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers { bytes: vec![0; BATCH * BUFFER], metas: [RecvMeta::default(); BATCH] }
    }
}

impl Buffers {
    /// Fills the first buffer with a datagram. Returns the number of filled buffers.
    #[cfg(any(test, feature = "memory"))]
    fn put(&mut self, datagram: &Datagram) -> usize {
        let length = datagram.bytes.len().min(BUFFER);
        self.bytes[..length].copy_from_slice(&datagram.bytes[..length]);
        self.metas[0] = RecvMeta::default();
        (self.metas[0].addr, self.metas[0].len, self.metas[0].stride) = (datagram.remote, length, length);
        1
    }

    /// Calls `each` with the datagrams of the first `filled` buffers.
    pub fn each(&self, filled: usize, mut each: impl FnMut(Datagram)) {
        for (meta, buffer) in self.metas.iter().zip(self.bytes.chunks(BUFFER)).take(filled) {
            for bytes in buffer[..meta.len.min(BUFFER)].chunks(meta.stride.max(1)) {
                let ecn = meta.ecn.and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
                each(Datagram { remote: meta.addr, local: meta.dst_ip, ecn, bytes: BytesMut::from(bytes) });
            }
        }
    }
}

impl Socket {
    /// Takes over a bound socket. Must be called on the reactor.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Socket> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // A smaller queue than asked for only loses more datagrams.
        let _ = state.set_send_buffer_size(UdpSockRef::from(&socket), QUEUE);
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&socket), QUEUE);
        let local = socket.local_addr()?;
        let (io, state) = (RefCell::new(Io::both(socket)?), Some(state));
        Ok(Socket { io, state, local, blocked: RefCell::default() })
    }

    #[cfg(any(test, feature = "memory"))]
    pub fn in_memory(wire: Wire) -> Socket {
        let local = wire.local();
        Socket { io: RefCell::new(Io::Memory(wire)), state: None, local, blocked: RefCell::default() }
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    pub fn raw_fd(&self) -> RawFd {
        self.io.borrow().fd().map_or(-1, |fd| fd.as_raw_fd())
    }

    fn change(&self, change: impl FnOnce(Io) -> io::Result<Io>) -> io::Result<()> {
        let io = self.io.replace(Io::Lost);
        *self.io.borrow_mut() = change(io)?;
        self.blocked.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Receives no more datagrams, and sends from this socket, or from `other` on the same address. After an error,
    /// datagrams are lost.
    pub fn stop_receiving(&self, other: Option<std::net::UdpSocket>) -> io::Result<()> {
        self.change(|io| Io::sending(other.map_or_else(|| io.into_socket(), Ok)?))
    }

    /// Receives datagrams again.
    pub fn receive_again(&self) -> io::Result<()> {
        self.change(|io| Io::both(io.into_socket()?))
    }

    /// Returns whether datagrams may be split on their way.
    pub fn may_fragment(&self) -> bool {
        self.state.as_ref().is_some_and(UdpSocketState::may_fragment)
    }

    /// Returns the number of datagrams that are sent in one call.
    pub fn segments(&self) -> usize {
        self.state.as_ref().map_or(1, UdpSocketState::max_gso_segments)
    }

    /// Receives datagrams. Returns the number of buffers that were filled.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<io::Result<usize>> {
        let io = self.io.borrow();
        #[cfg(any(test, feature = "memory"))]
        if let Io::Memory(wire) = &*io {
            return wire.poll_receive(cx).map(|datagram| Ok(buffers.put(&datagram)));
        }
        let (Io::Both(io), Some(state)) = (&*io, &self.state) else { return Poll::Pending };
        loop {
            match io.poll_recv_ready(cx) {
                Poll::Ready(Ok(())) => {}
                other => return other.map_ok(|()| 0),
            }
            let received = io.try_io(Interest::READABLE, || {
                let mut slices = buffers.bytes.chunks_mut(BUFFER).map(IoSliceMut::new);
                let mut slices: [IoSliceMut<'_>; BATCH] =
                    std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
                state.recv(UdpSockRef::from(io), &mut slices, &mut buffers.metas)
            });
            match received {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                received => return Poll::Ready(received),
            }
        }
    }

    /// Sends the datagrams of one connection. Returns false if the socket is full. Datagrams that the system refuses to
    /// send are lost, like those that the network loses.
    pub fn send(&self, transmit: &quinn_proto::Transmit, bytes: &[u8]) -> bool {
        #[cfg(any(test, feature = "memory"))]
        if let Io::Memory(wire) = &*self.io.borrow() {
            wire.send(transmit, bytes);
            return true;
        }
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let Some(state) = &self.state else { return true };
        let io = self.io.borrow();
        let Some(fd) = io.fd() else { return true };
        let sent = io.try_send(|| state.try_send(UdpSockRef::from(&fd), &transmit));
        !sent.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Registers a task to be woken when the socket accepts datagrams again. The endpoint's task waits for that.
    pub fn wait_writable(&self, waker: &Waker) {
        self.blocked.borrow_mut().push(waker.clone());
    }

    /// Wakes the tasks that wait for the socket, if it accepts datagrams.
    pub fn poll_unblock(&self, cx: &mut Context<'_>) {
        if !self.blocked.borrow().is_empty() && self.io.borrow().poll_send_ready(cx).is_ready() {
            self.blocked.take().into_iter().for_each(Waker::wake);
        }
    }
}
