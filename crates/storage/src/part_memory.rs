//! Bounds the memory that an arena uses for parts of bodies on a device, and wakes the tasks that wait for memory.
//!
//! Parts use at most half of an arena, so that slow readers, which hold their parts for long, leave room for heads and
//! new objects. A part that no reader waits for is dropped when another part needs its memory. A reader that gets no
//! memory waits in a queue. The first is woken whenever a span is freed, a load ends, or another reader has received
//! its part. A reader that gets memory wakes the next, so that as many are woken as there is memory for, and one more.
//! Nobody overtakes a waiting reader.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

use crate::sync::{AtomicBool, AtomicU64, Mutex, order_in_loom};

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

/// A reader's place in the queue, if it waits for memory.
#[derive(Debug, Default)]
pub(crate) struct Place(Option<u64>);

/// The readers that wait for memory, in the order of their arrival.
#[derive(Default)]
struct Queue {
    /// `None` for a reader that was woken and has not tried again yet.
    readers: BTreeMap<u64, Option<Waker>>,
    next: u64,
}

impl Queue {
    fn take_first_waker(&mut self) -> Option<Waker> {
        self.readers.first_entry()?.get_mut().take()
    }
}

pub(crate) struct PartMemory {
    limit: u64,
    used: AtomicU64,
    holders: Mutex<Holders>,
    has_waiting: AtomicBool,
    queue: Mutex<Queue>,
}

impl PartMemory {
    /// Creates the bookkeeping for an arena of `arena` bytes.
    pub(crate) fn new(arena: u64) -> Self {
        Self {
            limit: (arena / 2).max(LEAST),
            used: AtomicU64::new(0),
            holders: Mutex::default(),
            has_waiting: AtomicBool::new(false),
            queue: Mutex::default(),
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

    /// Returns whether `bytes` bytes may be used for parts that nobody waits for yet.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        !self.has_waiting.load(Ordering::SeqCst) && self.left() >= bytes
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

    /// Returns whether a reader may take memory: it is the first in the queue, or there is none.
    pub(crate) fn is_next(&self, place: &Place) -> bool {
        if !self.has_waiting.load(Ordering::SeqCst) {
            return true;
        }
        let first = self.queue.lock().readers.first_key_value().map(|(&number, _)| number);
        first.is_none() || first == place.0
    }

    /// Registers a reader that waits for memory; a new one at the end of the queue. It is woken once, and must then try
    /// again. Must be followed by another attempt.
    pub(crate) fn enter(&self, place: &mut Place, cx: &Context<'_>) {
        let mut queue = self.queue.lock();
        let number = *place.0.get_or_insert_with(|| {
            queue.next += 1;
            queue.next
        });
        queue.readers.insert(number, Some(cx.waker().clone()));
        self.has_waiting.store(true, Ordering::SeqCst);
        order_in_loom();
    }

    /// Removes a reader that needs no more memory from the queue, and wakes the first one, which may find more.
    pub(crate) fn leave(&self, place: &mut Place) {
        let Some(number) = place.0.take() else { return };
        let waker = {
            let mut queue = self.queue.lock();
            queue.readers.remove(&number);
            self.has_waiting.store(!queue.readers.is_empty(), Ordering::SeqCst);
            queue.take_first_waker()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the first waiting reader. The caller has freed memory before: either it sees the registration of the
    /// reader, or the reader, which tries again after it has registered, finds that memory. The allocator's lock orders
    /// the two for memory of the arena, and sequentially consistent operations for the limit of parts.
    #[inline]
    pub(crate) fn wake(&self) {
        order_in_loom();
        if self.has_waiting.load(Ordering::SeqCst) {
            self.wake_first();
        }
    }

    #[cold]
    fn wake_first(&self) {
        let waker = self.queue.lock().take_first_waker();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
