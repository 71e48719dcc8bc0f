//! Divides a worker's address space when it is limited (`ulimit -v`, `LimitAS=`). Storage without a limit reserves a
//! range of addresses in advance, and the C library reserves a heap for each thread. Reserved addresses cost no
//! memory until they are used, but they count against `RLIMIT_AS`.

use std::fmt;

use lacquer_cli::link::AddressSpace;
use rustix::process::{Resource, getrlimit};

const MB: u64 = 1 << 20;
/// Bytes for the program's code, its heap, VCL stacks and short-lived threads.
const PROGRAM: u64 = 128 * MB;
/// Bytes for a thread's stack and its guard pages.
const THREAD: u64 = 2 * MB + MB / 4;
/// Threads that are not reactors.
const OTHER_THREADS: u64 = 6;
/// Size of one heap of the C library. It is cut from a range twice as large.
const HEAP: u64 = 128 * MB;
/// The smallest useful reservation for storage without a limit.
const MIN_RESERVE: u64 = 16 * MB;
/// Multiple of the machine's memory that is reserved when there is no limit, because free space may be fragmented.
const TIMES_MEMORY: u64 = 4;
const MAX_RESERVE: u64 = 1 << 40;
const PAGE: u64 = 4096;

/// The memory that a worker maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of the log.
    pub log: u64,
    /// Bytes of storage with a limit.
    pub storage: u64,
    /// Reactor threads.
    pub unlimited: u64,
    /// Threads that serve.
    pub reactors: u64,
}

/// The limit on the address space is too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLittle {
    limit: u64,
    least: u64,
    needs: Needs,
}

impl fmt::Display for TooLittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |bytes: u64| bytes.div_ceil(MB);
        write!(
            f,
            "Address space is limited to {} MB (RLIMIT_AS), but {} MB are needed, of which {} MB for storage (-s) and \
             {} MB for the log (vsl_space): raise the limit (ulimit -v, LimitAS=) or lower these",
            self.limit / MB,
            mb(self.least),
            mb(self.needs.storage),
            mb(self.needs.log)
        )
    }
}

impl Needs {
    /// Returns the bytes that every worker maps.
    fn fixed(&self) -> u64 {
        let threads = (self.reactors + OTHER_THREADS) * THREAD;
        [self.log, self.storage, threads].into_iter().fold(PROGRAM, u64::saturating_add)
    }

    /// Divides the address space under `limit`, on a machine with `memory` bytes. Half of the remainder is for heaps
    /// and half for storages without a limit.
    pub fn divide(&self, limit: Option<u64>, memory: u64) -> Result<AddressSpace, TooLittle> {
        let natural = (memory.saturating_mul(TIMES_MEMORY)).next_power_of_two().clamp(1 << 34, MAX_RESERVE);
        let Some(limit) = limit else { return Ok(AddressSpace { reserve: natural, heaps: None }) };
        let least = self.fixed().saturating_add(self.unlimited * MIN_RESERVE);
        if least > limit {
            return Err(TooLittle { limit, least, needs: *self });
        }
        let left = limit - self.fixed();
        let most_heaps = 8 * (self.reactors + OTHER_THREADS);
        let heaps = (left / 2 / HEAP).clamp(1, most_heaps);
        let share = (left / 2 / self.unlimited.max(1)).clamp(MIN_RESERVE, natural);
        Ok(AddressSpace { reserve: share - share % PAGE, heaps: Some(heaps as u32) })
    }
}

/// Returns the limit of this process, which workers inherit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns the machine's memory in bytes, swap included.
pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    let units = (info.totalram as u64).saturating_add(info.totalswap as u64);
    units.saturating_mul(u64::from(info.mem_unit.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;
    const DEFAULT: Needs = Needs { log: 80 * MB, storage: 100 * MB, unlimited: 1, reactors: 2 };

    #[test]
    fn the_reserve_follows_memory_without_a_limit() {
        let reserve = |memory| DEFAULT.divide(None, memory).unwrap().reserve;
        assert_eq!([GB, 30 * GB, 1 << 50].map(reserve), [16 * GB, 128 * GB, 1 << 40]);
        assert_eq!(DEFAULT.divide(None, GB).unwrap().heaps, None);
    }

    #[test]
    fn six_hundred_megabytes_are_enough() {
        for reactors in [1, 2, 8, 64] {
            for storage in [64 * MB, 100 * MB] {
                let needs = Needs { storage, reactors, ..DEFAULT };
                let space = needs.divide(Some(600 * MB), 8 * GB).unwrap();
                assert_eq!(space.heaps, Some(1));
                assert!(space.reserve >= 64 * MB, "{space:?}");
                assert!(needs.fixed() + space.reserve <= 600 * MB);
            }
        }
    }

    #[test]
    fn the_remainder_is_shared() {
        let needs = Needs { unlimited: 2, ..DEFAULT };
        let space = needs.divide(Some(4 * GB), 8 * GB).unwrap();
        assert!(needs.fixed() + 2 * space.reserve + u64::from(space.heaps.unwrap()) * HEAP <= 4 * GB);
        assert!(space.reserve > 500 * MB && space.heaps.unwrap() > 10, "{space:?}");
        assert_eq!(needs.divide(Some(1 << 50), 8 * GB).unwrap().reserve, 32 * GB);
    }

    #[test]
    fn the_error_names_the_needed_size() {
        let fault = DEFAULT.divide(Some(300 * MB), 8 * GB).unwrap_err().to_string();
        assert!(fault.contains("limited to 300 MB"), "{fault}");
        assert!(fault.contains("342 MB are needed"), "{fault}");
        let huge = Needs { storage: u64::MAX - 5, ..DEFAULT };
        assert!(huge.divide(Some(GB), 8 * GB).is_err());
    }
}
