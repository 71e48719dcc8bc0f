//! A UDP socket with the system's support for many datagrams in one call.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::forward::Datagram;

/// The number of buffers that are filled in one call. Each has the size of the largest group of datagrams.
const BATCH: usize = 8;
const BUFFER: usize = 64 * 1024;
/// The size that the system is asked to give to the queues of the socket.
const QUEUE: usize = 1024 * 1024;

pub struct Socket {
    io: UdpSocket,
    state: UdpSocketState,
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
        Ok(Socket { io: UdpSocket::from_std(socket)?, state, local, blocked: RefCell::default() })
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    pub fn raw_fd(&self) -> RawFd {
        self.io.as_raw_fd()
    }

    /// Returns whether datagrams may be split on their way.
    pub fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Returns the number of datagrams that are sent in one call.
    pub fn segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Receives datagrams. Returns the number of buffers that were filled.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buffers: &mut Buffers) -> Poll<io::Result<usize>> {
        loop {
            match self.io.poll_recv_ready(cx) {
                Poll::Ready(Ok(())) => {}
                other => return other.map_ok(|()| 0),
            }
            let received = self.io.try_io(Interest::READABLE, || {
                let mut slices = buffers.bytes.chunks_mut(BUFFER).map(IoSliceMut::new);
                let mut slices: [IoSliceMut<'_>; BATCH] =
                    std::array::from_fn(|_| slices.next().unwrap_or(IoSliceMut::new(&mut [])));
                self.state.recv(UdpSockRef::from(&self.io), &mut slices, &mut buffers.metas)
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
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: &bytes[..transmit.size],
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let sent =
            self.io.try_io(Interest::WRITABLE, || self.state.try_send(UdpSockRef::from(&self.io), &transmit));
        !sent.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Registers a task to be woken when the socket accepts datagrams again. The endpoint's task waits for that.
    pub fn wait_writable(&self, waker: &Waker) {
        self.blocked.borrow_mut().push(waker.clone());
    }

    /// Wakes the tasks that wait for the socket, if it accepts datagrams.
    pub fn poll_unblock(&self, cx: &mut Context<'_>) {
        if !self.blocked.borrow().is_empty() && self.io.poll_send_ready(cx).is_ready() {
            self.blocked.take().into_iter().for_each(Waker::wake);
        }
    }
}
