//! Requests that wait for another's fetch. A fetch that ends wakes a few; each of those that finds a
//! hit wakes a few more, so that a crowd spreads over the reactors instead of arriving at once.
//!
//! Whoever is woken must look up again, or pass the turn on: that is what [`Resumed`] is for.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::cache::Cache;
use crate::slab::Key;

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Woken,
    Done,
}

/// One waiting request, shared between it and the list it is on.
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
}

/// The place of a request on a waiting list: a future that is ready when it is worth to look again.
#[must_use = "a request that does not wait must not be on the list"]
#[derive(Debug)]
pub struct Wait {
    pub(crate) cache: Arc<Cache>,
    pub(crate) key: Key,
    pub(crate) waiter: Arc<Waiter>,
}

impl Future for Wait {
    type Output = Resumed;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Resumed> {
        let mut state = self.waiter.state.lock();
        if let State::Waiting(waker) = &mut *state {
            if waker.as_ref().is_none_or(|w| !w.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        *state = State::Done;
        drop(state);
        Poll::Ready(Resumed { turn: Some((Arc::clone(&self.cache), self.key)) })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let old = std::mem::replace(&mut *self.waiter.state.lock(), State::Done);
        match old {
            State::Waiting(_) => self.cache.leave(&self.key, &self.waiter),
            State::Woken => self.cache.pass_on(&self.key),
            State::Done => {}
        }
    }
}

/// A request that came off a waiting list: give it to the next lookup. Dropped, it wakes another.
#[derive(Debug)]
pub struct Resumed {
    turn: Option<(Arc<Cache>, Key)>,
}

impl Resumed {
    pub(crate) fn take_turn(mut self) {
        self.turn = None;
    }
}

impl Drop for Resumed {
    fn drop(&mut self) {
        if let Some((cache, key)) = self.turn.take() {
            cache.pass_on(&key);
        }
    }
}
