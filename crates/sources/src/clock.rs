//! The clocks, and durations from parameters in seconds.

use std::time::Duration;

pub use tokio::time::Instant;

use crate::system;

/// The longest duration in seconds, some thirty years.
const LONGEST: f64 = 1e9;

/// Returns the seconds since the epoch.
#[inline]
pub fn real() -> f64 {
    simulated::now().unwrap_or_else(|| system::seconds_of(libc::CLOCK_REALTIME))
}

/// Returns the seconds since a fixed moment in the past. The number never decreases.
#[inline]
pub fn monotonic() -> f64 {
    simulated::now().unwrap_or_else(|| system::seconds_of(libc::CLOCK_MONOTONIC))
}

/// Returns a limit in seconds. 0 means no limit and becomes the longest duration.
#[inline]
pub fn limit(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds } else { LONGEST }
}

/// Converts seconds to a duration. Negative and excessive values are clamped.
#[inline]
pub fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(if s.is_nan() { 0.0 } else { s.clamp(0.0, LONGEST) })
}

/// Converts seconds to a duration in whole microseconds. It is cheaper than [`seconds`], and correct below some
/// thousand years. Negative times become zero.
#[inline]
pub fn micros(s: f64) -> Duration {
    Duration::from_micros((s * 1e6) as u64)
}

#[cfg(feature = "simulated")]
pub use simulated::begin as simulate;

#[cfg(feature = "simulated")]
mod simulated {
    use std::cell::Cell;

    use super::Instant;

    thread_local! {
        static BEGUN: Cell<Option<(f64, Instant)>> = const { Cell::new(None) };
    }

    /// Makes this thread's clocks show `start` plus the elapsed time of its runtime. The runtime's clock must already
    /// be paused.
    pub fn begin(start: f64) {
        BEGUN.set(Some((start, Instant::now())));
    }

    pub(super) fn now() -> Option<f64> {
        BEGUN.get().map(|(start, begun)| start + begun.elapsed().as_secs_f64())
    }
}

#[cfg(not(feature = "simulated"))]
mod simulated {
    pub(super) const fn now() -> Option<f64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_bounded() {
        for (given, expected) in [(1.5, 1.5), (-1.0, 0.0), (f64::NAN, 0.0), (f64::INFINITY, LONGEST)] {
            assert_eq!(seconds(given), Duration::from_secs_f64(expected), "{given}");
        }
        assert_eq!((limit(0.0), limit(2.0)), (LONGEST, 2.0));
        assert_eq!((micros(1.5), micros(-1.0)), (Duration::from_millis(1500), Duration::ZERO));
    }

    #[test]
    fn time_passes() {
        let before = (real(), monotonic());
        assert!(before.0 > 1.7e9 && before.1 > 0.0);
        assert!(monotonic() >= before.1);
    }
}
