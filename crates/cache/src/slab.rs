//! The slots of a shard's objects: 24 bytes each, in blocks that never move, addressed by number.

use std::sync::Arc;

use hashbrown::HashTable;

pub(crate) use crate::object::Key;
use crate::object::Object;

/// The SHA-256 of the data that `vcl_hash` added.
pub type Digest = [u8; 32];

pub(crate) fn key_of(digest: &Digest) -> Key {
    std::array::from_fn(|i| digest[i])
}

pub(crate) const NONE: u32 = u32::MAX;
/// Values of `Slot::timer` that are not a position in the heap.
pub(crate) const NO_TIMER: u32 = u32::MAX;
pub(crate) const BUSY: u32 = u32::MAX - 1;
pub(crate) const FREE: u32 = u32::MAX - 2;

const BLOCK: usize = 256;

/// Returns the part of a key that hash tables use.
pub(crate) fn key_hash(key: &Key) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| key[8 + i]))
}

/// One slot: it contains an object, belongs to a fetch that will bring one, or is free. The key is in the record of the
/// object, or in the slab's table of fetches.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) hash: u64,
    pub(crate) object: Option<Arc<Object>>,
    /// The next slot of the same key, or of the free list.
    pub(crate) next: u32,
    /// The position in the expiry heap, or one of the constants above.
    pub(crate) timer: u32,
}

const _: () = assert!(size_of::<Slot>() == 24);

impl Slot {
    pub(crate) fn is_busy(&self) -> bool {
        self.timer == BUSY
    }
}

/// The fetch that a slot belongs to.
#[derive(Debug)]
struct Fetch {
    slot: u32,
    /// The slot of the fetch before it in the list of its key, or `NONE` if that is an object or there is none.
    previous: u32,
    key: Key,
}

fn busy_hash(slot: u32) -> u64 {
    (u64::from(slot) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29)
}

/// The slots of a shard.
#[derive(Debug)]
pub(crate) struct Slab {
    blocks: Vec<Box<[Slot; BLOCK]>>,
    /// By their slots.
    fetches: HashTable<Fetch>,
    free: u32,
    len: u32,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self { blocks: Vec::new(), fetches: HashTable::new(), free: NONE, len: 0 }
    }

    pub(crate) fn get(&self, slot: u32) -> &Slot {
        &self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }

    /// Returns whether the slot (still) contains the object of this transaction.
    pub(crate) fn holds(&self, slot: u32, vxid: u64) -> bool {
        slot < self.end() && self.get(slot).object.as_ref().is_some_and(|o| o.vxid() == vxid)
    }

    /// Returns a bound that exceeds all slot numbers.
    pub(crate) fn end(&self) -> u32 {
        (self.blocks.len() * BLOCK) as u32
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Returns the key of a slot in use.
    pub(crate) fn key(&self, slot: u32) -> Key {
        match &self.get(slot).object {
            Some(object) => object.key(),
            None => self.fetch(slot).map_or([0; 24], |fetch| fetch.key),
        }
    }

    fn fetch(&self, slot: u32) -> Option<&Fetch> {
        self.fetches.find(busy_hash(slot), |fetch| fetch.slot == slot)
    }

    /// Returns the slot of the fetch before a fetch in the list of its key, or `NONE`.
    pub(crate) fn previous_fetch(&self, slot: u32) -> u32 {
        self.fetch(slot).map_or(NONE, |fetch| fetch.previous)
    }

    /// Sets the slot of the fetch before a fetch in the list of its key. Does nothing for `NONE`.
    pub(crate) fn set_previous_fetch(&mut self, slot: u32, previous: u32) {
        if slot != NONE
            && let Some(fetch) = self.fetches.find_mut(busy_hash(slot), |fetch| fetch.slot == slot)
        {
            fetch.previous = previous;
        }
    }

    /// Returns whether a slot in use has this key.
    pub(crate) fn has_key(&self, slot: u32, key: &Key) -> bool {
        self.get(slot).hash == key_hash(key) && self.key(slot) == *key
    }

    /// Takes a slot for a fetch.
    pub(crate) fn insert_busy(&mut self, key: Key) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.free;
        let entry = self.get_mut(slot);
        let next = entry.next;
        *entry = Slot { hash: key_hash(&key), object: None, next: NONE, timer: BUSY };
        self.free = next;
        self.len += 1;
        let fetch = Fetch { slot, previous: NONE, key };
        self.fetches.insert_unique(busy_hash(slot), fetch, |fetch| busy_hash(fetch.slot));
        slot
    }

    /// Puts an object into the slot of its fetch. The object gets the key of the slot.
    pub(crate) fn fill(&mut self, slot: u32, object: Arc<Object>) {
        if let Some(key) = self.take_busy(slot) {
            object.set_key(&key);
        }
        let entry = self.get_mut(slot);
        entry.object = Some(object);
        entry.timer = NO_TIMER;
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Arc<Object>> {
        let free = self.free;
        if self.get(slot).object.is_none() {
            self.take_busy(slot);
        }
        let entry = self.get_mut(slot);
        entry.next = free;
        entry.timer = FREE;
        let object = entry.object.take();
        self.free = slot;
        self.len -= 1;
        object
    }

    fn take_busy(&mut self, slot: u32) -> Option<Key> {
        let found = self.fetches.find_entry(busy_hash(slot), |fetch| fetch.slot == slot).ok()?;
        Some(found.remove().0.key)
    }

    fn grow(&mut self) {
        let first = self.end();
        let block = std::array::from_fn(|i| {
            let next = if i + 1 < BLOCK { first + i as u32 + 1 } else { NONE };
            Slot { hash: 0, object: None, next, timer: FREE }
        });
        self.blocks.push(Box::new(block));
        self.free = first;
    }
}
