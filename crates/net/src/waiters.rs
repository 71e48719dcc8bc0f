//! Requests that wait for a connection to an origin, and what wakes them.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The requests that wait for one origin's connections. All reactors share it.
#[derive(Debug, Default)]
pub struct Waiters {
    count: AtomicU32,
    changed: Notify,
}

/// A request that waits, for as long as this lives.
pub struct Waiting<'w>(&'w Waiters);

impl Waiters {
    /// Announces a request that waits. It must look for a connection after that, and before it sleeps: one that came
    /// back before the announcement woke nobody.
    pub fn enter(&self) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Wakes the request that waits for longest: a connection came back.
    pub(crate) fn wake_one(&self) {
        if !self.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Wakes all: the reason why they wait may be gone.
    pub(crate) fn wake_all(&self) {
        if !self.is_empty() {
            self.changed.notify_waiters();
        }
    }
}

impl Waiting<'_> {
    /// Returns when something has changed since this was called.
    pub fn change(&self) -> Notified<'_> {
        self.0.changed.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
