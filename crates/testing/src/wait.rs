//! The longest time that tests wait for an event, and a function that polls for one.

use std::time::{Duration, Instant};

/// A timeout that is longer than any operation takes, even on a busy machine.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// Polls a condition until it holds or `MAX_WAIT` is over. Returns whether it held.
pub fn until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + MAX_WAIT;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
