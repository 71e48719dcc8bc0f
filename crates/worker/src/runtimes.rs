//! Handles to all reactors, for tasks that any of them can run.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

#[derive(Default)]
pub struct Runtimes {
    handles: Mutex<Vec<Handle>>,
    next: AtomicUsize,
}

impl Runtimes {
    pub fn add(&self, handle: Handle) {
        self.handles.lock().push(handle);
    }

    /// Spawns a task on the next reactor, by round robin.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let handles = self.handles.lock();
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let handle = handles.get(next % handles.len().max(1))?;
        Some(handle.spawn(work).abort_handle())
    }
}
