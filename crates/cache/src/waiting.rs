//! Requests that wait for the fetch of another request. The end of a fetch wakes a few of them; each that finds a hit
//! wakes a few more. So a large group spreads over the reactors instead of running all at once.
//!
//! Those that wait for the fetch itself are woken first. Others, for example of another variant, would have to wait again,
//! and wake nobody: the former would wait for the end of a fetch that does not concern them.
//!
//! A request that is woken must look up again or wake another one; [`Resumed`] ensures that.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::cache::Cache;
use crate::shard::Shard;
use crate::slab::Key;
use crate::waiter::{State, Waiter};

/// A request's entry on a waiting list: a future that is ready when the request should look up again.
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
        let turn = |()| Turn { cache: Arc::clone(&self.cache), key: self.key, fetch: self.waiter.fetch() };
        self.waiter.poll_woken(cx).map(|woken| Resumed { turn: Some(turn(woken)) })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        match self.waiter.end() {
            State::Waiting(_) if self.cache.remove_waiter(&self.key, &self.waiter) => {}
            // Its turn has come, or is about to.
            State::Waiting(_) | State::Woken => self.cache.wake_next(&self.key, self.waiter.fetch()),
            State::Done => {}
        }
    }
}

/// A request that was woken. It must be passed to the next lookup; dropping it wakes another request.
#[derive(Debug)]
pub struct Resumed {
    turn: Option<Turn>,
}

#[derive(Debug)]
struct Turn {
    cache: Arc<Cache>,
    key: Key,
    /// The fetch that the request waited for.
    fetch: u32,
}

impl Resumed {
    /// Records the fetch that the request makes or waits for: if the one before has ended, others that waited for it wait for
    /// this one too.
    pub(crate) fn follow(&self, shard: &mut Shard, fetch: u32) {
        if let Some(turn) = &self.turn {
            shard.replace_fetch(&turn.key, turn.fetch, fetch);
        }
    }

    pub(crate) fn take_turn(mut self) {
        self.turn = None;
    }
}

impl Drop for Resumed {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.cache.wake_next(&turn.key, turn.fetch);
        }
    }
}
