//! Transaction ids.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lacquer_shm::Vxid;
use lacquer_storage::Stevedore;

/// The source of the worker's transaction ids. Reactors take ids in chunks, so that they do not contend for one
/// counter. A storage that outlives the worker ([`Stevedore::keeper`]) records the number of chunks, so that the next
/// worker does not use the same ids again, by which readers group the records of the log.
pub struct Vxids {
    next: AtomicU64,
    exact: AtomicBool,
    keeper: Option<Stevedore>,
}

const CHUNK: u64 = 1 << 15;

impl Vxids {
    pub fn new(stevedores: &[Stevedore]) -> Vxids {
        let keeper = Stevedore::keeper(stevedores).cloned();
        let used = keeper.as_ref().map_or(0, Stevedore::serial);
        Vxids { next: AtomicU64::new(u64::from(used) * CHUNK + 1), exact: AtomicBool::new(false), keeper }
    }

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
            next = self.take_chunk();
            end = next + CHUNK;
        }
        chunk.set((next + 1, end));
        next
    }

    #[cold]
    fn take_chunk(&self) -> u64 {
        let next = self.next.fetch_add(CHUNK, Ordering::Relaxed);
        if let Some(keeper) = &self.keeper {
            keeper.raise_serial(u32::try_from(next.div_ceil(CHUNK)).unwrap_or(u32::MAX));
        }
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

#[cfg(test)]
mod tests {
    use lacquer_storage::{Kind, UnusedFiles};

    use super::*;

    #[test]
    fn the_next_worker_uses_other_ids() {
        let mut arena = UnusedFiles::new().and_then(|files| files.open(1 << 20)).expect("memory");
        let mut last = 0;
        for _ in 0..3 {
            let store = Stevedore::new("s0", Kind::Malloc, 0, arena.clone());
            let ids = Vxids::new(&[store]);
            let chunks = [Cell::new((0, 0)), Cell::new((0, 0))];
            let first = ids.take(&chunks[0]);
            assert!(first > last, "{first} after {last}");
            for n in 0..CHUNK * 3 {
                last = last.max(ids.take(&chunks[usize::from(n % 3 == 0)]));
            }
            arena = arena.copy_files().and_then(|files| files.open(1 << 20)).expect("memory");
        }
        assert!(last < CHUNK * 20, "{last}");
    }

    #[test]
    fn ids_begin_with_one_if_no_storage_outlives_the_worker() {
        assert_eq!(Vxids::new(&[]).take(&Cell::new((0, 0))), 1);
    }
}
