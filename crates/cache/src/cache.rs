//! The cache as a whole: its shards, and the state that they share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::locks::Mutex;

use lacquer_disk::Dropped;
use lacquer_storage::{BodyState, BodyWriter, Stevedore};

use crate::bans::BanList;
use crate::config::Config;
use crate::descriptor::Descriptor;
use crate::disk::Disks;
use crate::expiry_events::ExpiryEvents;
use crate::invalidation::Invalidations;
use crate::object::{NO_SLOT, Object, flag};
use crate::shard::{DeferredWork, SHARDS, Shard, shard_index};
use crate::slab::Key;
use crate::stats::{CacheStats, add, bump, sub};
use crate::tags::{Tag, TagIndex, TagStats};
use crate::waiter::Waiter;

const SLOT_BITS: u32 = 26;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// The number of generation counters per shard. An index change counts as one to all keys that share a counter.
const STRIPES: usize = if cfg!(miri) { 16 } else { 1024 };
/// The maximum size of bodies that are moved into one span with their head when their fetch ends.
const COMPACT_MAX: usize = 16 * 1024;

/// The index of all objects that a lookup can find. See the crate's documentation.
pub struct Cache {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    stripes: Box<[AtomicU32]>,
    pub(crate) stevedores: Vec<Stevedore>,
    pub(crate) bans: BanList,
    pub(crate) tags: TagIndex,
    pub(crate) counters: Arc<CacheStats>,
    pub(crate) events: ExpiryEvents,
    /// Incremented to make front tables drop objects that are no longer in the index.
    pub(crate) pressure: AtomicU32,
    pub(crate) evict_next: AtomicU64,
    pub(crate) tuning: Tuning,
    pub(crate) invalidations: Invalidations,
    pub(crate) disks: Disks,
}

/// Parameters that can change at any time.
pub(crate) struct Tuning {
    pub(crate) rush_exponent: AtomicU32,
    /// Seconds, as the bits of an f32.
    pub(crate) lru_interval: AtomicU32,
    pub(crate) ban_dups: AtomicBool,
}

/// Returns the number that identifies a slot of a shard within the whole index.
pub(crate) fn slot_id(key: &Key, slot: u32) -> u32 {
    slot | (shard_index(key) as u32) << SLOT_BITS
}

