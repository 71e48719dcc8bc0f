//! Balances connections: counts those of each reactor, and moves accepted connections to other reactors.
//!
//! The reactor that wakes first accepts all connections that wait. If it kept them, a burst of clients that stay
//! connected would occupy one reactor, and the other cores would be idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_backend::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::session::Listener;

/// All reactors of the worker.
pub struct ConnectionBalancer {
    members: Vec<Member>,
}

/// A reactor's count. It has a cache line of its own, because other cores write its neighbours.
#[repr(align(128))]
struct Member {
    connections: AtomicUsize,
    arrivals: UnboundedSender<Arrival>,
}

/// An accepted connection on its way to the reactor that serves it.
pub struct Arrival {
    pub stream: Stream,
    pub listener: Arc<Listener>,
    pub lease: ConnectionLease,
}

/// One of a reactor's connections, counted for as long as this lives.
pub struct ConnectionLease {
    balancer: Arc<ConnectionBalancer>,
    pub reactor: usize,
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.balancer.members[self.reactor].connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionBalancer {
    /// Returns a balancer for so many reactors, and the queue from which each receives connections.
    pub fn new(reactors: usize) -> (Arc<ConnectionBalancer>, Vec<UnboundedReceiver<Arrival>>) {
        let mut ends = Vec::with_capacity(reactors);
        let members = (0..reactors).map(|_| {
            let (arrivals, end) = unbounded_channel();
            ends.push(end);
            Member { connections: AtomicUsize::new(0), arrivals }
        });
        let balancer = ConnectionBalancer { members: members.collect() };
        (Arc::new(balancer), ends)
    }

    /// Chooses the reactor for a connection that `own` has accepted: `own`, unless another has clearly fewer.
    pub fn lease(self: &Arc<ConnectionBalancer>, own: usize) -> ConnectionLease {
        let count = |id: usize| self.members[id].connections.load(Ordering::Relaxed);
        let idlest = (0..self.members.len()).min_by_key(|&id| count(id)).unwrap_or(own);
        let least = count(idlest);
        let reactor = if count(own) <= least + 1 + least / 8 { own } else { idlest };
        self.members[reactor].connections.fetch_add(1, Ordering::Relaxed);
        ConnectionLease { balancer: self.clone(), reactor }
    }

    /// Hands a connection to the reactor that its lease names, which lives as long as the process.
    pub fn send(&self, arrival: Arrival) {
        let _ = self.members[arrival.lease.reactor].arrivals.send(arrival);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(balancer: &ConnectionBalancer) -> Vec<usize> {
        balancer.members.iter().map(|member| member.connections.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_burst_that_one_accepts_is_shared() {
        let (balancer, _ends) = ConnectionBalancer::new(4);
        let leases: Vec<ConnectionLease> = (0..400).map(|_| balancer.lease(2)).collect();
        let (least, most) = (counts(&balancer).into_iter().min(), counts(&balancer).into_iter().max());
        assert!(least >= Some(90) && most <= Some(115), "{:?}", counts(&balancer));
        drop(leases);
        assert_eq!(counts(&balancer), [0; 4]);
    }

    #[test]
    fn what_is_nearly_even_stays_where_it_was_accepted() {
        let (balancer, _ends) = ConnectionBalancer::new(2);
        let _kept: Vec<ConnectionLease> = (0..200).map(|i| balancer.lease(i % 2)).collect();
        let placed = [0, 0, 0, 1, 1].map(|own| balancer.lease(own));
        assert_eq!(placed.map(|lease| lease.reactor), [0, 0, 0, 1, 1]);
    }
}
