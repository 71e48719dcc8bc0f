//! Test settings, set by `debug.*` commands. They are off in production.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock;

static FRAGMENT: AtomicU64 = AtomicU64::new(0);
static REFUSALS: AtomicU64 = AtomicU64::new(0);
static SHUTDOWN_DELAY_MS: AtomicU64 = AtomicU64::new(0);
static XID_CHUNK: AtomicU32 = AtomicU32::new(32768);

/// Returns the largest number of body bytes in one read of a fetch (`debug.fragfetch`); 0 sets no limit.
pub fn fetch_fragment() -> usize {
    FRAGMENT.load(Ordering::Relaxed) as usize
}

pub fn set_fetch_fragment(size: u64) {
    FRAGMENT.store(size, Ordering::Relaxed);
}

/// Returns whether the next attempt to start a request fails as if there were no memory (`debug.reqpool.fail`).
/// Consumes one planned result.
pub fn take_refusal() -> bool {
    if REFUSALS.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let shift = |bits: u64| Some(bits >> 1);
    REFUSALS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shift).unwrap_or_else(|b| b) & 1 == 1
}

/// Plans the results of the next attempts, one letter each. `F` or `f` fails.
pub fn set_refusals(plan: &str) {
    let mut bits = 0;
    for (at, letter) in plan.chars().take(64).enumerate() {
        bits |= u64::from(matches!(letter, 'F' | 'f')) << at;
    }
    REFUSALS.store(bits, Ordering::Relaxed);
}

/// Returns the time that the worker waits before it exits (`debug.shutdown.delay`).
pub fn shutdown_delay() -> Duration {
    Duration::from_millis(SHUTDOWN_DELAY_MS.load(Ordering::Relaxed))
}

pub fn set_shutdown_delay(seconds: f64) {
    SHUTDOWN_DELAY_MS.store(clock::seconds(seconds).as_millis() as u64, Ordering::Relaxed);
}

/// Returns the number of transaction ids that one thread takes at a time, as shown by `debug.xid`.
pub fn xid_chunk() -> u32 {
    XID_CHUNK.load(Ordering::Relaxed)
}

pub fn set_xid_chunk(chunk: u32) {
    XID_CHUNK.store(chunk.max(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    #[test]
    fn planned_refusals_are_consumed_in_order() {
        super::set_refusals("-F.f");
        let got: Vec<bool> = (0..5).map(|_| super::take_refusal()).collect();
        assert_eq!(got, [false, true, false, true, false]);
    }
}
