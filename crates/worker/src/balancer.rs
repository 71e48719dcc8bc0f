//! The balancer of connections: counts the connections of each reactor, and assigns each new connection to the
//! reactor with the lowest load.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use lacquer_net::Listener;
use lacquer_quic::Seed;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::udp_handover::Order;

/// The weight of a connection that a reactor has not taken yet, relative to one that it serves. Untaken connections
/// indicate that the reactor is busy with long work.
const WEIGHT_OF_WAITING: usize = 8;

/// Maximum time for the next reactor to publish its counts.
const PUBLISHING: Duration = Duration::from_millis(100);

/// The load of all reactors of the worker.
pub struct ConnectionBalancer {
    members: Vec<ReactorLoad>,
}

/// The load of a reactor. It is aligned, because other cores write the neighboring ones.
#[repr(align(128))]
struct ReactorLoad {
    connections: AtomicUsize,
    /// The number of these connections that wait for the reactor to take them.
    waiting: AtomicUsize,
    arrivals: UnboundedSender<Arrival>,
}

impl ReactorLoad {
    fn load(&self) -> usize {
        let waiting = self.waiting.load(Ordering::Relaxed);
        self.connections.load(Ordering::Relaxed) + waiting * WEIGHT_OF_WAITING
    }
}

/// A connection as accepted from the kernel.
pub struct Accepted {
    pub fd: OwnedFd,
    pub listener: Arc<Listener>,
}

/// A UDP socket of a reactor, on which its clients of HTTP/3 arrive.
pub struct Datagrams {
    pub seed: Seed,
    pub listener: Arc<Listener>,
    pub orders: UnboundedReceiver<Order>,
}

/// A connection, a socket or a request that is sent to its reactor.
pub enum Arrival {
    Connection(Accepted, ConnectionLease),
    Datagrams(Box<Datagrams>, LeaseOffice),
    /// Publish the counts, and reply.
    PublishCounts(Sender<()>),
}

/// Counts the connections that a reactor has accepted itself.
pub struct LeaseOffice {
    balancer: Arc<ConnectionBalancer>,
    reactor: usize,
}

impl LeaseOffice {
    /// Counts a connection.
    pub fn lease(&self) -> ConnectionLease {
        let lease = ConnectionLease { balancer: self.balancer.clone(), reactor: self.reactor };
        lease.member().connections.fetch_add(1, Ordering::Relaxed);
        lease
    }
}

/// The assignment of a connection to a reactor. Dropping it uncounts the connection.
pub struct ConnectionLease {
    balancer: Arc<ConnectionBalancer>,
    reactor: usize,
}

impl ConnectionLease {
    fn member(&self) -> &ReactorLoad {
        &self.balancer.members[self.reactor]
    }

    /// Records that the reactor has taken the connection.
    pub fn take(&self) {
        self.member().waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.member().connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionBalancer {
    /// Creates a balancer for this number of reactors. Also returns the queue from which each receives connections.
    pub fn new(reactors: usize) -> (Arc<ConnectionBalancer>, Vec<UnboundedReceiver<Arrival>>) {
        let mut ends = Vec::with_capacity(reactors);
        let members = (0..reactors).map(|_| {
            let (arrivals, end) = unbounded_channel();
            ends.push(end);
            ReactorLoad { connections: AtomicUsize::new(0), waiting: AtomicUsize::new(0), arrivals }
        });
        let balancer = ConnectionBalancer { members: members.collect() };
        (Arc::new(balancer), ends)
    }

    /// Assigns a connection to the reactor with the lowest load.
    fn lease(self: &Arc<ConnectionBalancer>) -> ConnectionLease {
        let reactor = (0..self.members.len()).min_by_key(|&id| self.members[id].load()).unwrap_or(0);
        let lease = ConnectionLease { balancer: self.clone(), reactor };
        lease.member().connections.fetch_add(1, Ordering::Relaxed);
        lease.member().waiting.fetch_add(1, Ordering::Relaxed);
        lease
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.members.iter().map(|member| member.connections.load(Ordering::Relaxed)).sum()
    }

    /// Sends a connection to the reactor with the lowest load. Reactors live as long as the process.
    pub fn send(self: &Arc<ConnectionBalancer>, accepted: Accepted) {
        let lease = self.lease();
        let arrivals = &self.members[lease.reactor].arrivals;
        let _ = arrivals.send(Arrival::Connection(accepted, lease));
    }

    /// Lets all reactors publish their counts. Does not wait for one that is stuck.
    pub fn publish_counts(&self) {
        let (done, replies) = channel();
        let asked =
            self.members.iter().map(|member| member.arrivals.send(Arrival::PublishCounts(done.clone())));
        let asked = asked.flatten().count();
        for _ in 0..asked {
            if replies.recv_timeout(PUBLISHING).is_err() {
                return;
            }
        }
    }

    /// Returns the office of a reactor.
    pub fn office(self: &Arc<ConnectionBalancer>, reactor: usize) -> LeaseOffice {
        LeaseOffice { balancer: self.clone(), reactor }
    }

    /// Sends a socket to its reactor.
    pub fn send_socket(self: &Arc<ConnectionBalancer>, reactor: usize, datagrams: Datagrams) {
        if let Some(member) = self.members.get(reactor) {
            let office = self.office(reactor);
            let _ = member.arrivals.send(Arrival::Datagrams(Box::new(datagrams), office));
        }
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
    fn a_burst_is_distributed_evenly() {
        let (balancer, _ends) = ConnectionBalancer::new(4);
        let leases: Vec<ConnectionLease> = (0..400).map(|_| balancer.lease()).collect();
        assert_eq!(counts(&balancer), [100; 4]);
        drop(leases);
        assert_eq!(counts(&balancer), [0; 4]);
    }

    #[test]
    fn a_stalled_reactor_gets_few_connections() {
        let (balancer, _ends) = ConnectionBalancer::new(2);
        let mut leases = Vec::new();
        for _ in 0..100 {
            let lease = balancer.lease();
            leases.push(if lease.reactor == 0 { lease } else { taken(lease) });
        }
        assert!(counts(&balancer)[0] < 15, "{:?}", counts(&balancer));
    }
}
