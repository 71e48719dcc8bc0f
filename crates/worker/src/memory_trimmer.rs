//! Returns memory to the system after a peak: free blocks of the heap, and free pages of the storages. This is
//! checked every few seconds on a helper thread, and done only if much is free, so that it costs nothing under a
//! steady load.

use std::time::Duration;

use lacquer_sources::clock::Instant;
use lacquer_storage::Kind;

use crate::process::Process;

/// The time between two checks.
const INTERVAL: Duration = Duration::from_secs(5);
/// The smallest number of free bytes that justifies the locks and the page faults.
const MIN_FREE: u64 = 8 << 20;

/// Tracks memory that is free now and was free at the last check.
pub struct MemoryTrimmer {
    last: Instant,
    /// The smallest number of free heap bytes since the heap was trimmed. Bytes beyond it were freed later.
    heap: u64,
    /// The number of bytes of each storage that were resident and not in use at the last check.
    storages: Vec<u64>,
}

impl MemoryTrimmer {
    pub fn new(process: &Process) -> MemoryTrimmer {
        MemoryTrimmer {
            last: Instant::now(),
            heap: 0,
            storages: vec![0; process.shared().stevedores().all().len()],
        }
    }

    /// Returns memory to the system, if a check is due. Cheap otherwise.
    pub fn trim_if_due(&mut self, process: &Process) {
        if self.last.elapsed() < INTERVAL {
            return;
        }
        self.last = Instant::now();
        if heap_is_due(&mut self.heap, lacquer_system::free_heap() as u64) {
            lacquer_system::trim_heap();
        }
        for (stevedore, before) in process.shared().stevedores().all().iter().zip(&mut self.storages) {
            // Punching holes in a file on a disk would free space that the manager has reserved there.
            if stevedore.kind() != Kind::Malloc {
                continue;
            }
            let now = stevedore.surplus();
            if storage_is_due(*before, now, stevedore.used_space(), stevedore.limit()) {
                stevedore.return_free_pages();
            }
            *before = now;
        }
    }
}

/// Returns whether trimming the heap is worthwhile. A trim does not change the number of free bytes, so bytes that
/// were free then do not count again.
fn heap_is_due(floor: &mut u64, free: u64) -> bool {
    let due = free > floor.saturating_add(MIN_FREE);
    *floor = if due { free } else { free.min(*floor) };
    due
}

/// Returns whether a storage has much free memory that it will not need soon: the memory was free at the last check
/// too, and a limited storage is not nearly full.
fn storage_is_due(before: u64, now: u64, used: u64, limit: Option<u64>) -> bool {
    let has_room = limit.is_none_or(|limit| limit.saturating_sub(used) >= limit / 4);
    before.min(now) >= MIN_FREE && has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_once_after_each_peak() {
        const MB: u64 = 1 << 20;
        let mut floor = 0;
        let steps = [
            (7, false),
            (20, true),
            (20, false),
            (25, false),
            (40, true),
            (30, false),
            (37, false),
            (39, true),
        ];
        for (free, due) in steps {
            assert_eq!(heap_is_due(&mut floor, free * MB), due, "{free} MB are free");
        }
    }

    #[test]
    fn a_storage_returns_memory_that_stays_free() {
        const MB: u64 = 1 << 20;
        let cases = [
            (100, 100, 0, None, true),
            (0, 100, 0, None, false),
            (100, 4, 0, None, false),
            (30, 30, 64, Some(100), true),
            (30, 30, 80, Some(100), false),
        ];
        for (before, now, used, limit, due) in cases {
            let limit = limit.map(|limit| limit * MB);
            assert_eq!(storage_is_due(before * MB, now * MB, used * MB, limit), due, "{before} {now} {used}");
        }
    }
}
