//! The longest times that tests wait for an event, and functions that poll for one.

use std::time::{Duration, Instant};

/// A time that is longer than any operation takes, even on a busy machine. For tests in which it may pass.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// The longest time that `until` polls. Only tests that fail reach it: a disk may take seconds for each flush, and other
/// processes may use the machine.
pub const LONGEST_POLL: Duration = Duration::from_mins(1);

/// The time-out of the sockets of clients.
pub const SOCKET_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time for which an origin holds a response back. Longer than the events take that the test waits for.
pub const LONGEST_HOLD: Duration = Duration::from_mins(2);

/// Polls a condition until it holds or `LONGEST_POLL` is over. Returns whether it held.
pub fn until(done: impl FnMut() -> bool) -> bool {
    until_within(LONGEST_POLL, done)
}

/// Polls a condition until it holds or this time is over. Returns whether it held.
pub fn until_within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
