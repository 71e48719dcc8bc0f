//! The cache as the owner of a store: objects in memory stay on the disk, and a segment is not reused while a body in it
//! belongs to an object in memory.

use std::sync::Weak;

use lacquer_disk::Owner;

use crate::cache::Cache;
use crate::disk::search::split_head;
use crate::object::{Object, flag};
use crate::shard::DeferredWork;
use crate::slab::{Key, NONE};

/// The cache above a store.
pub(crate) struct CacheOwner {
    pub(crate) cache: Weak<Cache>,
    /// The index of the store.
    pub(crate) disk: usize,
}

impl CacheOwner {
    /// Drops the objects with a key whose bodies are on a device, and passes the others to `each`.
    fn drop_bodies(&self, key: &Key, each: impl Fn(&Object)) {
        let Some(cache) = self.cache.upgrade() else { return };
        let mut deferred = DeferredWork::default();
        let mut shard = cache.shard(key).lock();
        let mut next = shard.first(key);
        while next != NONE {
            let slot = next;
            let entry = shard.slab.get(slot);
            next = entry.next;
            match &entry.object {
                Some(object) if object.stored().is_on_device() => {
                    cache.remove(&mut shard, slot, &mut deferred);
                }
                Some(object) => each(object),
                None => {}
            }
        }
        drop(shard);
        deferred.run();
    }
}

impl Owner for CacheOwner {
    fn is_used(&self, key: &Key) -> bool {
        let Some(cache) = self.cache.upgrade() else { return false };
        let shard = cache.shard(key).lock();
        shard
            .slots(key)
            .any(|slot| shard.slab.get(slot).object.as_ref().is_some_and(|object| object.hits() > 0))
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) -> bool {
        let Some(cache) = self.cache.upgrade() else { return false };
        let Some((_, head)) = split_head(head) else { return false };
        cache.bans.heads.tags(head, each);
        true
    }

    fn forget(&self, key: &Key) {
        self.drop_bodies(key, |_| {});
    }

    fn evicted(&self, key: &Key) {
        // What was requested before had its chance to be written again: a memory that is larger than the disk would
        // otherwise write all the time.
        let wait_for_hit = |object: &Object| {
            if object.hits() == 0 {
                object.set(flag::ONCE | flag::MAY_BE_STORED);
            }
        };
        self.drop_bodies(key, wait_for_hit);
    }

    fn failed(&self, is_invalid: bool) {
        let Some(cache) = self.cache.upgrade() else { return };
        if let Some(disk) = cache.disks.get(self.disk) {
            (disk.failed)(is_invalid);
        }
    }
}
