//! The slots of a shard's objects: 40 bytes each, in blocks that never move, addressed by number.

use std::sync::Arc;

use crate::object::Object;

/// The SHA-256 of the data that `vcl_hash` added.
pub type Digest = [u8; 32];

/// The part of the digest that identifies a key: finding a collision takes about 2^96 attempts.
pub(crate) type Key = [u8; 24];

pub(crate) fn key_of(digest: &Digest) -> Key {
    std::array::from_fn(|i| digest[i])
}

pub(crate) const NONE: u32 = u32::MAX;
/// Values of `Slot::timer` that are not a position in the heap.
pub(crate) const NO_TIMER: u32 = u32::MAX;
pub(crate) const BUSY: u32 = u32::MAX - 1;
pub(crate) const FREE: u32 = u32::MAX - 2;

const BLOCK: usize = 128;

/// One slot: it contains an object, belongs to a fetch that will bring one, or is free.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    pub(crate) object: Option<Arc<Object>>,
    /// The next slot of the same key, or of the free list.
    pub(crate) next: u32,
    /// The position in the expiry heap, or one of the constants above.
    pub(crate) timer: u32,
}

const _: () = assert!(size_of::<Slot>() == 40);

impl Slot {
    pub(crate) fn is_busy(&self) -> bool {
        self.timer == BUSY
    }
}

/// The slots of a shard.
#[derive(Debug)]
pub(crate) struct Slab {
    blocks: Vec<Box<[Slot; BLOCK]>>,
    free: u32,
    len: u32,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self { blocks: Vec::new(), free: NONE, len: 0 }
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

    pub(crate) fn insert(&mut self, key: Key, object: Option<Arc<Object>>, timer: u32) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.free;
        let entry = self.get_mut(slot);
        let next = entry.next;
        *entry = Slot { key, object, next: NONE, timer };
        self.free = next;
        self.len += 1;
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Arc<Object>> {
        let free = self.free;
        let entry = self.get_mut(slot);
        entry.next = free;
        entry.timer = FREE;
        let object = entry.object.take();
        self.free = slot;
        self.len -= 1;
        object
    }

    fn grow(&mut self) {
        let first = self.end();
        let block = std::array::from_fn(|i| {
            let next = if i + 1 < BLOCK { first + i as u32 + 1 } else { NONE };
            Slot { key: [0; 24], object: None, next, timer: FREE }
        });
        self.blocks.push(Box::new(block));
        self.free = first;
    }
}
