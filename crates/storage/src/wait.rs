//! A reader's wait for a byte of a body.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::body::{Body, BodyState};
use crate::part_memory::Place;
use crate::residency::{Eviction, Residency};
use crate::waiters::Registration;

/// A reader's wait for a byte. If the byte is on a device, the part with it stays in memory until this is dropped, and
/// the reader keeps its place in the queue for memory.
pub struct Wait<'b> {
    /// `None` if the body is complete and in memory.
    body: Option<&'b Arc<Body>>,
    at: u64,
    is_awaited: bool,
    place: Place,
    registration: Registration,
}

impl<'b> Wait<'b> {
    pub(crate) fn new(body: Option<&'b Arc<Body>>, at: u64) -> Self {
        Self { body, at, is_awaited: false, place: Place::default(), registration: Registration::default() }
    }

    /// Ready when the byte is in memory, or will never be. A byte on a device is requested. If there is no memory for
    /// it, the task is woken when memory was freed and no reader waits before it.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<BodyState> {
        let Some(body) = self.body else { return Poll::Ready(BodyState::Complete) };
        let (at, mut registration) = (self.at, std::mem::take(&mut self.registration));
        let request = |residency: &Residency| self.request(body, residency, cx);
        let polled = body.poll_more(at, &mut registration, cx, request);
        self.registration = registration;
        if polled.is_ready() {
            body.first().arena().parts().leave(&mut self.place);
        }
        polled
    }

    /// Requests the byte from the device, if there is memory for it and it is this reader's turn.
    fn request(&mut self, body: &Arc<Body>, residency: &Residency, cx: &Context<'_>) {
        let (arena, end) = (body.first().arena(), residency.end().min(body.len()));
        let parts = arena.parts();
        if !std::mem::replace(&mut self.is_awaited, true) {
            residency.begin_wait(self.at);
        }
        let load = |place: &Place, eviction| {
            if !residency.lacks(self.at, end) {
                return Ok(());
            }
            if !parts.is_next(place) {
                return Err(Eviction::Ended);
            }
            let body: Weak<Body> = Arc::downgrade(body);
            residency.load(body, arena, self.at, end, eviction)
        };
        let outcome = load(&self.place, Eviction::Allowed);
        let Err(eviction) = outcome else { return parts.leave(&mut self.place) };
        parts.enter(&mut self.place, cx);
        // Memory may have been freed before the registration.
        if load(&self.place, Eviction::Ended).is_ok() {
            parts.leave(&mut self.place);
        } else if eviction == Eviction::Allowed {
            // More objects can be evicted, after other tasks have run.
            cx.waker().wake_by_ref();
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(body) = self.body else { return };
        body.waiters.end_registration(&mut self.registration);
        let parts = body.first().arena().parts();
        parts.leave(&mut self.place);
        if self.is_awaited
            && let Some(residency) = body.residency()
        {
            residency.end_wait(self.at);
            // The part may now be dropped for a reader that waits for memory.
            parts.wake();
        }
    }
}

impl fmt::Debug for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wait({}, {:?})", self.at, self.place)
    }
}
