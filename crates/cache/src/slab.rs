//! Places of objects in a shard: 40 bytes each, in blocks that never move, addressed by number.

use std::sync::Arc;

use crate::object::Object;

/// The SHA-256 of what `vcl_hash` put in.
pub type Digest = [u8; 32];

/// Enough of the digest to distinguish keys: a collision takes 2^96 tries to find.
pub(crate) type Key = [u8; 24];

pub(crate) fn key_of(digest: &Digest) -> Key {
    std::array::from_fn(|i| digest[i])
}

pub(crate) const NONE: u32 = u32::MAX;
/// Values of `Place::timer` that are no position in the heap.
pub(crate) const NO_TIMER: u32 = u32::MAX;
pub(crate) const BUSY: u32 = u32::MAX - 1;
pub(crate) const FREE: u32 = u32::MAX - 2;

const BLOCK: usize = 128;

/// A place: an object, or a fetch that will bring one, or nothing.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: Key,
    pub(crate) object: Option<Arc<Object>>,
    /// The next place of the same key; of the free list, if free.
    pub(crate) next: u32,
    /// Position in the expiry heap, or what else the place is.
    pub(crate) timer: u32,
}

const _: () = assert!(size_of::<Place>() == 40);

impl Place {
    pub(crate) fn is_busy(&self) -> bool {
        self.timer == BUSY
    }
}

/// The places of a shard.
#[derive(Debug)]
pub(crate) struct Slab {
    blocks: Vec<Box<[Place; BLOCK]>>,
    free: u32,
    len: u32,
}

impl Slab {
    pub(crate) fn new() -> Self {
        Self { blocks: Vec::new(), free: NONE, len: 0 }
    }

    pub(crate) fn get(&self, slot: u32) -> &Place {
        &self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Place {
        &mut self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }

    /// Whether the object of a transaction is (still) in a place.
    pub(crate) fn holds(&self, slot: u32, vxid: u64) -> bool {
        slot < self.end() && self.get(slot).object.as_ref().is_some_and(|o| o.vxid() == vxid)
    }

    /// All numbers in use are below this.
    pub(crate) fn end(&self) -> u32 {
        (self.blocks.len() * BLOCK) as u32
    }

    /// Places in use.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn insert(&mut self, key: Key, object: Option<Arc<Object>>, timer: u32) -> u32 {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.free;
        let place = self.get_mut(slot);
        let next = place.next;
        *place = Place { key, object, next: NONE, timer };
        self.free = next;
        self.len += 1;
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Arc<Object>> {
        let free = self.free;
        let place = self.get_mut(slot);
        place.next = free;
        place.timer = FREE;
        let object = place.object.take();
        self.free = slot;
        self.len -= 1;
        object
    }

    fn grow(&mut self) {
        let first = self.end();
        let block = std::array::from_fn(|i| {
            let next = if i + 1 < BLOCK { first + i as u32 + 1 } else { NONE };
            Place { key: [0; 24], object: None, next, timer: FREE }
        });
        self.blocks.push(Box::new(block));
        self.free = first;
    }
}
