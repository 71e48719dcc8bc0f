//! A request on a waiting list: its waker, and whether it was woken.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::locks::Mutex;

/// The progress of the wait.
#[derive(Debug)]
pub(crate) enum State {
    Waiting(Option<Waker>),
    Woken,
    Done,
}

/// A waiting request, shared between the request and its waiting list.
#[derive(Debug)]
pub(crate) struct Waiter {
    state: Mutex<State>,
}

impl Waiter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Waiting(None)) })
    }

    pub(crate) fn wake(&self) {
        let old = {
            let mut state = self.state.lock();
            match &*state {
                State::Waiting(_) => std::mem::replace(&mut *state, State::Woken),
                State::Woken | State::Done => return,
            }
        };
        if let State::Waiting(Some(waker)) = old {
            waker.wake();
        }
    }
    /// Ready, once, when the request was woken.
    pub(crate) fn poll_woken(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if let State::Waiting(waker) = &mut *state {
            if waker.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        *state = State::Done;
        Poll::Ready(())
    }

    /// Ends the wait. Returns the state before.
    pub(crate) fn end(&self) -> State {
        std::mem::replace(&mut *self.state.lock(), State::Done)
    }
}
