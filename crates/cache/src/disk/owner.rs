//! The cache as the owner of a store: objects in memory stay on the disk, and a segment is not reused while a body in it
//! belongs to an object in memory.

use std::sync::Weak;

use lacquer_disk::Owner;

use crate::cache::Cache;
use crate::disk::search::split_head;
use crate::shard::DeferredWork;
use crate::slab::{Key, NONE};

/// The cache above a store.
pub(crate) struct CacheOwner {
    pub(crate) cache: Weak<Cache>,
    /// The index of the store.
    pub(crate) disk: usize,
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
        let Some(cache) = self.cache.upgrade() else { return };
        let mut deferred = DeferredWork::default();
        let mut shard = cache.shard(key).lock();
        let mut next = shard.first(key);
        while next != NONE {
            let slot = next;
            let entry = shard.slab.get(slot);
            next = entry.next;
            if entry.object.as_ref().is_some_and(|object| object.stored().is_on_device()) {
                cache.remove(&mut shard, slot, &mut deferred);
            }
        }
        drop(shard);
        deferred.run();
    }

    fn failed(&self, is_invalid: bool) {
        let Some(cache) = self.cache.upgrade() else { return };
        if let Some(disk) = cache.disks.get(self.disk) {
            (disk.failed)(is_invalid);
        }
    }
}
