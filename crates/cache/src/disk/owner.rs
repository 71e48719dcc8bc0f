//! The cache as the owner of a store: objects in memory stay on the disk, and a segment is not reused while a body in it
//! belongs to an object in memory.

use std::sync::{Arc, Weak};

use lacquer_disk::{Owner, Running};
use lacquer_storage::BodyState;

use crate::cache::Cache;
use crate::disk::extent::store_of;
use crate::disk::search::split_head;
use crate::disk::variant;
use crate::object::{Object, flag};
use crate::shard::DeferredWork;
use crate::slab::{Key, NONE};

/// The number of slots of a shard that are visited while it is locked.
const SLOTS: u32 = 1024;

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
        if let Some(cache) = self.cache.upgrade() {
            cache.drop_bodies(key, |_| true);
        }
    }

    fn let_go(&self, key: &Key) -> bool {
        let Some(cache) = self.cache.upgrade() else { return false };
        let Some(disk) = cache.disks.get(self.disk) else { return false };
        let mut was_hit = false;
        cache.drop_bodies(key, |object| {
            let is_meant = Arc::strong_count(object) == 1
                && store_of(object).is_some_and(|found| Arc::ptr_eq(found, &disk.running));
            was_hit |= is_meant && object.hits() > 0;
            is_meant
        });
        was_hit
    }

    /// An object in memory that was not hit yet was written, and is on no disk now. It is written again at its first hit.
    fn evicted(&self, key: &Key, variant: u32) {
        self.forget(key);
        let Some(cache) = self.cache.upgrade() else { return };
        let shard = cache.shard(key).lock();
        for slot in shard.slots(key) {
            let Some(object) = &shard.slab.get(slot).object else { continue };
            let is_meant = object.hits() == 0
                && object.state() == BodyState::Complete
                && !object.is(flag::NEVER_STORED)
                && !object.stored().is_on_device()
                && cache.disks.is_behind(object.stevedore())
                && variant::of(&*cache.bans.heads, object.vary().unwrap_or_default()) == variant;
            if is_meant {
                object.set_all(flag::ONCE | flag::MAY_BE_STORED);
                cache.bump_generation(key);
            }
        }
    }

    fn failed(&self, is_invalid: bool) {
        let Some(cache) = self.cache.upgrade() else { return };
        if let Some(disk) = cache.disks.get(self.disk) {
            (disk.failed)(is_invalid);
            cache.drop_bodies_of(&disk.running);
        }
    }
}

impl Cache {
    /// Removes those objects with a key whose bodies are on a device.
    fn drop_bodies(&self, key: &Key, mut is_meant: impl FnMut(&Arc<Object>) -> bool) {
        let mut deferred = DeferredWork::default();
        let mut shard = self.shard(key).lock();
        let mut next = shard.first(key);
        while next != NONE {
            let slot = next;
            let entry = shard.slab.get(slot);
            next = entry.next;
            let on_device = entry.object.as_ref().filter(|object| object.stored().is_on_device());
            if on_device.is_some_and(&mut is_meant) {
                self.remove(&mut shard, slot, &mut deferred);
            }
        }
        drop(shard);
        deferred.run();
    }

    /// Removes the objects whose bodies are in a store that has failed.
    fn drop_bodies_of(&self, running: &Arc<Running>) {
        for shard in &self.shards {
            let mut next = 0;
            loop {
                let mut deferred = DeferredWork::default();
                let is_last = {
                    let mut shard = shard.lock();
                    let end = shard.slab.end().min(next + SLOTS);
                    for slot in next..end {
                        let object = shard.slab.get(slot).object.as_deref();
                        if object.and_then(store_of).is_some_and(|found| Arc::ptr_eq(found, running)) {
                            self.remove(&mut shard, slot, &mut deferred);
                        }
                    }
                    next = end;
                    end == shard.slab.end()
                };
                deferred.run();
                if is_last {
                    break;
                }
            }
        }
    }
}
