//! The recent outcomes of fetches from an origin, by which directors avoid origins that fail or are slow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Share of a new time in the mean, as a power of two.
const SHARE: u32 = 3;

/// The failures without a good response between them, and the mean time until a response begins.
#[derive(Debug, Default)]
pub struct Outcomes {
    failures: AtomicU32,
    microseconds: AtomicU32,
}

impl Outcomes {
    /// Records a response and the microseconds until its head was complete. A status of 500 or above is a failure. If two
    /// reactors record at the same time, one of the times may be lost.
    #[inline]
    pub fn responded(&self, status: u16, microseconds: u64) {
        if status >= 500 {
            self.failed();
        } else if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let (mean, new) =
            (self.microseconds.load(Ordering::Relaxed), u32::try_from(microseconds).unwrap_or(u32::MAX));
        // The first time is the mean.
        let next = if mean == 0 { new } else { mean - (mean >> SHARE) + (new >> SHARE) };
        self.microseconds.store(next, Ordering::Relaxed);
    }

    /// Records that there was no response.
    pub fn failed(&self) {
        let more = |failures: u32| Some(failures.saturating_add(1));
        let _ = self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Returns the number of failures since the last good response.
    pub fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the mean time until a response begins; zero if there was none.
    pub fn latency(&self) -> Duration {
        Duration::from_micros(self.microseconds.load(Ordering::Relaxed).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_end_with_a_good_response_and_times_are_averaged() {
        let outcomes = Outcomes::default();
        outcomes.failed();
        outcomes.responded(503, 1000);
        assert_eq!((outcomes.failures(), outcomes.latency()), (2, Duration::from_millis(1)));
        outcomes.responded(404, 9000);
        assert_eq!((outcomes.failures(), outcomes.latency()), (0, Duration::from_millis(2)));
        for _ in 0..100 {
            outcomes.responded(200, u64::MAX);
        }
        assert!(outcomes.latency() > Duration::from_mins(70));
        outcomes.responded(200, 0);
        assert!(outcomes.latency() < Duration::from_mins(70));
    }
}
