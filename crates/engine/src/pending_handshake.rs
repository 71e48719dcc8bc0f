//! The handshake of a client that has sent early data (0-RTT). Until it is complete, its requests may be repetitions of
//! those of another client (RFC 8470).

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// Whether the handshake of a session is pending, and the requests of its streams that wait for its end.
#[derive(Default)]
pub struct PendingHandshake {
    is_pending: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl PendingHandshake {
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.is_pending.get()
    }

    /// Records that the client has sent early data.
    pub fn begin(&self) {
        self.is_pending.set(true);
    }

    /// Records that the handshake is complete.
    #[cold]
    pub fn complete(&self) {
        self.is_pending.set(false);
        self.wake();
    }

    /// Wakes the requests that wait, because the connection ends.
    pub fn wake(&self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Registers a request to be woken.
    pub fn register(&self, cx: &Context<'_>) {
        self.waiting.borrow_mut().push(cx.waker().clone());
    }
}
