//! The one place where the worker reads the clock.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Seconds since the epoch.
pub fn real() -> f64 {
    as_seconds(clock_gettime(ClockId::Realtime))
}

/// Seconds since some moment before; never goes back.
pub fn monotonic() -> f64 {
    as_seconds(clock_gettime(ClockId::Monotonic))
}

fn as_seconds(t: Timespec) -> f64 {
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// A duration from a parameter: negative and absurd values are bounded.
pub fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(if s.is_nan() { 0.0 } else { s.clamp(0.0, 1e9) })
}
