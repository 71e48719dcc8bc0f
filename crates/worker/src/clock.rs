//! The one place where the worker reads the clock.

use std::time::Duration;

use crate::sys;

/// The longest duration in seconds, some thirty years.
const LONGEST: f64 = 1e9;

/// Returns the seconds since the epoch.
pub fn real() -> f64 {
    sys::seconds_of(libc::CLOCK_REALTIME)
}

/// Returns the seconds since a fixed moment in the past. The number never decreases.
pub fn monotonic() -> f64 {
    sys::seconds_of(libc::CLOCK_MONOTONIC)
}

/// Returns a limit in seconds, where 0 means none and becomes the longest duration.
pub fn limit(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds } else { LONGEST }
}

/// Returns a duration of so many seconds. Negative and absurd values are bounded.
pub fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(if s.is_nan() { 0.0 } else { s.clamp(0.0, LONGEST) })
}

/// Returns a duration in whole microseconds. It is cheaper than [`seconds`], and right below some thousand years.
/// Negative times become zero.
pub fn micros(s: f64) -> Duration {
    Duration::from_micros((s * 1e6) as u64)
}
