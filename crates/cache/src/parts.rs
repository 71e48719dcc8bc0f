//! Parts: objects whose bodies were cut short, which stay in the index until a later fetch completes or replaces them.
//!
//! A part is a failed object. Lookups skip it, so it is never delivered, and neither the disks nor the next process
//! get it. Purges, bans, eviction and expiry treat it like any other object of its key.

use std::sync::Arc;

use lacquer_storage::BodyWriter;

use crate::cache::{Busy, Cache};
use crate::object::{Key, Object, flag};
use crate::shard::{DeferredWork, Shard};

impl Cache {
    /// Ends the body of an object as failed, and keeps the object in the index as a part, in place of older parts of the
    /// same variant. An object that has left the index is only ended.
    pub fn keep_part(&self, object: &Arc<Object>, writer: BodyWriter) {
        // Before the body fails: a lookup removes failed objects without this mark.
        if self.within_index(object, |_, _| object.set(flag::FAILED)).is_none() {
            return;
        }
        writer.cut();
        let mut deferred = DeferredWork::default();
        let is_older = |other: &Arc<Object>| {
            !Arc::ptr_eq(other, object) && other.is(flag::PART) && other.vary() == object.vary()
        };
        self.within_index(object, |shard, key| {
            let slots: Vec<u32> = shard.slots(key).collect();
            for slot in slots {
                if shard.slab.get(slot).object.as_ref().is_some_and(is_older) {
                    self.remove(shard, slot, &mut deferred);
                }
            }
            object.set(flag::PART);
            self.bump_generation(key);
        });
        deferred.run();
    }

    /// Calls `change` under the lock of the object's shard, if the object is in the index and stays there.
    fn within_index(&self, object: &Arc<Object>, change: impl FnOnce(&mut Shard, &Key)) -> Option<()> {
        let (shard, slot) = self.locate(object)?;
        let mut shard = shard.lock();
        let is_there = shard.object(slot, object.vxid()).is_some_and(|found| Arc::ptr_eq(found, object));
        if !is_there || object.is(flag::DYING) {
            return None;
        }
        change(&mut shard, &object.key());
        Some(())
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
