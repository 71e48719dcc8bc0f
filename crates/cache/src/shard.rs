//! A part of the index under one lock: which places belong to a key and in which order, when they
//! expire, who waits. Newest published first, fetches under way last.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::heap::Heap;
use crate::object::{NO_SLOT, Object};
use crate::slab::{BUSY, Key, NO_TIMER, NONE, Slab};
use crate::tags::Tag;
use crate::waiter::Waiter;

/// Work that is left to do when the shard is unlocked again.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) waiters: Vec<Arc<Waiter>>,
}

impl DeferredWork {
    pub(crate) fn run(self) {
        for waiter in self.waiters {
            waiter.wake();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shard {
    /// First place of each key.
    table: HashTable<u32>,
    pub(crate) slab: Slab,
    pub(crate) heap: Heap,
    /// The Vary specification that fetches under way are expected to end with.
    pub(crate) predicted: HashMap<u32, Box<[u8]>>,
    /// The tags of the places that have some.
    pub(crate) tags: HashMap<u32, Box<[Tag]>>,
    pub(crate) waiting: HashMap<Key, VecDeque<Arc<Waiter>>>,
    /// Where eviction looks next.
    pub(crate) hand: u32,
    /// Objects with pages of their own, oldest first; entries outlive their objects.
    pub(crate) large: VecDeque<(u32, u64)>,
}

fn hash(key: &Key) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| key[8 + i]))
}

impl Shard {
    pub(crate) fn new() -> Self {
        Self {
            table: HashTable::new(),
            slab: Slab::new(),
            heap: Heap::default(),
            predicted: HashMap::new(),
            tags: HashMap::new(),
            waiting: HashMap::new(),
            hand: 0,
            large: VecDeque::new(),
        }
    }

    /// How many keys there are.
    pub(crate) fn keys(&self) -> usize {
        self.table.len()
    }

    /// The first place of a key.
    pub(crate) fn first(&self, key: &Key) -> u32 {
        self.table.find(hash(key), |&s| self.slab.get(s).key == *key).copied().unwrap_or(NONE)
    }

    /// The object in a place, if it is still the one of that transaction.
    pub(crate) fn object(&self, slot: u32, vxid: u64) -> Option<&Arc<Object>> {
        self.slab.holds(slot, vxid).then(|| self.slab.get(slot).object.as_ref())?
    }

    /// A new place at the end of the key's list, for a fetch.
    pub(crate) fn insert_busy(&mut self, key: Key) -> u32 {
        let slot = self.slab.insert(key, None, BUSY);
        let last = self.last(&key);
        if last == NONE {
            self.link_first(slot);
        } else {
            self.slab.get_mut(last).next = slot;
        }
        slot
    }

    /// Turns a fetch's place into an object's and moves it to the front.
    pub(crate) fn publish(&mut self, slot: u32, object: Arc<Object>) {
        self.unlink(slot);
        let place = self.slab.get_mut(slot);
        place.object = Some(object);
        place.timer = NO_TIMER;
        self.predicted.remove(&slot);
        self.link_first(slot);
    }

    /// Removes a place from its key, the heap and the slab.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Arc<Object>> {
        self.unlink(slot);
        if self.slab.get(slot).is_busy() {
            self.predicted.remove(&slot);
        } else {
            self.heap.remove(&mut self.slab, slot);
        }
        let object = self.slab.remove(slot);
        if let Some(object) = &object {
            object.set_slot(NO_SLOT);
        }
        object
    }

    /// Takes up to `n` requests off a key's waiting list.
    pub(crate) fn rush(&mut self, key: &Key, n: usize, deferred: &mut DeferredWork) -> usize {
        let Some(list) = self.waiting.get_mut(key) else { return 0 };
        let n = n.min(list.len());
        deferred.waiters.extend(list.drain(..n));
        if list.is_empty() {
            self.waiting.remove(key);
        }
        n
    }

    fn last(&self, key: &Key) -> u32 {
        let mut last = NONE;
        let mut slot = self.first(key);
        while slot != NONE {
            last = slot;
            slot = self.slab.get(slot).next;
        }
        last
    }

    fn link_first(&mut self, slot: u32) {
        let key = self.slab.get(slot).key;
        let slab = &self.slab;
        let same = |&s: &u32| slab.get(s).key == key;
        let old = match self.table.entry(hash(&key), same, |&s| hash(&slab.get(s).key)) {
            Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), slot),
            Entry::Vacant(entry) => {
                entry.insert(slot);
                NONE
            }
        };
        self.slab.get_mut(slot).next = old;
    }

    fn unlink(&mut self, slot: u32) {
        let place = self.slab.get(slot);
        let (key, next) = (place.key, place.next);
        let slab = &self.slab;
        if let Ok(mut entry) = self.table.find_entry(hash(&key), |&s| slab.get(s).key == key) {
            let mut at = *entry.get();
            if at == slot {
                if next == NONE {
                    entry.remove();
                } else {
                    *entry.get_mut() = next;
                }
                return;
            }
            while at != NONE {
                let after = self.slab.get(at).next;
                if after == slot {
                    self.slab.get_mut(at).next = next;
                    return;
                }
                at = after;
            }
        }
    }
}
