//! The recent outcomes of fetches from an origin, by which directors avoid origins that fail or are slow.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;
use parking_lot::Mutex;

/// Share of a new time in the mean, as a power of two.
const SHARE: u32 = 3;

/// The time for which other origins are preferred after a failure to connect.
const FIRST_SETBACK: Duration = Duration::from_secs(1);
/// The same after many failures in a row.
const LONGEST_SETBACK: Duration = Duration::from_secs(32);

/// The failures without a good response between them, and the mean time until a response begins.
#[derive(Debug, Default)]
pub struct Outcomes {
    failures: AtomicU32,
    microseconds: AtomicU32,
    /// Read only if there are failures.
    setback: Mutex<Option<Setback>>,
}

/// The time for which other origins are preferred, because an attempt to connect has failed. An origin that refuses
/// connections has few requests in progress, and would attract all others.
#[derive(Clone, Copy, Debug)]
struct Setback {
    length: Duration,
    until: Instant,
}

impl Outcomes {
    /// Records a response and the microseconds until its head was complete. A status of 500 or above is a failure. If two
    /// reactors record at the same time, one of the times may be lost.
    #[inline]
    pub fn responded(&self, status: u16, microseconds: u64) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.recover(status);
        }
        if status >= 500 {
            self.failed();
        }
        let (mean, new) =
            (self.microseconds.load(Ordering::Relaxed), u32::try_from(microseconds).unwrap_or(u32::MAX));
        // The first time is the mean.
        let next = if mean == 0 { new } else { mean - (mean >> SHARE) + (new >> SHARE) };
        self.microseconds.store(next, Ordering::Relaxed);
    }

    #[cold]
    fn recover(&self, status: u16) {
        *self.setback.lock() = None;
        if status < 500 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records that no connection could be opened. The times for which others are preferred double with each failure
    /// that follows the end of the last one.
    pub fn unreachable(&self, now: Instant) {
        self.failed();
        let mut setback = self.setback.lock();
        let length = match *setback {
            Some(Setback { until, .. }) if now < until => return,
            Some(Setback { length, .. }) => (2 * length).min(LONGEST_SETBACK),
            None => FIRST_SETBACK,
        };
        *setback = Some(Setback { length, until: now + length });
    }

    /// Returns the rest of the time for which other origins are preferred; zero if there is none.
    pub fn setback(&self) -> Duration {
        if self.failures() == 0 {
            return Duration::ZERO;
        }
        let setback = *self.setback.lock();
        setback.map_or(Duration::ZERO, |setback| setback.until.saturating_duration_since(Instant::now()))
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

    #[tokio::test(start_paused = true)]
    async fn others_are_preferred_for_longer_with_each_failure_to_connect() {
        let outcomes = Outcomes::default();
        let whole = |seconds| Duration::from_secs(seconds);
        for expected in [1, 2, 4, 8, 16, 32, 32] {
            assert_eq!(outcomes.setback(), Duration::ZERO);
            // The second of them was in progress when the first one failed.
            outcomes.unreachable(Instant::now());
            outcomes.unreachable(Instant::now());
            assert_eq!(outcomes.setback(), whole(expected));
            tokio::time::advance(whole(expected)).await;
        }
        assert_eq!(outcomes.failures(), 14);
        outcomes.unreachable(Instant::now());
        outcomes.responded(503, 1);
        assert_eq!((outcomes.setback(), outcomes.failures()), (Duration::ZERO, 16));
        outcomes.unreachable(Instant::now());
        assert_eq!(outcomes.setback(), whole(1));
        outcomes.responded(200, 1);
        assert_eq!((outcomes.setback(), outcomes.failures()), (Duration::ZERO, 0));
        outcomes.failed();
        assert_eq!(outcomes.setback(), Duration::ZERO, "it was reached");
    }
}
