//! A heap of deadlines, with 8 bytes per object. Times are hundredths of a second since the cache was created. Each
//! slot of the slab records its position here, so that removal needs no search.
//!
//! An entry contains the distance from the heap's base, which follows the time. A deadline that is further away is replaced by
//! the latest possible one, and is checked again then.

use crate::slab::{NO_TIMER, Slab};

const ARITY: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The time since the base.
    when: u32,
    slot: u32,
}

/// The deadlines of a shard's objects, earliest first.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    base: u64,
}

/// The age of the base from which on it changes: 248 days.
const MAX_AGE: u64 = 1 << 31;

impl Heap {
    /// Returns the earliest deadline and its slot.
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.entries.first().map(|e| (self.base + u64::from(e.when), e.slot))
    }

    /// Moves the base to the present, if it is old. All deadlines that are over become equal.
    pub(crate) fn follow(&mut self, now: u64) {
        let age = now.saturating_sub(self.base);
        if age < MAX_AGE {
            return;
        }
        let age = u32::try_from(age).unwrap_or(u32::MAX);
        self.entries.iter_mut().for_each(|entry| entry.when = entry.when.saturating_sub(age));
        self.base = now;
    }

    /// Returns the distance of a time from the base, as far as an entry can contain it.
    fn since_base(&self, when: u64) -> u32 {
        u32::try_from(when.saturating_sub(self.base)).unwrap_or(u32::MAX)
    }

    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32, when: u64) {
        let when = self.since_base(when);
        if self.entries.len() == self.entries.capacity() {
            // Grows by an eighth: doubling would cost more memory than it saves time.
            self.entries.reserve_exact((self.entries.len() / 8).max(32));
        }
        self.entries.push(Entry { when, slot });
        self.up(slab, self.entries.len() - 1);
    }

    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let at = slab.get(slot).timer as usize;
        if self.entries.get(at).is_none_or(|e| e.slot != slot) {
            return;
        }
        slab.get_mut(slot).timer = NO_TIMER;
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            self.settle(slab, at);
        }
    }

    pub(crate) fn change(&mut self, slab: &mut Slab, slot: u32, when: u64) {
        let when = self.since_base(when);
        let at = slab.get(slot).timer as usize;
        if let Some(entry) = self.entries.get_mut(at).filter(|e| e.slot == slot) {
            entry.when = when;
            self.settle(slab, at);
        }
    }

    fn settle(&mut self, slab: &mut Slab, at: usize) {
        let at = self.up(slab, at);
        self.down(slab, at);
    }

    fn up(&mut self, slab: &mut Slab, mut at: usize) -> usize {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.entries[parent].when <= entry.when {
                break;
            }
            self.put(slab, at, self.entries[parent]);
            at = parent;
        }
        self.put(slab, at, entry);
        at
    }

    fn down(&mut self, slab: &mut Slab, mut at: usize) {
        let entry = self.entries[at];
        loop {
            let first = at * ARITY + 1;
            let last = (first + ARITY).min(self.entries.len());
            let Some(child) = (first..last).min_by_key(|&c| self.entries[c].when) else { break };
            if self.entries[child].when >= entry.when {
                break;
            }
            self.put(slab, at, self.entries[child]);
            at = child;
        }
        self.put(slab, at, entry);
    }

    fn put(&mut self, slab: &mut Slab, at: usize, entry: Entry) {
        self.entries[at] = entry;
        slab.get_mut(entry.slot).timer = at as u32;
    }
}
