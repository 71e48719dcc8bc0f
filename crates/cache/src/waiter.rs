//! A request on a waiting list: its waker, and whether it was woken. The waiting list of a key.
//!
//! A request that stops waiting stays in its list as a dead entry until the list is mostly dead: searching for it would
//! make the end of many requests quadratic.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
    /// The number of the fetch that it waits for: that of its group once it leaves the list. Changed with the shard locked.
    fetch: AtomicU32,
}

/// Exceeds all numbers of slots.
const FIRST_ENDED: u32 = 1 << 31;

/// The waiting list of a key: at least one request.
#[derive(Debug, Default)]
pub(crate) struct WaitingList {
    groups: VecDeque<Group>,
    /// The number of fetches that ended without a result while requests waited for them.
    ended: u32,
    /// The number of entries.
    entries: usize,
    /// The number of entries that are not dead.
    live: usize,
}

/// The requests that wait for the same fetch, in the order of their arrival.
#[derive(Debug)]
struct Group {
    /// The slot of the fetch, or a number from [`FIRST_ENDED`] on if it has ended without a result.
    fetch: u32,
    waiters: VecDeque<Arc<Waiter>>,
}

impl WaitingList {
    /// Adds a new request.
    pub(crate) fn push(&mut self, waiter: Arc<Waiter>) {
        let fetch = waiter.fetch();
        match self.groups.iter_mut().find(|group| group.fetch == fetch) {
            Some(group) => group.waiters.push_back(waiter),
            None => self.groups.push_back(Group { fetch, waiters: VecDeque::from([waiter]) }),
        }
        self.entries += 1;
        self.live += 1;
    }

    /// Moves up to `n` requests to a list of those that are woken: first the requests that wait for this fetch, then others,
    /// because its result may match them too.
    pub(crate) fn take(&mut self, fetch: u32, n: usize, taken: &mut Vec<Arc<Waiter>>) {
        let at = self.groups.iter().position(|group| group.fetch == fetch);
        if let Some(group) = at.and_then(|at| self.groups.remove(at)) {
            self.groups.push_front(group);
        }
        let mut left = n;
        while left > 0
            && let Some(group) = self.groups.front_mut()
        {
            if let Some(waiter) = group.waiters.pop_front() {
                self.entries -= 1;
                if waiter.leave_list() {
                    self.live -= 1;
                    left -= 1;
                    waiter.fetch.store(group.fetch, Ordering::Relaxed);
                    taken.push(waiter);
                }
            }
            if group.waiters.is_empty() {
                self.groups.pop_front();
            }
        }
    }

    /// Records that a fetch has ended without a result: the next fetch may have the same slot. Returns the number by which
    /// the group is found from now on, until one of its requests fetches.
    pub(crate) fn end_fetch(&mut self, fetch: u32) -> u32 {
        let Some(group) = self.groups.iter_mut().find(|group| group.fetch == fetch) else { return fetch };
        group.fetch = FIRST_ENDED | self.ended;
        self.ended = (self.ended + 1) % FIRST_ENDED;
        group.fetch
    }

    /// Makes the requests that wait for a fetch wait for another one.
    pub(crate) fn replace_fetch(&mut self, old: u32, new: u32) {
        let at = self.groups.iter().position(|group| group.fetch == old);
        let Some(mut group) = at.and_then(|at| self.groups.remove(at)) else { return };
        match self.groups.iter_mut().find(|group| group.fetch == new) {
            Some(found) => found.waiters.append(&mut group.waiters),
            None => self.groups.push_back(Group { fetch: new, waiters: group.waiters }),
        }
    }

    /// Records that a request has [left](Waiter::leave_list). Returns whether it was the last one.
    pub(crate) fn lose_one(&mut self) -> bool {
        self.live -= 1;
        if self.entries > 2 * self.live {
            for group in &mut self.groups {
                group.waiters.retain(|waiter| waiter.is_listed.load(Ordering::Relaxed));
            }
            self.groups.retain(|group| !group.waiters.is_empty());
            self.entries = self.live;
        }
        self.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns the number of entries, dead ones included.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }
}

impl Waiter {
    /// Creates a request that waits for the fetch in a slot.
    pub(crate) fn new(fetch: u32) -> Arc<Self> {
        let (state, is_listed) = (Mutex::new(State::Waiting(None)), AtomicBool::new(true));
        Arc::new(Self { state, is_listed, fetch: AtomicU32::new(fetch) })
    }

    /// Returns the number of the fetch that it waits for.
    pub(crate) fn fetch(&self) -> u32 {
        self.fetch.load(Ordering::Relaxed)
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
