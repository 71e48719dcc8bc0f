//! Objects by the tags that their origins gave them, to be purged by: many tags for an object, many objects for
//! a tag. An object is known by its place; its shard remembers the tags of each place that has some, so that
//! they go with the object. Objects without tags cost nothing but a bit.
//!
//! A part of this index is locked after a shard, and alone. A purge takes a copy of a tag's places, then asks
//! each shard whether the object there still has the tag.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::locks::Mutex;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::stats::{add, sub};

const PARTS: usize = 64;

/// A tag in the form in which the index holds it: a hash with a secret of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(u64);

/// The places of the objects with a tag. Most tags are either rare or very common.
#[derive(Debug)]
enum Places {
    One(u32),
    Many(HashTable<u32>),
}

fn place_hash(place: u32) -> u64 {
    (u64::from(place) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29)
}

impl Places {
    /// Adds a place that is not in yet.
    fn insert(&mut self, place: u32) {
        if let Self::One(first) = *self {
            let mut many = HashTable::with_capacity(2);
            many.insert_unique(place_hash(first), first, |p| place_hash(*p));
            *self = Self::Many(many);
        }
        if let Self::Many(many) = self {
            many.insert_unique(place_hash(place), place, |p| place_hash(*p));
        }
    }

    /// Takes a place out; returns whether no other is left.
    fn remove(&mut self, place: u32) -> bool {
        match self {
            Self::One(only) => *only == place,
            Self::Many(many) => {
                if let Ok(found) = many.find_entry(place_hash(place), |&p| p == place) {
                    found.remove();
                }
                if many.capacity() > 64 && many.len() < many.capacity() / 4 {
                    many.shrink_to(many.len() * 2, |p| place_hash(*p));
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
    places: Places,
}

/// How much the index holds.
#[derive(Debug, Default)]
pub struct TagStats {
    /// Tags that objects have.
    pub tags: AtomicU64,
    /// Pairs of a tag and an object.
    pub entries: AtomicU64,
    /// Objects with tags.
    pub objects: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct TagIndex {
    secret: RandomState,
    parts: Box<[Mutex<HashTable<Tagged>>]>,
    pub(crate) stats: TagStats,
}

impl TagIndex {
    pub(crate) fn new() -> Self {
        Self {
            secret: RandomState::new(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            stats: TagStats::default(),
        }
    }

    pub(crate) fn tag(&self, word: &[u8]) -> Tag {
        Tag(self.secret.hash_one(word))
    }

    fn part(&self, tag: Tag) -> &Mutex<HashTable<Tagged>> {
        // The table within uses the other bits.
        &self.parts[(tag.0 >> 24) as usize % PARTS]
    }

    /// The place now has an object with these tags, each named once. The caller holds the shard.
    pub(crate) fn insert(&self, place: u32, tags: &[Tag]) {
        for &tag in tags {
            let mut part = self.part(tag).lock();
            match part.entry(tag.0, |t| t.tag == tag.0, |t| t.tag) {
                Entry::Occupied(mut known) => known.get_mut().places.insert(place),
                Entry::Vacant(new) => {
                    new.insert(Tagged { tag: tag.0, places: Places::One(place) });
                    add(&self.stats.tags, 1);
                }
            }
        }
        add(&self.stats.entries, tags.len() as u64);
        add(&self.stats.objects, 1);
    }

    /// The object with these tags leaves the place. The caller holds the shard.
    pub(crate) fn remove(&self, place: u32, tags: &[Tag]) {
        for &tag in tags {
            let mut part = self.part(tag).lock();
            let Ok(mut known) = part.find_entry(tag.0, |t| t.tag == tag.0) else { continue };
            if known.get_mut().places.remove(place) {
                known.remove();
                sub(&self.stats.tags, 1);
            }
        }
        sub(&self.stats.entries, tags.len() as u64);
        sub(&self.stats.objects, 1);
    }

    /// Where objects with the tag are, or were a moment ago.
    pub(crate) fn places(&self, tag: Tag) -> Vec<u32> {
        let part = self.part(tag).lock();
        part.find(tag.0, |t| t.tag == tag.0).map_or_else(Vec::new, |t| t.places.list())
    }
}

impl TagStats {
    /// Tags, pairs and objects.
    pub fn read(&self) -> [u64; 3] {
        [&self.tags, &self.entries, &self.objects].map(|gauge| gauge.load(Ordering::Relaxed))
    }
}
