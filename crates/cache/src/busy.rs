//! The token of a fetch, by which requests wait for its result.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_storage::BodyState;

use crate::bans::BanList;
use crate::cache::{Cache, slot_id};
use crate::object::{Object, flag};
use crate::shard::{DeferredWork, Shard};
use crate::slab::Key;
use crate::stats::sub;
use crate::tags::Tag;

/// The requests that waited for a published object. They are woken when this is dropped.
#[derive(Debug, Default)]
#[must_use = "requests are waiting for the object"]
pub struct Awaited(DeferredWork);

impl Drop for Awaited {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).run();
    }
}

/// The right and the duty to fetch an object for a key. Other requests may wait for the result, so the owner must
/// publish an object or drop this.
#[must_use = "requests may be waiting for the result"]
pub struct Busy {
    cache: Arc<Cache>,
    key: Key,
    slot: u32,
    done: bool,
}

impl Busy {
    pub(crate) fn new(cache: &Arc<Cache>, key: Key, slot: u32) -> Self {
        Self { cache: Arc::clone(cache), key, slot, done: false }
    }

    /// Declares that the result may serve requests that match this Vary specification.
    pub fn predict_vary(&self, vary: &[u8]) {
        let mut shard = self.cache.shard(&self.key).lock();
        if vary.is_empty() {
            shard.predicted.remove(&self.slot);
        } else {
            shard.predicted.insert(self.slot, vary.into());
        }
    }

    /// Adds the object, complete or not, to the index, and wakes waiting requests.
    pub fn publish(self, object: &Arc<Object>) {
        drop(self.publish_tagged(object, Vec::new()));
    }

    /// Publishes an object that can be purged by tags. Waiting requests are woken when the result is dropped.
    pub fn publish_tagged(mut self, object: &Arc<Object>, tags: Vec<Tag>) -> Awaited {
        let attach = |_: &Shard, bans: &BanList| {
            bans.attach(object);
            true
        };
        let awaited = self.insert(object, tags, attach);
        self.cache.pass_on(self.key, object);
        awaited.unwrap_or_default()
    }

    /// Publishes an object if `attach` returns true, which makes it refer to a ban. It is called with the shard locked.
    /// Returns `self` otherwise.
    pub(crate) fn publish_if(
        mut self,
        object: &Arc<Object>,
        tags: Vec<Tag>,
        attach: impl FnOnce(&Shard, &BanList) -> bool,
    ) -> Result<Awaited, Self> {
        self.insert(object, tags, attach).ok_or(self)
    }

    #[inline]
    fn insert(
        &mut self,
        object: &Arc<Object>,
        mut tags: Vec<Tag>,
        attach: impl FnOnce(&Shard, &BanList) -> bool,
    ) -> Option<Awaited> {
        tags.sort_unstable();
        tags.dedup();
        let cache = &self.cache;
        let mut deferred = DeferredWork::default();
        let when = cache.events.clock().ticks(object.expires());
        {
            let mut shard = cache.shard(&self.key).lock();
            let id = slot_id(&self.key, self.slot);
            // Before the stores are asked whether the object is purged: later purges find it here.
            if !tags.is_empty() {
                cache.tags.insert(id, &tags);
            }
            if !attach(&shard, &cache.bans) {
                if !tags.is_empty() {
                    cache.tags.remove(id, &tags);
                }
                return None;
            }
            object.set_slot(id);
            if !tags.is_empty() {
                object.set(flag::TAGGED);
                shard.tags.insert(self.slot, tags.into_boxed_slice());
            }
            shard.publish(self.slot, Arc::clone(object));
            let Shard { slab, heap, large, .. } = &mut *shard;
            heap.insert(slab, self.slot, when);
            if object.stored().is_large() {
                if large.len() > 64 + 2 * slab.len() as usize {
                    large.retain(|&(slot, vxid)| slab.holds(slot, vxid));
                }
                large.push_back((self.slot, object.vxid()));
            }
            shard.keep_first(self.slot, &*cache.bans.heads);
            if object.is(flag::HFM) && object.state() == BodyState::Complete {
                cache.drop_hidden_by(&mut shard, self.slot, &mut deferred);
            }
            cache.bump_generation(&self.key);
            cache.rush(&mut shard, &self.key, self.slot, &mut deferred);
        }
        cache.events.inserted(object, when);
        self.done = true;
        Some(Awaited(deferred))
    }

    pub(crate) fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns whether requests wait for the result.
    pub fn is_awaited(&self) -> bool {
        self.cache.shard(&self.key).lock().waiting.contains_key(&self.key)
    }

    /// Ends the fetch of a request that turned out not to fetch, and wakes a single waiting request.
    pub fn release(mut self) {
        self.end(1);
    }

    /// Ends the fetch without a result and wakes all waiting requests, which find another object.
    pub fn release_all(mut self) {
        self.end(usize::MAX);
    }

    fn end(&mut self, wake: usize) {
        self.done = true;
        let mut deferred = DeferredWork::default();
        {
            let mut shard = self.cache.shard(&self.key).lock();
            let fetch = shard.end_fetch(&self.key, self.slot);
            self.cache.bump_generation(&self.key);
            self.cache.rush_some(&mut shard, &self.key, fetch, wake, &mut deferred);
        }
        sub(&self.cache.counters.n_objectcore, 1);
        deferred.run();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.done {
            self.end(self.cache.tuning.rush_exponent.load(Ordering::Relaxed) as usize);
        }
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Busy({})", self.slot)
    }
}
