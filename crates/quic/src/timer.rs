//! The timer of a connection.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

/// A timer that is moved forward at once, and backward only when it has expired: most deadlines of a connection are
/// replaced by later ones before they expire.
pub struct Timer {
    sleep: Pin<Box<Sleep>>,
    set: Option<Instant>,
}

impl Timer {
    pub fn new() -> Timer {
        Timer { sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)), set: None }
    }

    /// Registers the task to be woken at or before `due`.
    pub fn poll(&mut self, cx: &mut Context<'_>, due: Option<Instant>) {
        let Some(due) = due else { return };
        loop {
            if self.set.is_none_or(|set| due < set) {
                self.sleep.as_mut().reset(due.into());
                self.set = Some(due);
            }
            match self.sleep.as_mut().poll(cx) {
                Poll::Pending => return,
                Poll::Ready(()) if self.set == Some(due) => {
                    self.set = None;
                    cx.waker().wake_by_ref();
                    return;
                }
                Poll::Ready(()) => self.set = None,
            }
        }
    }
}
