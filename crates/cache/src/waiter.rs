//! A request on a waiting list: its waker, and whether it was woken. The waiting list of a key.
//!
//! A request that stops waiting stays in its list as a dead entry until the list is mostly dead: searching for it would
//! make the end of many requests quadratic.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// It waits in the list. Changed with the shard locked.
    is_listed: AtomicBool,
}

/// The waiting list of a key: at least one request, in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitingList {
    entries: VecDeque<Arc<Waiter>>,
    /// The number of entries that are not dead.
    live: usize,
}

impl WaitingList {
    /// Adds a new request.
    pub(crate) fn push(&mut self, waiter: Arc<Waiter>) {
        self.entries.push_back(waiter);
        self.live += 1;
    }

    /// Removes the next request.
    pub(crate) fn pop(&mut self) -> Option<Arc<Waiter>> {
        let waiter = std::iter::from_fn(|| self.entries.pop_front()).find(|waiter| waiter.leave_list())?;
        self.live -= 1;
        Some(waiter)
    }

    /// Records that a request has [left](Waiter::leave_list). Returns whether it was the last one.
    pub(crate) fn lose_one(&mut self) -> bool {
        self.live -= 1;
        if self.entries.len() > 2 * self.live {
            self.entries.retain(|waiter| waiter.is_listed.load(Ordering::Relaxed));
        }
        self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the number of entries, dead ones included.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
    }
}

impl Waiter {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Waiting(None)), is_listed: AtomicBool::new(true) })
    }

    /// Makes its entry in the list a dead one. Returns false if it is one already, or was removed. The caller holds the
    /// lock of the shard.
    pub(crate) fn leave_list(&self) -> bool {
        self.is_listed.swap(false, Ordering::Relaxed)
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
