//! The longest time that tests wait for an event.

use std::time::{Duration, Instant};

/// A timeout longer than any operation takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Polls a condition until it holds or `PATIENCE` is over; returns whether it held.
pub fn until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
