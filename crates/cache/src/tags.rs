//! The index of objects by tag, for purges: an object has many tags, and a tag has many objects. The index contains
//! slot ids. The shard records the tags of each slot that has some, so that they are removed with the object. An
//! object without tags costs one bit.
//!
//! A part of this index is locked after a shard, and at most one part at a time. A purge copies the slot ids of a
//! tag, then checks under each shard's lock whether the object there still has the tag.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::Mutex;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::stats::{add, sub};

const PARTS: usize = 64;

/// A tag as the index contains it: a hash with a secret of this process, or of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(pub(crate) u64);

/// The slot ids of the objects with a tag. Most tags are either rare or very common.
#[derive(Debug)]
enum SlotIds {
    One(u32),
    Many(HashTable<u32>),
}

fn slot_hash(id: u32) -> u64 {
    (u64::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29)
}

impl SlotIds {
    /// Adds an id that is not in the set.
    fn insert(&mut self, id: u32) {
        if let Self::One(first) = *self {
            let mut many = HashTable::with_capacity(2);
            many.insert_unique(slot_hash(first), first, |p| slot_hash(*p));
            *self = Self::Many(many);
        }
        if let Self::Many(many) = self {
            many.insert_unique(slot_hash(id), id, |p| slot_hash(*p));
        }
    }

    /// Removes an id. Returns whether the set is empty now.
    fn remove(&mut self, id: u32) -> bool {
        match self {
            Self::One(only) => *only == id,
            Self::Many(many) => {
                if let Ok(found) = many.find_entry(slot_hash(id), |&p| p == id) {
                    found.remove();
                }
                if many.capacity() > 64 && many.len() < many.capacity() / 4 {
                    many.shrink_to(many.len() * 2, |p| slot_hash(*p));
                }
                many.is_empty()
            }
        }
    }

    fn list(&self) -> Vec<u32> {
        match self {
            Self::One(only) => vec![*only],
            Self::Many(many) => many.iter().copied().collect(),
        }
    }
}

#[derive(Debug)]
struct Tagged {
    tag: u64,
    ids: SlotIds,
}

/// The size of the index.
#[derive(Debug, Default)]
pub struct TagStats {
    /// The number of distinct tags of all objects.
    pub tags: AtomicU64,
    /// The number of pairs of a tag and an object.
    pub entries: AtomicU64,
    /// The number of objects with tags.
    pub objects: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct TagIndex {
    secret: u64,
    parts: Box<[Mutex<HashTable<Tagged>>]>,
    pub(crate) stats: TagStats,
}

impl TagIndex {
    /// Creates an empty index. The tags of objects that are taken over were made with the `secret` of their store.
    pub(crate) fn new(secret: Option<u64>) -> Self {
        Self {
            secret: secret.unwrap_or_else(|| RandomState::new().hash_one(0)),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            stats: TagStats::default(),
        }
    }

    pub(crate) fn tag(&self, word: &[u8]) -> Tag {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.secret);
        hasher.write(word);
        Tag(hasher.finish())
    }

    fn part(&self, tag: Tag) -> &Mutex<HashTable<Tagged>> {
        // The hash table uses the other bits.
        &self.parts[(tag.0 >> 24) as usize % PARTS]
    }

    /// Adds an object with these tags, without duplicates. The caller holds the lock of the shard.
    pub(crate) fn insert(&self, id: u32, tags: &[Tag]) {
        for &tag in tags {
            let mut part = self.part(tag).lock();
            match part.entry(tag.0, |t| t.tag == tag.0, |t| t.tag) {
                Entry::Occupied(mut known) => known.get_mut().ids.insert(id),
                Entry::Vacant(new) => {
                    new.insert(Tagged { tag: tag.0, ids: SlotIds::One(id) });
                    add(&self.stats.tags, 1);
                }
            }
        }
        add(&self.stats.entries, tags.len() as u64);
        add(&self.stats.objects, 1);
    }

    /// Removes an object with these tags. The caller holds the lock of the shard.
    pub(crate) fn remove(&self, id: u32, tags: &[Tag]) {
        for &tag in tags {
            let mut part = self.part(tag).lock();
            let Ok(mut known) = part.find_entry(tag.0, |t| t.tag == tag.0) else { continue };
            if known.get_mut().ids.remove(id) {
                known.remove();
                sub(&self.stats.tags, 1);
            }
        }
        sub(&self.stats.entries, tags.len() as u64);
        sub(&self.stats.objects, 1);
    }

    /// Returns the slot ids of the objects with the tag. They may be outdated.
    pub(crate) fn slot_ids(&self, tag: Tag) -> Vec<u32> {
        let part = self.part(tag).lock();
        part.find(tag.0, |t| t.tag == tag.0).map_or_else(Vec::new, |t| t.ids.list())
    }
}

impl TagStats {
    /// Returns the numbers of tags, pairs and objects.
    pub fn read(&self) -> [u64; 3] {
        [&self.tags, &self.entries, &self.objects].map(|gauge| gauge.load(Ordering::Relaxed))
    }
}
