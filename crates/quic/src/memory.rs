//! A socket in memory, for simulated worlds: the world carries the datagrams.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::forward::Datagram;

/// A datagram that an endpoint has sent.
pub struct Sent {
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// The socket of an endpoint. The clones are the same socket.
#[derive(Clone)]
pub struct Wire {
    local: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    arrived: VecDeque<Datagram>,
    endpoint: Option<Waker>,
    sent: VecDeque<Sent>,
    world: Option<Waker>,
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Wire {
    pub fn new(local: SocketAddr) -> Wire {
        Wire { local, state: Arc::default() }
    }

    pub fn local(&self) -> SocketAddr {
        self.local
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers a datagram to the endpoint.
    pub fn deliver(&self, from: SocketAddr, bytes: &[u8]) {
        let mut state = self.state();
        state.arrived.push_back(Datagram { remote: from, local: None, ecn: None, bytes: bytes.into() });
        wake(&mut state.endpoint);
    }

    /// Waits for a datagram of the endpoint.
    pub fn poll_sent(&self, cx: &Context<'_>) -> Poll<Sent> {
        let mut state = self.state();
        if let Some(sent) = state.sent.pop_front() {
            return Poll::Ready(sent);
        }
        state.world = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn poll_receive(&self, cx: &Context<'_>) -> Poll<Datagram> {
        let mut state = self.state();
        if let Some(datagram) = state.arrived.pop_front() {
            return Poll::Ready(datagram);
        }
        state.endpoint = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn send(&self, transmit: &quinn_proto::Transmit, bytes: &[u8]) {
        let bytes = &bytes[..transmit.size];
        let mut state = self.state();
        for datagram in bytes.chunks(transmit.segment_size.unwrap_or(bytes.len()).max(1)) {
            state.sent.push_back(Sent { to: transmit.destination, bytes: datagram.to_vec() });
        }
        wake(&mut state.world);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_datagrams_are_split() {
        let wire = Wire::new(SocketAddr::from(([127, 0, 0, 1], 443)));
        let destination = SocketAddr::from(([127, 0, 0, 1], 5));
        let transmit =
            quinn_proto::Transmit { destination, ecn: None, size: 5, segment_size: Some(2), src_ip: None };
        wire.send(&transmit, b"abcdefg");
        let cx = Context::from_waker(Waker::noop());
        let next = || match wire.poll_sent(&cx) {
            Poll::Ready(sent) => Some((sent.to, sent.bytes)),
            Poll::Pending => None,
        };
        for piece in [&b"ab"[..], b"cd", b"e"] {
            assert_eq!(next(), Some((destination, piece.to_vec())));
        }
        assert_eq!(next(), None);
        wire.deliver(destination, b"x");
        assert!(wire.poll_receive(&cx).is_ready() && wire.poll_receive(&cx).is_pending());
    }
}
