//! The one place where the worker reads the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since the epoch.
pub fn real() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// A duration from a parameter: negative and absurd values are bounded.
pub fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(if s.is_nan() { 0.0 } else { s.clamp(0.0, 1e9) })
}