impl Cache {
    /// Creates a cache whose stores do not evict objects when they load bodies. See `Cache::new`.
    pub(crate) fn without_load_eviction(config: Config, disks: Disks, now: f64) -> Arc<Self> {
        let counters = Arc::new(CacheStats::default());
        let secret = Stevedore::keeper(&config.stevedores).map(Stevedore::secret);
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            stripes: (0..SHARDS * STRIPES).map(|_| AtomicU32::new(0)).collect(),
            stevedores: config.stevedores,
            tags: TagIndex::new(secret),
            bans: BanList::new(config.heads, Arc::clone(&counters), now, config.hooks.lurker),
            events: ExpiryEvents::new(now, config.hooks.expiry, Arc::clone(&counters)),
            counters,
            pressure: AtomicU32::new(0),
            evict_next: AtomicU64::new(0),
            tuning: Tuning {
                rush_exponent: AtomicU32::new(config.rush_exponent),
                lru_interval: AtomicU32::new(0),
                ban_dups: AtomicBool::new(config.ban_dups),
            },
            invalidations: Invalidations::new(config.invalidation_listeners),
            disks,
        })
    }

    pub fn stevedores(&self) -> &[Stevedore] {
        &self.stevedores
    }

    pub fn bans(&self) -> &BanList {
        &self.bans
    }

    /// Returns the tag for a word.
    pub fn tag(&self, word: &[u8]) -> Tag {
        self.tags.tag(word)
    }

    pub fn tag_stats(&self) -> &TagStats {
        &self.tags.stats
    }

    /// Returns the counters, after updating the gauges.
    pub fn stats(&self) -> &CacheStats {
        let gauge = |s: &Stevedore| s.counters().g_objects.load(Ordering::Relaxed);
        let keys = self.shards.iter().map(|s| s.lock().keys() as u64).sum();
        let c = &self.counters;
        c.n_object.store(self.stevedores.iter().map(gauge).sum(), Ordering::Relaxed);
        c.n_objecthead.store(keys, Ordering::Relaxed);
        c
    }

    /// Sets parameter `rush_exponent`.
    pub fn set_rush_exponent(&self, n: u32) {
        self.tuning.rush_exponent.store(n.max(1), Ordering::Relaxed);
    }

    /// Sets whether [`Cache::expire`] reports what Varnish logs under ExpKill.
    pub fn set_trace(&self, on: bool) {
        self.events.set_trace(on);
    }

    pub(crate) fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.shards[shard_index(key)]
    }

    fn stripe(&self, key: &Key) -> &AtomicU32 {
        let within = usize::from(u16::from_le_bytes([key[1], key[2]])) % STRIPES;
        &self.stripes[shard_index(key) * STRIPES + within]
    }

    /// Returns a number that changes whenever the result of a lookup of the key may change for a reason other than
    /// time or bans.
    pub(crate) fn generation(&self, key: &Key) -> u32 {
        self.stripe(key).load(Ordering::Acquire)
    }

    /// Makes front tables drop the key. The caller holds the lock of the shard.
    pub(crate) fn bump_generation(&self, key: &Key) {
        self.stripe(key).fetch_add(1, Ordering::Release);
    }

    /// Returns the shard of an object in the index, and its slot there.
    pub(crate) fn locate(&self, object: &Object) -> Option<(&Mutex<Shard>, u32)> {
        self.at(object.slot())
    }

    /// Returns the shard and the slot of a slot id.
    pub(crate) fn at(&self, id: u32) -> Option<(&Mutex<Shard>, u32)> {
        let id = Some(id).filter(|&p| p != NO_SLOT)?;
        Some((self.shards.get((id >> SLOT_BITS) as usize)?, id & SLOT_MASK))
    }

    /// Removes an object from the index. The caller holds the lock of the shard.
    pub(crate) fn remove(&self, shard: &mut Shard, slot: u32, deferred: &mut DeferredWork) {
        if let Some(object) = &shard.slab.get(slot).object {
            self.events.removed(object);
        }
        self.remove_unlogged(shard, slot, deferred);
    }

    /// Removes an object like `remove`, but does not report it for the log.
    pub(crate) fn remove_unlogged(&self, shard: &mut Shard, slot: u32, deferred: &mut DeferredWork) {
        let key = shard.slab.key(slot);
        self.bump_generation(&key);
        sub(&self.counters.n_objectcore, 1);
        if let Some(object) = shard.remove(slot) {
            object.set(flag::DYING);
            // Before the caller reports the removal: the next process must not find the object again.
            object.stored().forget();
            self.bans.detach(&object);
            if object.is(flag::TAGGED)
                && let Some(tags) = shard.tags.remove(&slot)
            {
                self.tags.remove(slot_id(&key, slot), &tags);
            }
            deferred.objects.push(object);
        }
    }

    /// Removes an object from the index. Returns whether it was there.
    pub fn kill(&self, object: &Object) -> bool {
        let mut deferred = DeferredWork::default();
        object.set(flag::DYING);
        let found = match self.locate(object) {
            Some((shard, slot)) => {
                let mut shard = shard.lock();
                let found = shard.object(slot, object.vxid()).is_some();
                if found {
                    self.remove(&mut shard, slot, &mut deferred);
                }
                found
            }
            None => false,
        };
        deferred.run();
        found
    }

    /// Removes the object of a transaction if it is still in this slot, and all objects with a
    /// [fingerprint](Self::fingerprint_of) from the stores on disks. Returns whether it was in the slot.
    pub fn kill_at(&self, id: u32, vxid: u64, fingerprint: u64) -> bool {
        drop(self.disks.forget(fingerprint));
        let mut deferred = DeferredWork::default();
        let Some((shard, slot)) = self.at(id) else { return false };
        let mut shard = shard.lock();
        let found = shard.object(slot, vxid).is_some();
        if found {
            self.remove(&mut shard, slot, &mut deferred);
        }
        drop(shard);
        deferred.run();
        found
    }

    /// Removes an object because a newer one replaces it.
    pub fn supersede(&self, old: &Object) {
        if self.kill(old) {
            bump(&self.counters.n_superseded);
        }
    }

    /// Records that the object's fetch failed, and removes the object from the index.
    pub fn fail(&self, object: &Object) {
        object.set(flag::FAILED);
        self.kill(object);
    }

    /// Completes the object's fetch. Returns the object that the index contains from now on or that the caller must
    /// publish. It is a new one if a small body was moved into one span with its head.
    pub fn finish(&self, object: Arc<Object>, writer: BodyWriter) -> Arc<Object> {
        writer.finish();
        if object.is(flag::PRIVATE | flag::HFM) {
            self.drop_hidden_markers(&object);
            return object;
        }
        if self.device_of(&object).is_some() {
            self.commit_indexed(&object);
            return object;
        }
        let finished = self.compact(object);
        self.commit_to_disk(&finished);
        finished
    }

    /// Removes the markers that one in the index hides from all requests, when its fetch has ended.
    fn drop_hidden_markers(&self, marker: &Object) {
        let mut deferred = DeferredWork::default();
        let Some((shard, slot)) = self.locate(marker) else { return };
        let mut shard = shard.lock();
        if shard.object(slot, marker.vxid()).is_some() {
            self.drop_hidden_by(&mut shard, slot, &mut deferred);
        }
        drop(shard);
        deferred.run();
    }

    /// Removes the markers that the complete one in a slot hides from all requests. Requests for an uncacheable page do not
    /// wait for each other, so many of them create one at a time.
    pub(crate) fn drop_hidden_by(&self, shard: &mut Shard, slot: u32, deferred: &mut DeferredWork) {
        while let Some(old) = shard.hidden_marker(slot) {
            self.remove(shard, old, deferred);
            bump(&self.counters.n_superseded);
        }
    }

    /// Moves the body of an object into one span with its head, if it is small.
    fn compact(&self, object: Arc<Object>) -> Arc<Object> {
        match object.compacted(COMPACT_MAX) {
            Some(copy) => self.replace_by_copy(object, copy),
            None => {
                self.keep_indexed(&object);
                object
            }
        }
    }

    /// Puts the copy of an object into its place in the index. Returns the one of the two that is to be used.
    pub(crate) fn replace_by_copy(&self, object: Arc<Object>, copy: Arc<Object>) -> Arc<Object> {
        let Some((shard, slot)) = self.locate(&object) else { return copy };
        let mut shard = shard.lock();
        let unchanged = shard.object(slot, object.vxid()).is_some_and(|o| Arc::ptr_eq(o, &object));
        if !unchanged {
            drop(shard);
            return object;
        }
        copy.set_ban(object.ban());
        copy.set_timers(object.timers());
        // A purge, or a thread that is about to remove the object, may have marked it since it was copied.
        copy.set_all(object.flags() & (flag::UNSTORED | flag::DYING));
        shard.slab.get_mut(slot).object = Some(Arc::clone(&copy));
        self.bump_generation(&copy.key());
        shard.keep(slot, &*self.bans.heads);
        drop(shard);
        copy
    }

    /// Passes an object that is in the index and complete to the device of its store. An object with tags stays in
    /// memory only: recovered without its tags, it would survive a purge of them.
    fn commit(&self, key: Key, object: &Object) {
        let Some(stevedore) = self.device_of(object) else { return };
        if !object.is(flag::PRIVATE | flag::HFM | flag::HFP | flag::TAGGED | flag::DYING | flag::FAILED) {
            stevedore.commit(object.stored(), &Descriptor::of(key, object).bytes());
        }
    }

    /// Passes an object that was published to the device of its store, and to the stores on disks, if it is complete.
    #[inline]
    pub(crate) fn pass_on(&self, key: Key, object: &Arc<Object>) {
        if object.state() == BodyState::Complete {
            self.commit(key, object);
            self.commit_to_disk(object);
        } else if object.is(flag::HFM) {
            // Nothing that is older may be found after it.
            self.commit_to_disk(object);
        }
    }

    /// Passes an object that is in the index to the stores on disks.
    #[inline]
    fn commit_to_disk(&self, object: &Arc<Object>) {
        if !self.disks.is_empty() {
            self.commit_to_disks(object);
        }
    }

    #[cold]
    pub(crate) fn commit_to_disks(&self, object: &Arc<Object>) {
        let Some((shard, slot)) = self.locate(object) else { return };
        let mut shard = shard.lock();
        if shard.object(slot, object.vxid()).is_some_and(|found| Arc::ptr_eq(found, object)) {
            let key = object.key();
            let dropped = self.pass_to_disks(&key, &shard, slot, object);
            let mut deferred = DeferredWork { dropped, ..DeferredWork::default() };
            self.drop_replaced(&mut shard, slot, object, &mut deferred);
            drop(shard);
            deferred.run();
        }
    }

    /// Removes the objects from memory that a complete one replaces, as the stores have done: when it has left memory, they
    /// would be found before it, and be written again by the next process.
    fn drop_replaced(&self, shard: &mut Shard, slot: u32, object: &Object, deferred: &mut DeferredWork) {
        let is_found = object.timers().ttl > 0.0 && object.is_keepable();
        if is_found && self.disks.is_behind(object.stevedore()) {
            for older in shard.replaced_by(slot, object, &*self.bans.heads) {
                self.remove(shard, older, deferred);
                bump(&self.counters.n_superseded);
            }
        }
    }

    /// Passes an object to the stores on disks. The caller holds the lock of its shard.
    pub(crate) fn pass_to_disks(
        &self,
        key: &Key,
        shard: &Shard,
        slot: u32,
        object: &Arc<Object>,
    ) -> Vec<Dropped> {
        let (heads, tags) = (&*self.bans.heads, shard.tags_of(slot));
        // While this exists, no purge begins.
        let hold = (!tags.is_empty()).then(|| self.disks.tag_purges.hold(tags));
        let is_purged = hold.as_ref().is_some_and(|(_, is_purged)| *is_purged);
        if is_purged {
            // If the purge leaves it, because it is newer, it is passed at its next hit.
            object.set(flag::ONCE);
        }
        let is_allowed = tags.is_empty() || !is_purged && self.tags_in(object.head()) == tags;
        let dropped = self.disks.commit(key, shard, slot, object, heads, is_allowed);
        if object.is(flag::ONCE) {
            // Hits in front tables would not pass it.
            self.bump_generation(key);
        }
        dropped
    }

    /// Returns the tags that a head contains, sorted and without duplicates.
    pub(crate) fn tags_in(&self, head: &[u8]) -> Vec<Tag> {
        let mut tags = Vec::new();
        self.bans.heads.tags(head, &mut |word| tags.push(self.tags.tag(word)));
        tags.sort_unstable();
        tags.dedup();
        tags
    }

    /// Commits an object whose fetch ends. An object that is not in the index yet is committed when it is published.
    fn commit_indexed(&self, object: &Object) {
        let Some((shard, slot)) = self.locate(object) else { return };
        let key = {
            let shard = shard.lock();
            shard.object(slot, object.vxid()).map(|_| shard.slab.key(slot))
        };
        if let Some(key) = key {
            self.commit(key, object);
        }
    }

    /// Returns the store of an object, if that store has a device.
    #[inline]
    fn device_of(&self, object: &Object) -> Option<&Stevedore> {
        self.stevedores.get(usize::from(object.stevedore())).filter(|stevedore| stevedore.has_device())
    }

    /// Makes an object whose fetch ends valid for the next process. An object that is not in the index yet becomes so
    /// when it is published.
    fn keep_indexed(&self, object: &Arc<Object>) {
        let Some((shard, slot)) = self.locate(object) else { return };
        let shard = shard.lock();
        if shard.object(slot, object.vxid()).is_some_and(|found| Arc::ptr_eq(found, object)) {
            shard.keep(slot, &*self.bans.heads);
        }
    }

    pub(crate) fn rush_some(
        &self,
        shard: &mut Shard,
        key: &Key,
        fetch: u32,
        n: usize,
        deferred: &mut DeferredWork,
    ) {
        let woken = shard.rush(key, fetch, n, deferred);
        add(&self.counters.busy_wakeup, woken as u64);
    }

    /// Wakes as many waiting requests as parameter `rush_exponent` specifies, first those that wait for a fetch.
    pub(crate) fn rush(&self, shard: &mut Shard, key: &Key, fetch: u32, deferred: &mut DeferredWork) {
        let n = self.tuning.rush_exponent.load(Ordering::Relaxed) as usize;
        self.rush_some(shard, key, fetch, n, deferred);
    }

    /// Removes a request that stops waiting. Returns false if it was to be woken already.
    pub(crate) fn remove_waiter(&self, key: &Key, waiter: &Waiter) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(list) = shard.waiting.get_mut(key).filter(|_| waiter.leave_list()) else { return false };
        if list.lose_one() {
            shard.waiting.remove(key);
        }
        true
    }

    /// Wakes other requests in place of one that was woken but does not look up.
    pub(crate) fn wake_next(&self, key: &Key, fetch: u32) {
        let mut deferred = DeferredWork::default();
        self.rush(&mut self.shard(key).lock(), key, fetch, &mut deferred);
        deferred.run();
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} storages)", self.stevedores.len())
    }
}
