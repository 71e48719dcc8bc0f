//! Parts: objects whose bodies were cut short, which stay in the index until a later fetch completes or replaces them.
//!
//! A part is a failed object. Lookups skip it, so it is never delivered, and neither the disks nor the next process
//! get it. Purges, bans, eviction and expiry treat it like any other object of its key.

use std::sync::Arc;

use lacquer_storage::BodyState;

use crate::cache::{Busy, Cache};
use crate::object::{Object, flag};
use crate::shard::DeferredWork;

impl Cache {
    /// Records that the object's fetch failed, and keeps the object in the index as a part, in place of an older part
    /// of the same variant. Does nothing more if the object has left the index. The writer of its body must have ended.
    pub fn keep_part(&self, object: &Arc<Object>) {
        if object.state() != BodyState::Failed {
            return self.fail(object);
        }
        object.set(flag::FAILED);
        let mut deferred = DeferredWork::default();
        let Some((shard, slot)) = self.locate(object) else { return };
        let mut shard = shard.lock();
        let is_there = shard.object(slot, object.vxid()).is_some_and(|found| Arc::ptr_eq(found, object));
        if !is_there || object.is(flag::DYING) {
            return;
        }
        let key = object.key();
        let is_older = |other: &Arc<Object>| {
            !Arc::ptr_eq(other, object) && other.is(flag::PART) && other.vary() == object.vary()
        };
        let slots: Vec<u32> = shard.slots(&key).collect();
        for slot in slots {
            if shard.slab.get(slot).object.as_ref().is_some_and(is_older) {
                self.remove(&mut shard, slot, &mut deferred);
            }
        }
        object.set(flag::PART);
        self.bump_generation(&key);
        drop(shard);
        deferred.run();
    }
}

impl Busy {
    /// Returns the newest part under the key that matches a request, by its Vary specification. Whether a ban hits it
    /// is not checked.
    pub fn part(&self, vary: &dyn Fn(&[u8]) -> bool) -> Option<Arc<Object>> {
        let key = self.key();
        let shard = self.cache().shard(&key).lock();
        let parts = shard.slots(&key).filter_map(|slot| shard.slab.get(slot).object.clone());
        parts
            .filter(|object| object.is(flag::PART) && object.vary().is_none_or(vary))
            .max_by(|a, b| a.t_origin().total_cmp(&b.t_origin()))
    }
}
