//! The storages by number, their counters in shared memory, and the choice of the default storage.

use std::sync::atomic::{AtomicU32, Ordering};

use lacquer_shm::vsc::Sma;
use lacquer_shm::{Segment, VsmDir};
use lacquer_storage::Stevedore;

const PREFIX: &str = "storage.";

pub struct Stevedores {
    all: Vec<Stevedore>,
    counters: Vec<Option<Segment<Sma>>>,
    turn: AtomicU32,
}

impl Stevedores {
    /// Creates the table and its counters. The last storage must be Transient.
    pub fn new(all: Vec<Stevedore>, vsm: &VsmDir) -> Stevedores {
        let counters = all.iter().map(|stevedore| Segment::create(vsm, stevedore.name()).ok()).collect();
        Stevedores { all, counters, turn: AtomicU32::new(0) }
    }

    pub fn all(&self) -> &[Stevedore] {
        &self.all
    }

    pub fn get(&self, index: u32) -> Option<&Stevedore> {
        self.all.get(index as usize)
    }

    /// Returns the number of the storage with this name, with or without VCL's prefix.
    pub fn by_name(&self, name: &str) -> Option<u32> {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        self.all.iter().position(|s| s.name() == name).map(|i| i as u32)
    }

    /// Returns the number of Transient, which is always the last.
    pub fn transient(&self) -> u32 {
        self.all.len().saturating_sub(1) as u32
    }

    /// Returns the next of the configured storages, by round robin.
    pub fn next(&self) -> u32 {
        let n = self.transient();
        if n <= 1 { 0 } else { self.turn.fetch_add(1, Ordering::Relaxed) % n }
    }

    /// Copies the storages' counters into shared memory.
    pub fn publish(&self) {
        for (stevedore, segment) in self.all.iter().zip(&self.counters) {
            let Some(to) = segment else { continue };
            let from = stevedore.counters();
            let get = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
            to.c_req.set(get(&from.c_req));
            to.c_fail.set(get(&from.c_fail));
            to.c_bytes.set(get(&from.c_bytes));
            to.c_freed.set(get(&from.c_freed));
            to.g_alloc.set(get(&from.g_alloc));
            to.g_bytes.set(get(&from.g_bytes));
            to.g_space.set(get(&from.g_space));
        }
    }
}
