//! Parts: objects with a part of the body of a response, which stay in the index until a later fetch completes or
//! replaces them.
//!
//! A part is marked as failed. Lookups skip it, so it is never delivered, and neither the disks nor the next process get
//! it. Purges, bans, eviction and expiry treat it like any other object of its key. A range of it is delivered as a copy.

use std::sync::Arc;

use lacquer_storage::{BodyState, BodyWriter, Stevedore};

use crate::alloc::Nuke;
use crate::busy::Busy;
use crate::cache::Cache;
use crate::object::{Key, Object, ObjectSpec, flag};
use crate::shard::Shard;

impl Cache {
    /// Ends the body of an object as failed, and keeps the object in the index as a part. An object that has left the
    /// index is only ended.
    pub fn keep_part(&self, object: &Arc<Object>, writer: BodyWriter) {
        // Before the body fails: a lookup removes failed objects without this mark.
        if self.within_index(object, |_, _| object.set(flag::FAILED)).is_none() {
            return;
        }
        writer.cut();
        self.within_index(object, |_, key| {
            object.set(flag::PART);
            self.bump_generation(key);
        });
    }

    /// Returns the other parts of the same key and variant, newest first.
    pub fn other_parts(&self, object: &Arc<Object>) -> Vec<Arc<Object>> {
        let is_other = |other: &Arc<Object>| !Arc::ptr_eq(other, object) && other.vary() == object.vary();
        self.within_index(object, |shard, key| parts(shard, key, &is_other)).unwrap_or_default()
    }

    /// Creates an object for one request, with some bytes of a part. Returns `None` if there is no room, or if the part
    /// does not have these bytes.
    pub fn copy_of_part(
        &self,
        stevedore: &Stevedore,
        wanted: PartCopy<'_>,
        nuke: &mut Nuke<'_>,
    ) -> Option<Arc<Object>> {
        let PartCopy { part, from, length, head } = wanted;
        let body = bytes(part, from, length)?;
        let spec =
            ObjectSpec { flags: flag::HFM | flag::PRIVATE, vary: b"", head, extra: b"", ..spec_of(part) };
        let object = self.create(stevedore, &spec, &body, nuke).ok()?;
        part.hit(1);
        object.count_hits(part.hits());
        Some(object)
    }

    /// Calls `change` under the lock of the object's shard, if the object is in the index and stays there.
    fn within_index<T>(&self, object: &Arc<Object>, change: impl FnOnce(&Shard, &Key) -> T) -> Option<T> {
        let (shard, slot) = self.locate(object)?;
        let shard = shard.lock();
        let is_there = shard.object(slot, object.vxid()).is_some_and(|found| Arc::ptr_eq(found, object));
        if !is_there || object.is(flag::DYING) {
            return None;
        }
        Some(change(&shard, &object.key()))
    }
}

/// Some bytes of a part, which an object for one request gets.
#[derive(Clone, Copy, Debug)]
pub struct PartCopy<'p> {
    pub part: &'p Object,
    /// The position within the part.
    pub from: u64,
    pub length: u64,
    /// The packed head of the object.
    pub head: &'p [u8],
}

/// Returns the times of a part, for an object with its bytes.
fn spec_of(part: &Object) -> ObjectSpec<'static> {
    ObjectSpec {
        vxid: part.vxid(),
        t_origin: part.t_origin(),
        timers: part.timers(),
        flags: 0,
        last_modified: part.last_modified(),
        vary: b"",
        head: b"",
        extra: b"",
    }
}

/// Returns some bytes of a part. Returns `None` if it does not have them.
fn bytes(part: &Object, from: u64, length: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok()?;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let chunk = part.chunk_at(from.checked_add(bytes.len() as u64)?)?;
        let most = chunk.bytes().len().min(length - bytes.len());
        bytes.extend_from_slice(&chunk.bytes()[..most]);
    }
    Some(bytes)
}

/// Returns the parts under a key that `is_wanted` accepts, newest first. A part is one when its body has ended.
fn parts(shard: &Shard, key: &Key, is_wanted: &dyn Fn(&Arc<Object>) -> bool) -> Vec<Arc<Object>> {
    let objects = shard.slots(key).filter_map(|slot| shard.slab.get(slot).object.as_ref());
    let ended = |object: &&Arc<Object>| object.is(flag::PART) && object.state() != BodyState::Fetching;
    let mut parts: Vec<_> = objects.filter(ended).filter(|object| is_wanted(object)).cloned().collect();
    parts.sort_by(|a, b| b.t_origin().total_cmp(&a.t_origin()).then(b.vxid().cmp(&a.vxid())));
    parts
}

impl Busy {
    /// Returns the parts under the key that match a request, by their Vary specifications, newest first. Whether a ban
    /// hits them is not checked.
    pub fn parts(&self, vary: &dyn Fn(&[u8]) -> bool) -> Vec<Arc<Object>> {
        let key = self.key();
        let shard = self.cache().shard(&key).lock();
        parts(&shard, &key, &|object| object.vary().is_none_or(vary))
    }
}
