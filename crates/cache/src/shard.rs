//! A shard: a part of the index under one lock. It contains the slots of each key in order, their expiry times, and
//! the waiting requests. The newest published object comes first; fetches in progress come last, the newest of them first.
//!
//! Many fetches of one key may be in progress at a time, so each records the one before it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lacquer_disk::Dropped;
use lacquer_flow::lookup::Limits;

use crate::bans::HeadReader;
use crate::heap::Heap;
use crate::key_purges::KeyPurges;
use crate::object::{NO_SLOT, Object, flag};
use crate::slab::{Key, NONE, Slab, key_hash};
use crate::tags::Tag;
use crate::waiter::{Waiter, WaitingList};

/// The number of shards.
pub(crate) const SHARDS: usize = 64;
/// The number of slots behind a marker in which others are searched for.
const MARKER_REACH: usize = 16;

/// Returns the index of the shard of a key.
pub(crate) fn shard_index(key: &Key) -> usize {
    usize::from(key[0]) % SHARDS
}

/// Work that must wait until the shard is unlocked.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) dropped: Vec<Dropped>,
    pub(crate) waiters: Vec<Arc<Waiter>>,
}

impl DeferredWork {
    pub(crate) fn run(self) {
        for waiter in self.waiters {
            waiter.wake();
        }
    }
}

/// Returns whether the next process takes an object for older than another.
fn comes_before(object: &Object, other: &Object) -> bool {
    object.t_origin().total_cmp(&other.t_origin()).then(object.vxid().cmp(&other.vxid())).is_lt()
}

/// The objects of a key that a request may match which matches another one: no header by which both vary has another value.
pub(crate) struct Rivals<'a> {
    vary: Option<&'a [u8]>,
    heads: &'a dyn HeadReader,
    /// The lower-case names of the headers by which the object varies, and their values.
    wanted: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl<'a> Rivals<'a> {
    pub(crate) fn of(object: &'a Object, heads: &'a dyn HeadReader) -> Self {
        let mut wanted = Vec::new();
        heads.vary(object.vary().unwrap_or_default(), &mut |name, value| {
            wanted.push((name.to_ascii_lowercase(), value.map(<[u8]>::to_vec)));
        });
        Self { vary: object.vary(), heads, wanted }
    }

    pub(crate) fn contain(&self, object: &Object) -> bool {
        if self.vary == object.vary() {
            return true;
        }
        let mut is_other = false;
        self.heads.vary(object.vary().unwrap_or_default(), &mut |name, value| {
            let same = self.wanted.iter().find(|(other, _)| name.eq_ignore_ascii_case(other));
            is_other |= same.is_some_and(|(_, other)| other.as_deref() != value);
        });
        !is_other
    }
}

/// Returns whether a request may match both objects of a key.
fn are_rivals(a: &Object, b: &Object, heads: &dyn HeadReader) -> bool {
    a.vary() == b.vary() || Rivals::of(a, heads).contain(b)
}

