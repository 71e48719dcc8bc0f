//! Operations of the cache on all stores: late admission, parameters, and the removal of objects.

use std::sync::Arc;

use lacquer_disk::Meta;

use crate::cache::Cache;
use crate::descriptor::Descriptor;
use crate::disk::Disk;
use crate::disk::content::meta_of;
use crate::object::{Object, flag};
use crate::shard::{DeferredWork, Shard};
use crate::slab::Key;

impl Cache {
    /// Passes an object to the stores on disks that was refused until it is requested again, or of which a store may have a
    /// record, unless it has. The caller holds the lock of its shard.
    #[cold]
    pub(crate) fn commit_requested_again(
        self: &Arc<Self>,
        key: &Key,
        shard: &Shard,
        slot: u32,
        object: &Arc<Object>,
        deferred: &mut DeferredWork,
    ) {
        if self.disks.is_crowded(key, object.stevedore()) {
            return;
        }
        let may_be_stored = object.is(flag::MAY_BE_STORED);
        if may_be_stored && self.disks.iter().any(|disk| disk.store().is_reading_index()) {
            // A store may have it whose index is not read yet.
            return;
        }
        object.clear(flag::ONCE | flag::MAY_BE_STORED);
        if may_be_stored && let Some(disk) = self.disks.find_similar(key, object, &*self.bans.heads) {
            return self.compare_with_disk(disk, object);
        }
        deferred.dropped.extend(self.pass_to_disks(key, shard, slot, object));
    }

    /// Passes an object to the stores on disks, unless a store with a similar one has the object itself. That is read on
    /// another thread.
    fn compare_with_disk(self: &Arc<Self>, disk: usize, object: &Arc<Object>) {
        let Some(found) = self.disks.get(disk) else { return };
        let (cache, object) = (Arc::downgrade(self), Arc::clone(object));
        found.running.read(move || {
            if let Some(cache) = cache.upgrade()
                && !cache.has_on_disk(disk, &object)
            {
                cache.commit_to_disks(&object);
            }
        });
    }

    /// Returns whether a store contains an object.
    fn has_on_disk(&self, disk: usize, object: &Object) -> bool {
        let Some(store) = self.disks.get(disk).map(Disk::store) else { return false };
        let key = object.key();
        let Meta { variant, .. } = meta_of(key, object, &*self.bans.heads);
        // Of any time.
        let found = store.candidates_of(&key, 0.0, &[variant]);
        let same = found.iter().filter(|candidate| candidate.entry.variant == variant);
        let loaded = same.filter_map(|candidate| store.load(candidate, &key));
        let is_it = |found: Descriptor| found.vxid == object.vxid() && found.t_origin == object.t_origin();
        loaded.into_iter().any(|loaded| Descriptor::read(loaded.fields().descriptor).is_ok_and(is_it))
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
