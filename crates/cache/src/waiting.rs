//! Requests that wait for another's fetch. A fetch that ends wakes a few; each of those that finds a
//! hit wakes a few more, so that a crowd spreads over the reactors instead of arriving at once.
//!
//! A request that is woken must look up again, or pass its turn on; [`Resumed`] ensures that.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::cache::Cache;
use crate::slab::Key;
use crate::waiter::{State, Waiter};

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
        let resumed = |()| Resumed { turn: Some((Arc::clone(&self.cache), self.key)) };
        self.waiter.poll_woken(cx).map(resumed)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        match self.waiter.end() {
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
