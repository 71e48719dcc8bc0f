//! The requests that wait for a connection to an origin, and their wake-up.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The requests that wait for a connection to one origin. All reactors share it.
#[derive(Debug, Default)]
pub struct Waiters {
    count: AtomicU32,
    changed: Notify,
}

/// A waiting request; it counts until this is dropped.
pub struct Waiting<'w>(&'w Waiters);

impl Waiters {
    /// Registers a waiting request. The request must search for a connection after this call and before it sleeps: a
    /// connection that was returned before the registration woke no task.
    pub fn enter(&self) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Wakes the request that has waited longest, because a connection was returned.
    pub(crate) fn wake_one(&self) {
        if !self.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Wakes all requests, because the reason for waiting may no longer exist.
    pub(crate) fn wake_all(&self) {
        if !self.is_empty() {
            self.changed.notify_waiters();
        }
    }
}

impl Waiting<'_> {
    /// Completes at the next wake-up after this call.
    pub fn change(&self) -> Notified<'_> {
        self.0.changed.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
