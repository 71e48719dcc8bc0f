//! The one place where the worker reads the clock.

use std::time::Duration;

use crate::sys;

/// Some thirty years.
const LONGEST: f64 = 1e9;

/// Seconds since the epoch.
pub fn real() -> f64 {
    sys::seconds_of(libc::CLOCK_REALTIME)
}

/// Seconds since some moment before; never goes back.
pub fn monotonic() -> f64 {
    sys::seconds_of(libc::CLOCK_MONOTONIC)
}

/// A limit in seconds, of which 0 is none: then longer than anything lasts.
pub fn limit(seconds: f64) -> f64 {
    if seconds > 0.0 { seconds } else { LONGEST }
}

/// A duration from a parameter: negative and absurd values are bounded.
pub fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(if s.is_nan() { 0.0 } else { s.clamp(0.0, LONGEST) })
}

/// A duration of whole microseconds, cheaper than [`seconds`] and for less than some thousand years: negative times
/// are zero.
pub fn micros(s: f64) -> Duration {
    Duration::from_micros((s * 1e6) as u64)
}
