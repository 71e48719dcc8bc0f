//! The operations of the cache on all stores: it passes objects to them, and removes objects from them.

use std::sync::Arc;

use lacquer_disk::Dropped;

use crate::cache::Cache;
use crate::object::{Object, flag};
use crate::shard::{DeferredWork, Shard};
use crate::slab::Key;
use crate::tags::Tag;

impl Cache {
    /// Passes an object that is in the index to the stores on disks.
    #[inline]
    pub(crate) fn commit_to_disk(&self, object: &Arc<Object>) {
        if !self.disks.is_empty() {
            self.commit_to_disks(object);
        }
    }

    #[cold]
    fn commit_to_disks(&self, object: &Arc<Object>) {
        let Some((shard, slot)) = self.locate(object) else { return };
        let shard = shard.lock();
        if shard.object(slot, object.vxid()).is_some_and(|found| Arc::ptr_eq(found, object)) {
            let key = object.key();
            let dropped = self.pass_to_disks(&key, &shard, slot, object);
            drop(shard);
            drop(dropped);
        }
    }

    /// Passes an object to the stores on disks. The caller holds the lock of its shard.
    fn pass_to_disks(&self, key: &Key, shard: &Shard, slot: u32, object: &Arc<Object>) -> Vec<Dropped> {
        let (heads, tags) = (&*self.bans.heads, shard.tags_of(slot));
        if tags.is_empty() {
            return self.disks.commit(key, shard, slot, object, heads, true);
        }
        let (_no_purge_begins, is_purged) = self.disks.tag_purges.hold(tags);
        if is_purged {
            // If the purge leaves it, because it is newer, it is passed at its next hit.
            object.set(flag::ONCE);
        }
        let is_allowed = !is_purged && self.tags_in(object.head()) == tags;
        self.disks.commit(key, shard, slot, object, heads, is_allowed)
    }

    /// Returns the tags that a head contains, sorted and without duplicates.
    pub(crate) fn tags_in(&self, head: &[u8]) -> Vec<Tag> {
        let mut tags = Vec::new();
        self.bans.heads.tags(head, &mut |word| tags.push(self.tags.tag(word)));
        tags.sort_unstable();
        tags.dedup();
        tags
    }

    /// Passes an object to the stores on disks that was refused until it is requested again. The caller holds the lock
    /// of its shard.
    #[cold]
    pub(crate) fn commit_requested_again(
        &self,
        key: &Key,
        shard: &Shard,
        slot: u32,
        object: &Arc<Object>,
        deferred: &mut DeferredWork,
    ) {
        object.clear(flag::ONCE);
        deferred.dropped.extend(self.pass_to_disks(key, shard, slot, object));
    }

    /// Sets parameter `disk_admission`: the number of requests for an object after which it is written to a disk. A
    /// number above 2 counts as 2.
    pub fn set_disk_admission(&self, requests: u32) {
        if !self.disks.is_empty() {
            self.disks.admission.set_by_second(requests > 1);
        }
    }

    /// Sets parameter `disk_flush_interval`, in seconds.
    pub fn set_disk_flush_interval(&self, seconds: f64) {
        for disk in self.disks.iter() {
            disk.store().set_flush_interval(seconds);
        }
    }

    /// Removes an object that must not be used from the index and from all stores, with all variants of its key there.
    /// Returns whether it was in the index.
    pub fn expel(&self, object: &Object) -> bool {
        let fingerprint = self.fingerprint_of(object);
        let found = self.kill(object);
        drop(self.disks.forget(fingerprint));
        found
    }

    /// Returns the number by which stores on disks find the objects of a key; 0 if there are none.
    pub fn fingerprint_of(&self, object: &Object) -> u64 {
        if self.disks.is_empty() || object.slot_id().is_none() {
            0
        } else {
            lacquer_disk::fingerprint(&object.key())
        }
    }
}
