//! The check of an object that a fetch validates.

use crate::bans::{BanRequest, Verdict};
use crate::cache::Cache;
use crate::object::{Object, flag};
use crate::shard::DeferredWork;

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
