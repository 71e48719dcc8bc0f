//! The system's clocks.
#![allow(unsafe_code)]

/// Returns the time of a clock in seconds. Clocks are read several times for every request, so the conversion
/// avoids the checked arithmetic of `SystemTime`.
#[inline]
pub fn seconds_of(clock: libc::clockid_t) -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a timespec that the call may write to; an unknown clock leaves it unchanged.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
