//! Transaction numbers.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lacquer_shm::Vxid;

/// The numbers of the whole worker. Reactors take them in chunks so that they do not meet at one counter.
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
    /// From now on numbers are given one by one, in order, starting here (`debug.xid`).
    pub fn restart_at(&self, next: u64) {
        self.exact.store(true, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
    }

    /// The next number for a reactor that holds `chunk` (first unused, end).
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

/// A transaction's number with its side, as modules give it.
pub fn vxid_of(raw: u64) -> Vxid {
    let client = Vxid::client(raw);
    match raw {
        0 => Vxid::NONE,
        _ if raw == client.raw() => client,
        _ => Vxid::backend(raw),
    }
}
