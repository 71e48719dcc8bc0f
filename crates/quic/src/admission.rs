//! The treatment of new connections. A handshake takes from 0.1 ms to several milliseconds, and anybody can send first
//! packets from forged addresses: under load, only clients that have proved their address get one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use quinn_proto::Incoming;

use crate::handshakes::Handshake;

/// The time for handshakes between two rounds of other work.
const BUDGET: Duration = Duration::from_millis(1);
/// The number of handshakes above which clients have to prove their address.
const RETRY_ABOVE: usize = 32;
/// The maximum number of handshakes, of those with one network of clients, and of clients that wait for theirs. No network
/// can use all handshakes, and clients that have not proved their address cannot use all those of a network.
const HANDSHAKES: usize = 1024;
const OF_NETWORK: usize = 128;
const WAITING: usize = 256;

/// The load of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// The number of handshakes that wait or are in progress.
    pub handshakes: usize,
    /// The number of those with the network of the client.
    pub of_network: usize,
    /// The number of connections, and its limit.
    pub connections: usize,
    pub limit: usize,
    /// No connections are accepted any more.
    pub is_closing: bool,
}

/// The treatment of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    Accept,
    /// The client has to prove its address first.
    Retry,
    Refuse,
}

/// Decides about a client by the load, and by the number of clients that wait.
pub fn treatment(load: &Load, waiting: usize, is_validated: bool) -> Treatment {
    if load.is_closing {
        return Treatment::Refuse;
    }
    if !is_validated && (load.handshakes >= RETRY_ABOVE || waiting >= RETRY_ABOVE) {
        return Treatment::Retry;
    }
    let is_full = load.connections + waiting >= load.limit;
    let has_too_many = load.handshakes >= HANDSHAKES || load.of_network >= OF_NETWORK;
    if is_full || has_too_many || waiting >= WAITING {
        return Treatment::Refuse;
    }
    Treatment::Accept
}

/// The clients that wait for their handshake.
#[derive(Default)]
pub struct Queue {
    waiting: VecDeque<(Incoming, Handshake)>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn push(&mut self, incoming: Incoming, handshake: Handshake) {
        self.waiting.push_back((incoming, handshake));
    }

    pub fn pop(&mut self) -> Option<(Incoming, Handshake)> {
        self.waiting.pop_front()
    }
}

/// The share of handshakes in one round.
pub struct Turn(Instant);

impl Turn {
    pub fn begin(now: Instant) -> Turn {
        Turn(now)
    }

    /// Returns whether other work is due.
    pub fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.0) >= BUDGET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_addresses_get_no_handshake_under_load() {
        let idle = Load { limit: 1000, ..Load::default() };
        let busy = Load { handshakes: RETRY_ABOVE, ..idle };
        let full = Load { connections: 1000, ..idle };
        let flooded = Load { handshakes: HANDSHAKES, ..idle };
        let crowded = Load { handshakes: OF_NETWORK, of_network: OF_NETWORK, ..idle };
        let closing = Load { is_closing: true, ..idle };
        for (load, waiting, is_validated, expected) in [
            (idle, 0, false, Treatment::Accept),
            (idle, RETRY_ABOVE, false, Treatment::Retry),
            (idle, RETRY_ABOVE, true, Treatment::Accept),
            (idle, WAITING, true, Treatment::Refuse),
            (busy, 0, false, Treatment::Retry),
            (busy, 0, true, Treatment::Accept),
            (flooded, 0, false, Treatment::Retry),
            (flooded, 0, true, Treatment::Refuse),
            (crowded, 0, false, Treatment::Retry),
            (crowded, 0, true, Treatment::Refuse),
            (full, 0, false, Treatment::Refuse),
            (closing, 0, false, Treatment::Refuse),
        ] {
            assert_eq!(
                treatment(&load, waiting, is_validated),
                expected,
                "{load:?} {waiting} {is_validated}"
            );
        }
    }
}