#[derive(Debug)]
pub(crate) struct Shard {
    /// The first slot of each key.
    table: HashTable<u32>,
    pub(crate) slab: Slab,
    pub(crate) heap: Heap,
    /// The Vary specifications that the responses of fetches in progress are expected to have, by slot.
    pub(crate) predicted: HashMap<u32, Box<[u8]>>,
    /// The tags of objects that have tags, by slot.
    pub(crate) tags: HashMap<u32, Box<[Tag]>>,
    /// The lists that are not empty.
    pub(crate) waiting: HashMap<Key, WaitingList>,
    /// The slot that eviction visits next.
    pub(crate) hand: u32,
    /// Slot and VXID of objects with pages of their own, oldest first. Entries may refer to objects that are gone.
    pub(crate) large: VecDeque<(u32, u64)>,
    pub(crate) purges: KeyPurges,
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
            purges: KeyPurges::default(),
        }
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.table.len()
    }

    /// Returns the slots of a key, the newest first.
    pub(crate) fn slots(&self, key: &Key) -> impl Iterator<Item = u32> {
        let slot = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(slot(self.first(key)), move |&at| slot(self.slab.get(at).next))
    }

    /// Returns the first slot of a key, or `NONE`.
    pub(crate) fn first(&self, key: &Key) -> u32 {
        self.table.find(key_hash(key), |&s| self.slab.has_key(s, key)).copied().unwrap_or(NONE)
    }

    /// Returns the object in a slot, if it is the object of this transaction.
    pub(crate) fn object(&self, slot: u32, vxid: u64) -> Option<&Arc<Object>> {
        self.slab.holds(slot, vxid).then(|| self.slab.get(slot).object.as_ref())?
    }

    /// Returns the tags of the object in a slot.
    pub(crate) fn tags_of(&self, slot: u32) -> &[Tag] {
        self.tags.get(&slot).map_or(&[], |tags| tags)
    }

    /// Adds a slot for a fetch to the list of the key, behind the objects.
    pub(crate) fn insert_busy(&mut self, key: Key) -> u32 {
        let slot = self.slab.insert_busy(key);
        let last = self.last_object(&key);
        if last == NONE {
            self.link_first(slot, &key);
        } else {
            let next = std::mem::replace(&mut self.slab.get_mut(last).next, slot);
            self.slab.get_mut(slot).next = next;
        }
        self.slab.set_previous_fetch(self.slab.get(slot).next, slot);
        slot
    }

    /// Puts the object into the slot of its fetch and moves the slot to the front of the key's list.
    pub(crate) fn publish(&mut self, slot: u32, object: Arc<Object>) {
        let key = self.slab.key(slot);
        self.move_first(slot, &key);
        self.slab.fill(slot, object);
        self.drop_predicted(slot);
    }

    fn drop_predicted(&mut self, slot: u32) {
        if !self.predicted.is_empty() {
            self.predicted.remove(&slot);
        }
    }

    /// Makes the object in a slot, which is the first of its key, valid for the next process, as [`keep`](Self::keep) does.
    #[inline]
    pub(crate) fn keep_first(&self, slot: u32, heads: &dyn HeadReader) {
        let entry = self.slab.get(slot);
        if entry.next != NONE {
            return self.keep(slot, heads);
        }
        if let Some(object) = entry.object.as_ref().filter(|object| object.is_keepable()) {
            object.keep(self.tags_of(slot));
        }
    }

    /// Makes the object in a slot valid for the next process. That process orders objects by the times of their origin, so
    /// of two objects that the same requests may match, only the one that was published last stays valid if its time is the
    /// earlier one.
    pub(crate) fn keep(&self, slot: u32, heads: &dyn HeadReader) {
        let Some(object) = &self.slab.get(slot).object else { return };
        if !object.is_keepable() {
            return;
        }
        let key = self.slab.key(slot);
        let (mut is_older, mut replaced) = (false, Vec::new());
        for other in self.slots(&key) {
            if other == slot {
                is_older = true;
                continue;
            }
            let Some(found) = &self.slab.get(other).object else { continue };
            let (first, last) = if is_older { (found, object) } else { (object, found) };
            if !comes_before(last, first) || !are_rivals(first, last, heads) {
                continue;
            }
            if is_older {
                replaced.push(found);
            } else if found.is_keepable() {
                return;
            }
        }
        object.keep(self.tags_of(slot));
        for old in replaced {
            old.stored().forget();
        }
    }

    /// Returns the slots of the older objects of its key that the object in a slot replaces: no request finds them while it
    /// exists. Parts wait for others.
    pub(crate) fn replaced_by(&self, slot: u32, object: &Object, heads: &dyn HeadReader) -> Vec<u32> {
        let following = |&at: &u32| Some(self.slab.get(at).next).filter(|&next| next != NONE);
        let mut older = std::iter::successors(following(&slot), following).peekable();
        if older.peek().is_none() {
            return Vec::new();
        }
        let rivals = Rivals::of(object, heads);
        let is_replaced =
            |old: &Object| !old.is(flag::PART) && old.expires() <= object.expires() && rivals.contain(old);
        older.filter(|&at| self.slab.get(at).object.as_deref().is_some_and(is_replaced)).collect()
    }

    /// Returns a marker shortly behind that in a slot which no request finds while the latter exists: it has the same variant,
    /// and neither its ttl nor its keep ends later.
    pub(crate) fn hidden_marker(&self, slot: u32) -> Option<u32> {
        let ends = |object: &Object| [object.fresh_until(Limits::NONE), object.expires()];
        let object = |slot: u32| self.slab.get(slot).object.as_ref();
        let marker = object(slot).filter(|marker| marker.timers().ttl > 0.0)?;
        let [fresh_until, expires] = ends(marker);
        let next = |&slot: &u32| Some(self.slab.get(slot).next).filter(|&next| next != NONE);
        let is_hidden = |&slot: &u32| {
            object(slot).is_some_and(|old| {
                let [old_fresh_until, old_expires] = ends(old);
                let ends_before = old_fresh_until <= fresh_until && old_expires <= expires;
                old.is(flag::HFM) && old.vary() == marker.vary() && ends_before
            })
        };
        std::iter::successors(next(&slot), next).take(MARKER_REACH).find(is_hidden)
    }

    /// Removes a slot from the list of its key, the heap and the slab.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Arc<Object>> {
        let key = self.slab.key(slot);
        self.unlink(slot, &key);
        if self.slab.get(slot).is_busy() {
            self.drop_predicted(slot);
        } else {
            self.heap.remove(&mut self.slab, slot);
        }
        let object = self.slab.remove(slot);
        if let Some(object) = &object {
            object.set_slot(NO_SLOT);
        }
        object
    }

    /// Removes the slot of a fetch without a result. Returns the number by which requests that wait for it are found now.
    pub(crate) fn end_fetch(&mut self, key: &Key, slot: u32) -> u32 {
        self.remove(slot);
        self.waiting.get_mut(key).map_or(slot, |list| list.end_fetch(slot))
    }

    /// Makes the requests that wait for a fetch of the key wait for another one, if the former has ended.
    pub(crate) fn replace_fetch(&mut self, key: &Key, old: u32, new: u32) {
        let in_use = old < self.slab.end() && self.slab.get(old).is_busy();
        let is_running = in_use && self.slab.has_key(old, key);
        if !is_running && let Some(list) = self.waiting.get_mut(key) {
            list.replace_fetch(old, new);
        }
    }

    /// Moves up to `n` requests from a key's waiting list to the deferred work, first those that wait for a fetch. Returns
    /// their number.
    pub(crate) fn rush(&mut self, key: &Key, fetch: u32, n: usize, deferred: &mut DeferredWork) -> usize {
        let Some(list) = self.waiting.get_mut(key) else { return 0 };
        let before = deferred.waiters.len();
        list.take(fetch, n, &mut deferred.waiters);
        if list.is_empty() {
            self.waiting.remove(key);
        }
        deferred.waiters.len() - before
    }

    fn last_object(&self, key: &Key) -> u32 {
        self.slots(key).take_while(|&slot| !self.slab.get(slot).is_busy()).last().unwrap_or(NONE)
    }

    fn link_first(&mut self, slot: u32, key: &Key) {
        let slab = &self.slab;
        let same = |&s: &u32| slab.has_key(s, key);
        let old = match self.table.entry(key_hash(key), same, |&s| slab.get(s).hash) {
            Entry::Occupied(mut entry) => std::mem::replace(entry.get_mut(), slot),
            Entry::Vacant(entry) => {
                entry.insert(slot);
                NONE
            }
        };
        self.slab.get_mut(slot).next = old;
    }

    /// Moves the slot of a fetch to the front of the list of its key.
    fn move_first(&mut self, slot: u32, key: &Key) {
        let Self { table, slab, .. } = self;
        let Some(first) = table.find_mut(key_hash(key), |&s| slab.has_key(s, key)) else { return };
        let old = std::mem::replace(first, slot);
        cut_out(slab, slot, old);
        if old != slot {
            slab.get_mut(slot).next = old;
        }
    }

    fn unlink(&mut self, slot: u32, key: &Key) {
        let Self { table, slab, .. } = self;
        let Ok(mut entry) = table.find_entry(key_hash(key), |&s| slab.has_key(s, key)) else { return };
        let first = *entry.get();
        let next = slab.get(slot).next;
        if first == slot && next == NONE {
            entry.remove();
            return;
        }
        if first == slot {
            *entry.get_mut() = next;
        }
        cut_out(slab, slot, first);
    }
}

/// Makes the neighbours of a slot in the list of its key, which begins with `first`, follow each other.
fn cut_out(slab: &mut Slab, slot: u32, first: u32) {
    let entry = slab.get(slot);
    let (next, is_busy) = (entry.next, entry.is_busy());
    if first == slot && next == NONE {
        return;
    }
    let previous = if is_busy { slab.previous_fetch(slot) } else { NONE };
    if is_busy {
        slab.set_previous_fetch(next, previous);
    }
    if first == slot {
        return;
    }
    let before = if previous == NONE {
        let following = |&at: &u32| Some(slab.get(at).next).filter(|&next| next != NONE);
        std::iter::successors(Some(first), following).find(|&at| slab.get(at).next == slot)
    } else {
        Some(previous)
    };
    if let Some(before) = before {
        slab.get_mut(before).next = next;
    }
}
