//! Transaction numbers.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lacquer_shm::Vxid;

/// The transaction numbers of the worker. Reactors take them in chunks, so that they do not contend for one counter.
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
    /// Gives out numbers one by one, in order, starting here (`debug.xid`).
    pub fn restart_at(&self, next: u64) {
        self.exact.store(true, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
    }

    /// Returns the next number for a reactor that holds `chunk` (first unused, end).
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

/// Returns a transaction's number with its side, from the form that modules use.
pub fn vxid_of(raw: u64) -> Vxid {
    let client = Vxid::client(raw);
    match raw {
        0 => Vxid::NONE,
        _ if raw == client.raw() => client,
        _ => Vxid::backend(raw),
    }
}
