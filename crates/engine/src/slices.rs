//! Long work in slices, so that a reactor serves its other clients in between.

use std::cell::Cell;
use std::sync::Arc;

use lacquer_sources::clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The seconds of work after which other tasks of the reactor run.
const SLICE: f64 = 0.0005;

/// One slice. Its time starts with the first check, so that short work does not read the clock.
#[derive(Default)]
pub struct Slice {
    begun: Cell<Option<f64>>,
}

impl Slice {
    pub fn is_over(&self) -> bool {
        let now = clock::monotonic();
        let Some(begun) = self.begun.get() else {
            self.begun.set(Some(now));
            return false;
        };
        now - begun > SLICE
    }
}

/// The slot for long work on a reactor. Only one task holds it at a time; otherwise, other tasks would wait for a
/// slice of each.
pub struct LongWorkSlot(Arc<Semaphore>);

impl Default for LongWorkSlot {
    fn default() -> LongWorkSlot {
        LongWorkSlot(Arc::new(Semaphore::new(1)))
    }
}

/// A task's lease of the [`LongWorkSlot`]. It is acquired after the first slice.
#[derive(Default)]
pub struct LongWorkLease(Option<OwnedSemaphorePermit>);

impl LongWorkSlot {
    /// Returns whether a task without a lease may start a slice.
    fn is_free(&self) -> bool {
        self.0.available_permits() > 0
    }
}

impl LongWorkLease {
    /// Returns whether the task may continue.
    pub fn may_work(&self, slot: &LongWorkSlot) -> bool {
        self.0.is_some() || slot.is_free()
    }

    /// Lets the other tasks of the reactor run before the next slice.
    pub async fn next(&mut self, slot: &LongWorkSlot) {
        if self.0.is_none() {
            // This fails only if the semaphore is closed, which it never is.
            self.0 = slot.0.clone().acquire_owned().await.ok();
        }
        tokio::task::yield_now().await;
    }
}
