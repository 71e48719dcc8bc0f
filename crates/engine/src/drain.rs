//! The orderly end of a worker. Once it has begun, no connections are accepted, connections end with the response in
//! progress, and idle ones are closed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Seconds for which idle connections stay open: a request that the client sent before it could know is answered.
const IDLE_FOR: f64 = 1.0;
/// The value of `begun` before the drain.
const NOT_BEGUN: u64 = u64::MAX;

/// The state of the drain, which all reactors share.
#[derive(Debug)]
pub struct Drain {
    /// The time at which it began, in milliseconds of the monotonic clock.
    begun: AtomicU64,
}

/// The part of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is no drain: connections stay open.
    None,
    /// Connections end with the response in progress.
    Begun,
    /// Idle connections end, too.
    ClosingIdle,
}

impl Default for Drain {
    fn default() -> Drain {
        Drain { begun: AtomicU64::new(NOT_BEGUN) }
    }
}

impl Drain {
    /// Begins the drain. `now` is a time of the monotonic clock. Only the first call has an effect.
    pub fn begin(&self, now: f64) {
        let begin = (now * 1e3) as u64;
        let _ = self.begun.compare_exchange(NOT_BEGUN, begin, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != NOT_BEGUN
    }

    /// Returns whether idle connections end.
    pub fn closes_idle(&self, now: f64) -> bool {
        self.phase(now) == Phase::ClosingIdle
    }

    pub fn phase(&self, now: f64) -> Phase {
        match self.begun.load(Ordering::Relaxed) {
            NOT_BEGUN => Phase::None,
            begun if now - begun as f64 / 1e3 < IDLE_FOR => Phase::Begun,
            _ => Phase::ClosingIdle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_stay_open_for_a_while() {
        let drain = Drain::default();
        assert_eq!(drain.phase(1e9), Phase::None);
        drain.begin(10.0);
        drain.begin(20.0);
        assert_eq!(
            [10.0, 10.9, 11.1].map(|now| drain.phase(now)),
            [Phase::Begun, Phase::Begun, Phase::ClosingIdle]
        );
    }
}
