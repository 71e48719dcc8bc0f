//! The check of an object that a fetch validates, and the publication of the object with the same body that replaces it.

use std::ptr;
use std::sync::Arc;

use crate::bans::{BanRequest, Verdict};
use crate::busy::{Awaited, Busy};
use crate::cache::Cache;
use crate::object::{Object, flag};
use crate::shard::DeferredWork;
use crate::tags::Tag;

impl Cache {
    /// Checks whether an object that a fetch validates may still be used: it is in the index, and no ban hits it.
    /// `request` represents the request that began the fetch. A banned object is removed. `pause` returns whether the
    /// caller's time slice is over.
    pub fn recheck(&self, object: &Object, request: &dyn BanRequest, pause: &dyn Fn() -> bool) -> Verdict {
        let mut deferred = DeferredWork::default();
        let Some((shard, slot)) = self.locate(object) else { return Verdict::Banned };
        let mut shard = shard.lock();
        // The body may have been moved since the caller found the object. Only the one in the index refers to a ban.
        let Some(object) = shard.object(slot, object.vxid()).filter(|_| !object.is(flag::DYING)) else {
            return Verdict::Banned;
        };
        let verdict = self.bans.check(object, request, pause);
        if verdict == Verdict::Banned {
            self.remove(&mut shard, slot, &mut deferred);
        }
        drop(shard);
        deferred.run();
        verdict
    }
}

impl Busy {
    /// Publishes an object like [`publish_tagged`](Self::publish_tagged) that contains the body of `source`, or a part of
    /// it. Bans that were not tested on `source` will be tested on the object. Returns `self` if `source` has left the
    /// index, or if a purge has begun that may not have reached it yet.
    pub fn publish_confirmed(
        self,
        object: &Arc<Object>,
        tags: Vec<Tag>,
        source: &Object,
    ) -> Result<Awaited, Self> {
        let (cache, key, own) = (Arc::clone(self.cache()), self.key(), tags.clone());
        let awaited = self.publish_if(object, tags, |shard, bans| {
            let place = cache.locate(source).filter(|&(home, _)| ptr::eq(home, cache.shard(&key)));
            let Some((_, slot)) = place else { return false };
            // The body may have been moved since the caller found the object. Only the one in the index refers to a ban.
            let found = shard.object(slot, source.vxid()).filter(|found| !found.is(flag::DYING));
            let Some(found) = found.filter(|_| !source.is(flag::DYING)) else { return false };
            let purges = &cache.disks.tag_purges;
            let is_purged = shard.purges.concern(&key) || purges.concern(&own);
            if is_purged || purges.concern(shard.tags_of(slot)) {
                return false;
            }
            object.is(flag::PRIVATE) || bans.attach_at(object, found.ban())
        })?;
        cache.pass_on(key, object);
        Ok(awaited)
    }
}
