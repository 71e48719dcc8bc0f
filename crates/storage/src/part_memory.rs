//! Bounds the memory that an arena uses for parts of bodies on a device, and wakes the tasks that wait for memory.
//!
//! Parts use at most half of an arena, so that slow readers, which hold their parts for long, leave room for heads and
//! new objects. A part that no reader waits for is dropped when another part needs its memory. A reader that gets no
//! memory waits. It is woken whenever a span is freed, a load ends, or another reader has received its part.

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};

#[cfg(not(miri))]
use parking_lot::Mutex;

#[cfg(miri)]
use crate::sync::Mutex;

/// The lower bound of the limit for parts of an arena, in bytes.
const LEAST: u64 = 128 * 1024;

/// A body with parts in memory.
pub(crate) trait Holder: Send + Sync {
    /// Drops the parts that no reader waits for. Returns whether other parts are left.
    fn drop_parts(&self) -> bool;
}

#[derive(Default)]
struct Holders {
    /// In the order in which they were listed.
    list: VecDeque<Weak<dyn Holder>>,
    /// The length at which freed bodies are removed from the list.
    sweep_at: usize,
}

pub(crate) struct PartMemory {
    limit: u64,
    used: AtomicU64,
    holders: Mutex<Holders>,
    has_waiting: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl PartMemory {
    /// Creates the bookkeeping for an arena of `arena` bytes.
    pub(crate) fn new(arena: u64) -> Self {
        Self {
            limit: (arena / 2).max(LEAST),
            used: AtomicU64::new(0),
            holders: Mutex::default(),
            has_waiting: AtomicBool::new(false),
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, bytes: u32) {
        self.used.fetch_add(u64::from(bytes), Ordering::SeqCst);
    }

    pub(crate) fn sub(&self, bytes: u32) {
        self.used.fetch_sub(u64::from(bytes), Ordering::SeqCst);
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Ordering::SeqCst))
    }

    /// Returns how many of `wanted` bytes a new part may use. Drops parts that no reader waits for to make room.
    /// Concurrent callers may exceed the limit by one part each.
    pub(crate) fn make_room(&self, wanted: u64) -> u64 {
        let mut others = self.holders.lock().list.len();
        while self.left() < wanted && others > 0 {
            self.drop_oldest();
            others -= 1;
        }
        self.left().min(wanted)
    }

    /// Drops all parts that no reader waits for.
    pub(crate) fn drop_all(&self) {
        let others = self.holders.lock().list.len();
        (0..others).for_each(|_| self.drop_oldest());
    }

    fn drop_oldest(&self) {
        let Some(oldest) = self.holders.lock().list.pop_front() else { return };
        if oldest.upgrade().is_some_and(|holder| holder.drop_parts()) {
            self.holders.lock().list.push_back(oldest);
        }
    }

    /// Adds a body that has parts in memory to the list. It is removed once [`Holder::drop_parts`] returns false.
    pub(crate) fn list(&self, holder: Weak<dyn Holder>) {
        let mut holders = self.holders.lock();
        if holders.list.len() >= holders.sweep_at {
            holders.list.retain(|holder| holder.strong_count() > 0);
            holders.sweep_at = 64 + 2 * holders.list.len();
        }
        holders.list.push_back(holder);
    }

    /// Registers a task that waits for memory. It is woken once, and must then try again.
    pub(crate) fn wait(&self, cx: &Context<'_>) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        self.has_waiting.store(true, Ordering::SeqCst);
    }

    /// Wakes the waiting tasks. The caller has freed memory before: either it sees the registration of a task, or the task,
    /// which tries again after it has registered, finds that memory. The allocator's lock orders the two for memory of
    /// the arena, and sequentially consistent operations for the limit of parts.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.has_waiting.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock();
            self.has_waiting.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
