//! Balances connections: counts those of each reactor, and gives each new one to the reactor with the least to do.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_net::Listener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A connection that a reactor has not yet taken weighs as much as so many that it serves: the reactor is at long work.
const WEIGHT_OF_WAITING: usize = 8;

/// All reactors of the worker.
pub struct ConnectionBalancer {
    members: Vec<Member>,
}

/// A reactor's counts. They have a cache line of their own, because other cores write its neighbours.
#[repr(align(128))]
struct Member {
    connections: AtomicUsize,
    /// Those of the connections that wait for the reactor to take them.
    waiting: AtomicUsize,
    arrivals: UnboundedSender<Arrival>,
}

impl Member {
    fn load(&self) -> usize {
        let waiting = self.waiting.load(Ordering::Relaxed);
        self.connections.load(Ordering::Relaxed) + waiting * WEIGHT_OF_WAITING
    }
}

/// A connection as the kernel gave it.
pub struct Accepted {
    pub fd: OwnedFd,
    pub listener: Arc<Listener>,
}

/// An accepted connection on its way to the reactor that serves it.
pub struct Arrival {
    accepted: Accepted,
    lease: ConnectionLease,
}

impl Arrival {
    /// Returns the connection to the reactor that serves it from now on.
    pub fn take(self) -> (Accepted, ConnectionLease) {
        self.lease.member().waiting.fetch_sub(1, Ordering::Relaxed);
        (self.accepted, self.lease)
    }
}

/// One of a reactor's connections, counted for as long as this lives.
pub struct ConnectionLease {
    balancer: Arc<ConnectionBalancer>,
    reactor: usize,
}

impl ConnectionLease {
    fn member(&self) -> &Member {
        &self.balancer.members[self.reactor]
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.member().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionBalancer {
    /// Returns a balancer for so many reactors, and the queue from which each receives connections.
    pub fn new(reactors: usize) -> (Arc<ConnectionBalancer>, Vec<UnboundedReceiver<Arrival>>) {
        let mut ends = Vec::with_capacity(reactors);
        let members = (0..reactors).map(|_| {
            let (arrivals, end) = unbounded_channel();
            ends.push(end);
            Member { connections: AtomicUsize::new(0), waiting: AtomicUsize::new(0), arrivals }
        });
        let balancer = ConnectionBalancer { members: members.collect() };
        (Arc::new(balancer), ends)
    }

    /// Counts a connection of the reactor with the least to do.
    fn lease(self: &Arc<ConnectionBalancer>) -> ConnectionLease {
        let reactor = (0..self.members.len()).min_by_key(|&id| self.members[id].load()).unwrap_or(0);
        let lease = ConnectionLease { balancer: self.clone(), reactor };
        lease.member().connections.fetch_add(1, Ordering::Relaxed);
        lease.member().waiting.fetch_add(1, Ordering::Relaxed);
        lease
    }

    /// Gives a connection to the reactor with the least to do. Reactors live as long as the process.
    pub fn send(self: &Arc<ConnectionBalancer>, accepted: Accepted) {
        let lease = self.lease();
        let arrivals = &self.members[lease.reactor].arrivals;
        let _ = arrivals.send(Arrival { accepted, lease });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(balancer: &ConnectionBalancer) -> Vec<usize> {
        balancer.members.iter().map(|member| member.connections.load(Ordering::Relaxed)).collect()
    }

    fn taken(lease: ConnectionLease) -> ConnectionLease {
        lease.member().waiting.fetch_sub(1, Ordering::Relaxed);
        lease
    }

    #[test]
    fn a_burst_is_shared() {
        let (balancer, _ends) = ConnectionBalancer::new(4);
        let leases: Vec<ConnectionLease> = (0..400).map(|_| balancer.lease()).collect();
        assert_eq!(counts(&balancer), [100; 4]);
        drop(leases);
        assert_eq!(counts(&balancer), [0; 4]);
    }

    #[test]
    fn a_reactor_that_takes_none_gets_few() {
        let (balancer, _ends) = ConnectionBalancer::new(2);
        let mut leases = Vec::new();
        for _ in 0..100 {
            let lease = balancer.lease();
            leases.push(if lease.reactor == 0 { lease } else { taken(lease) });
        }
        assert!(counts(&balancer)[0] < 15, "{:?}", counts(&balancer));
    }
}
