//! Counters and gauges of the cache, with the names that Varnish has for them in MAIN.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($name:ident),* $(,)?) => {
        /// The counters. The publisher of counters reads them.
        #[derive(Debug, Default)]
        pub struct CacheStats {
            $(pub $name: AtomicU64,)*
        }

        impl CacheStats {
            /// Returns all counters with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                [$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*].into_iter()
            }
        }
    };
}

stats! {
    n_object, n_objectcore, n_objecthead,
    n_expired, n_superseded, n_lru_nuked, n_lru_moved, n_lru_limited,
    n_purges, n_obj_purged, exp_mailed, exp_received,
    busy_sleep, busy_wakeup,
    bans, bans_completed, bans_obj, bans_req, bans_added, bans_deleted,
    bans_tested, bans_obj_killed, bans_lurker_tested, bans_tests_tested,
    bans_lurker_tests_tested, bans_lurker_obj_killed, bans_lurker_obj_killed_cutoff,
    bans_dups, bans_lurker_contention, bans_persisted_bytes, bans_persisted_fragmentation,
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(crate) fn sub(counter: &AtomicU64, n: u64) {
    counter.fetch_sub(n, Ordering::Relaxed);
}
