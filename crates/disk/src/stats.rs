//! Counters of a store.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Stats {
            /// Counts one event.
            pub fn count(counter: &AtomicU64) {
                bump(counter);
            }

            /// Returns all counters with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Objects that were written, and their bytes.
    written, written_bytes,
    /// Bytes written to the device, with everything.
    device_written_bytes,
    /// Objects that were written again because they were in use when their segment was needed.
    moved,
    /// Objects that were not accepted because too many waited to be written.
    refused,
    /// Objects that were not accepted because they were requested once.
    postponed,
    /// Objects that were removed because their segment was needed.
    evicted,
    /// Reads from the device, and their bytes.
    reads, read_bytes,
    /// Objects that were sent from the memory of their read.
    lent,
    /// Objects whose checksum was wrong.
    damaged,
    /// Segments that could not be read, so that their objects were lost.
    lost,
    /// Reads, and writes and flushes, that failed.
    read_errors, write_errors,
    /// Reads, writes and flushes that took more than a second.
    slow,
    /// Purges and bans in the journal, and the groups in which they were written.
    journaled, journal_groups,
    /// Objects that were found at start.
    recovered,
    /// Segments that could not be used because responses were being sent from them.
    pinned,
    /// Times at which the contents were dropped because the journal was full of live records, or damaged.
    cleared,
}

pub(crate) fn bump(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}
