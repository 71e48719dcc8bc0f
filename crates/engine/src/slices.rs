//! Long work in slices, so that a reactor serves its other clients in between.

use std::cell::Cell;
use std::sync::Arc;

use lacquer_sources::clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Seconds of work after which other tasks of the reactor run.
const SLICE: f64 = 0.0005;

/// One slice. Its time begins with the first check, so that short work reads no clock.
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

/// The right to do long work on a reactor. One task has it at a time: with many, other tasks would wait for a slice of
/// each of them.
pub struct Shift(Arc<Semaphore>);

impl Default for Shift {
    fn default() -> Shift {
        Shift(Arc::new(Semaphore::new(1)))
    }
}

/// A task's hold on the [`Shift`].
#[derive(Default)]
pub struct LongWorkLease(Option<OwnedSemaphorePermit>);

impl Shift {
    /// Returns whether a task without the shift may begin a slice.
    fn is_free(&self) -> bool {
        self.0.available_permits() > 0
    }
}

impl LongWorkLease {
    /// Returns whether the task may work on.
    pub fn may_work(&self, shift: &Shift) -> bool {
        self.0.is_some() || shift.is_free()
    }

    /// Lets the other tasks of the reactor run before the next slice.
    pub async fn next(&mut self, shift: &Shift) {
        if self.0.is_none() {
            // This fails only if the semaphore is closed, which it never is.
            self.0 = shift.0.clone().acquire_owned().await.ok();
        }
        tokio::task::yield_now().await;
    }
}
