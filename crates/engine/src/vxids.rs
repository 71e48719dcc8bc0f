//! Transaction ids.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lacquer_shm::Vxid;

/// The source of the worker's transaction ids. Reactors take ids in chunks, so that they do not contend for one
/// counter.
pub struct Vxids {
    next: AtomicU64,
    exact: AtomicBool,
}

const CHUNK: u64 = 1 << 15;

impl Default for Vxids {
    fn default() -> Self {
        Vxids { next: AtomicU64::new(1), exact: AtomicBool::new(false) }
    }
}

impl Vxids {
    /// From now on, returns consecutive ids starting at `next` (`debug.xid`).
    pub fn restart_at(&self, next: u64) {
        self.exact.store(true, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
    }

    /// Returns the next id for a reactor that holds `chunk` (first unused id, end).
    pub fn take(&self, chunk: &Cell<(u64, u64)>) -> u64 {
        if self.exact.load(Ordering::Relaxed) {
            return self.next.fetch_add(1, Ordering::Relaxed);
        }
        let (mut next, mut end) = chunk.get();
        if next == end {
            next = self.next.fetch_add(CHUNK, Ordering::Relaxed);
            end = next + CHUNK;
        }
        chunk.set((next + 1, end));
        next
    }

    pub fn peek(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }
}

/// Converts a transaction id from the form that VMODs use.
pub fn vxid_of(raw: u64) -> Vxid {
    let client = Vxid::client(raw);
    match raw {
        0 => Vxid::NONE,
        _ if raw == client.raw() => client,
        _ => Vxid::backend(raw),
    }
}
