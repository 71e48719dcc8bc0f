//! Datagrams that arrive at a reactor other than that of their connection: after a client has changed its address, or
//! the number of sockets has changed, or from the next worker.

use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The number of datagrams that wait for a reactor. The others are lost, which clients handle.
const WAITING: usize = 1024;

/// A received datagram.
pub struct Datagram {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
    pub ecn: Option<EcnCodepoint>,
    pub bytes: BytesMut,
}

/// Passes datagrams to the reactors that their connection ids name.
#[derive(Clone)]
pub struct Forwarder {
    reactors: Vec<Sender<Datagram>>,
}

/// The datagrams for a reactor that others have received.
pub struct Forwarded(Receiver<Datagram>);

impl Forwarder {
    /// Creates the queues of this number of reactors.
    pub fn new(reactors: usize) -> (Forwarder, Vec<Forwarded>) {
        let (reactors, queues) = (0..reactors).map(|_| channel(WAITING)).unzip::<_, _, _, Vec<_>>();
        (Forwarder { reactors }, queues.into_iter().map(Forwarded).collect())
    }

    /// Returns whether there is a reactor with this number.
    pub fn has(&self, reactor: u8) -> bool {
        usize::from(reactor) < self.reactors.len()
    }

    /// Passes a datagram to a reactor. It is lost if the reactor has too many.
    pub fn pass(&self, reactor: u8, datagram: Datagram) {
        if let Some(queue) = self.reactors.get(usize::from(reactor)) {
            let _ = queue.try_send(datagram);
        }
    }
}

impl Forwarded {
    /// Returns the next datagram. Registers the task to be woken if there is none.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Option<Datagram> {
        match self.0.poll_recv(cx) {
            Poll::Ready(datagram) => datagram,
            Poll::Pending => None,
        }
    }
}
