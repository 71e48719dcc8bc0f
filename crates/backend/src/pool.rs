//! Idle connections towards origins, one shelf for each reactor.
//!
//! A reactor takes from its own shelf, which nobody else wants, so that its lock is never waited for. Only
//! when that is empty does it look at the others': a connection is dearer than a lock. The last one put
//! back is taken first: it is the least likely to have been closed by the origin meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::connection::Connection;
use crate::endpoint::Endpoint;

/// A connection that may be used again.
struct Pooled {
    connection: Connection,
    reactor: usize,
    since: Instant,
}

#[derive(Default)]
struct Shelf {
    idle: HashMap<u64, Idle>,
}

/// The idle connections to one endpoint. When no backend has it any more they go too.
struct Idle {
    endpoint: Weak<Endpoint>,
    connections: Vec<Pooled>,
}

impl Shelf {
    fn take(&mut self, endpoint: u64) -> Option<Pooled> {
        self.idle.get_mut(&endpoint)?.connections.pop()
    }
}

/// The idle connections of all reactors.
pub struct Pools {
    shelves: Vec<Mutex<Shelf>>,
    /// Found closed by the peer when they were wanted, since the last sweep.
    lost: AtomicU64,
}

impl Pools {
    pub fn new(reactors: usize) -> Pools {
        Pools {
            shelves: (0..reactors).map(|_| Mutex::new(Shelf::default())).collect(),
            lost: AtomicU64::new(0),
        }
    }

    /// An idle connection to the endpoint that still looks alive.
    pub fn take(&self, reactor: usize, endpoint: u64) -> Option<Connection> {
        let n = self.shelves.len();
        for i in 0..n {
            let shelf = &self.shelves[(reactor + i) % n];
            loop {
                let Some(found) = shelf.lock().take(endpoint) else { break };
                if found.connection.rx.has_event() {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                if found.reactor == reactor {
                    return Some(found.connection);
                }
                if let Some(moved) = found.connection.rebind() {
                    return Some(moved);
                }
            }
        }
        None
    }

    /// Keeps a connection for the next who wants one, on the shelf of the reactor it is registered with.
    pub fn put(&self, reactor: usize, endpoint: &Arc<Endpoint>, connection: Connection) {
        let entry = Pooled { connection, reactor, since: Instant::now() };
        let mut shelf = self.shelves[reactor].lock();
        let new = || Idle { endpoint: Arc::downgrade(endpoint), connections: Vec::new() };
        shelf.idle.entry(endpoint.id).or_insert_with(new).connections.push(entry);
    }

    /// Closes what the peer closed, what was idle for longer than `limit` seconds and what nobody can use;
    /// how many of the first kind, and of the others.
    pub fn sweep(&self, reactor: usize, limit: f64) -> (u64, u64) {
        let (mut gone, mut old) = (self.lost.swap(0, Ordering::Relaxed), 0);
        let limit = Duration::from_secs_f64(limit.clamp(0.0, 1e9));
        let mut shelf = self.shelves[reactor].lock();
        shelf.idle.retain(|_, idle| {
            let useless = idle.endpoint.strong_count() == 0;
            idle.connections.retain(|c| {
                let is_gone = c.connection.rx.has_event();
                let is_old = useless || c.since.elapsed() >= limit;
                gone += u64::from(is_gone);
                old += u64::from(is_old && !is_gone);
                !is_gone && !is_old
            });
            !idle.connections.is_empty()
        });
        (gone, old)
    }

    /// How many connections are kept, on all shelves.
    pub fn idle(&self) -> usize {
        self.shelves
            .iter()
            .map(|s| s.lock().idle.values().map(|idle| idle.connections.len()).sum::<usize>())
            .sum()
    }
}
