//! The cache as a whole: its shards, what is shared between them, and the token of a fetch.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::locks::Mutex;

use lacquer_storage::{BodyState, BodyWriter, Stevedore};

use crate::bans::{BanList, BanRequest, HeadReader, Verdict};
use crate::expiry_events::ExpiryEvents;
use crate::invalidation::InvalidationListener;
use crate::object::{NO_SLOT, Object, flag};
use crate::shard::{DeferredWork, Shard};
use crate::slab::Key;
use crate::stats::{CacheStats, add, bump, sub};
use crate::tags::{Tag, TagIndex, TagStats};
use crate::waiter::Waiter;

pub(crate) const SHARDS: usize = 64;
const SLOT_BITS: u32 = 26;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
/// Generations per shard: an index change is taken for one of this share of the shard's keys.
const STRIPES: usize = if cfg!(miri) { 16 } else { 1024 };
/// Bodies up to this size move into one span with their head when their fetch ends.
const COMPACT_MAX: usize = 16 * 1024;

/// Settings of a new cache.
pub struct Config {
    /// The storages, by the numbers they carry.
    pub stevedores: Vec<Stevedore>,
    /// Reads headers out of packed heads, for bans.
    pub heads: Box<dyn HeadReader>,
    pub hooks: Hooks,
    /// Parameter `rush_exponent`.
    pub rush_exponent: u32,
    /// Parameter `ban_dups`.
    pub ban_dups: bool,
    /// Receivers of purges and bans, such as a journal.
    pub invalidation_listeners: Vec<Box<dyn InvalidationListener>>,
}

/// Requests of the cache to its owner. They are called with locks held: they must be quick and must not
/// call back.
#[derive(Default)]
pub struct Hooks {
    /// [`Cache::expire`] should run before the time that it last returned.
    pub expiry: Option<Box<dyn Fn() + Send + Sync>>,
    /// [`Cache::lurk`] has something to do.
    pub lurker: Option<Box<dyn Fn() + Send + Sync>>,
}

/// All objects that can be found. See the crate's documentation.
pub struct Cache {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    stripes: Box<[AtomicU32]>,
    pub(crate) stevedores: Vec<Stevedore>,
    pub(crate) bans: BanList,
    pub(crate) tags: TagIndex,
    pub(crate) counters: Arc<CacheStats>,
    pub(crate) events: ExpiryEvents,
    /// Bumped when front tables should let go of what nobody can find any more.
    pub(crate) pressure: AtomicU32,
    pub(crate) rush_exponent: AtomicU32,
    pub(crate) evict_next: AtomicU64,
    /// Seconds, as the bits of an f32.
    pub(crate) lru_interval: AtomicU32,
    pub(crate) ban_dups: AtomicBool,
    pub(crate) invalidation_listeners: Box<[Box<dyn InvalidationListener>]>,
}

fn shard_index(key: &Key) -> usize {
    usize::from(key[0]) % SHARDS
}

/// The place of a shard's slot in the whole index.
pub(crate) fn place_of(key: &Key, slot: u32) -> u32 {
    slot | (shard_index(key) as u32) << SLOT_BITS
}

impl Cache {
    /// `now` is the earliest time the cache will hear of.
    pub fn new(config: Config, now: f64) -> Arc<Self> {
        let counters = Arc::new(CacheStats::default());
        let cache = Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            stripes: (0..SHARDS * STRIPES).map(|_| AtomicU32::new(0)).collect(),
            stevedores: config.stevedores,
            tags: TagIndex::new(),
            bans: BanList::new(config.heads, Arc::clone(&counters), now, config.hooks.lurker),
            events: ExpiryEvents::new(now, config.hooks.expiry, Arc::clone(&counters)),
            counters,
            pressure: AtomicU32::new(0),
            rush_exponent: AtomicU32::new(config.rush_exponent),
            evict_next: AtomicU64::new(0),
            lru_interval: AtomicU32::new(0),
            ban_dups: AtomicBool::new(config.ban_dups),
            invalidation_listeners: config.invalidation_listeners.into(),
        });
        cache.make_room_for_loads();
        cache
    }

    pub fn stevedores(&self) -> &[Stevedore] {
        &self.stevedores
    }

    pub fn bans(&self) -> &BanList {
        &self.bans
    }

    /// A word that objects may be tagged with.
    pub fn tag(&self, word: &[u8]) -> Tag {
        self.tags.tag(word)
    }

    pub fn tag_stats(&self) -> &TagStats {
        &self.tags.stats
    }

    /// The counters, with the gauges brought up to date.
    pub fn stats(&self) -> &CacheStats {
        let gauge = |s: &Stevedore| s.counters().g_objects.load(Ordering::Relaxed);
        let keys = self.shards.iter().map(|s| s.lock().keys() as u64).sum();
        let c = &self.counters;
        c.n_object.store(self.stevedores.iter().map(gauge).sum(), Ordering::Relaxed);
        c.n_objecthead.store(keys, Ordering::Relaxed);
        c
    }

    /// Parameter `rush_exponent`.
    pub fn set_rush_exponent(&self, n: u32) {
        self.rush_exponent.store(n.max(1), Ordering::Relaxed);
    }

    /// Whether [`Cache::expire`] is to report what Varnish logs under ExpKill.
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

    /// Changes whenever a lookup of the key might come out differently for another reason than time or
    /// bans.
    pub(crate) fn generation(&self, key: &Key) -> u32 {
        self.stripe(key).load(Ordering::Acquire)
    }

    /// Makes front tables forget the key. The caller holds the shard.
    pub(crate) fn touch(&self, key: &Key) {
        self.stripe(key).fetch_add(1, Ordering::Release);
    }

    /// Locks the shard of an object in the index; the number is its place within.
    pub(crate) fn locate(&self, object: &Object) -> Option<(&Mutex<Shard>, u32)> {
        self.at(object.slot())
    }

    /// The shard of a place in the index, and its number there.
    pub(crate) fn at(&self, place: u32) -> Option<(&Mutex<Shard>, u32)> {
        let place = Some(place).filter(|&p| p != NO_SLOT)?;
        Some((self.shards.get((place >> SLOT_BITS) as usize)?, place & SLOT_MASK))
    }

    /// Takes an object out of the index. The caller holds the shard.
    pub(crate) fn remove(&self, shard: &mut Shard, slot: u32, deferred: &mut DeferredWork) {
        if let Some(object) = &shard.slab.get(slot).object {
            self.events.removed(object);
        }
        self.forget(shard, slot, deferred);
    }

    /// As `remove`, without a word to the log.
    pub(crate) fn forget(&self, shard: &mut Shard, slot: u32, deferred: &mut DeferredWork) {
        let key = shard.slab.get(slot).key;
        self.touch(&key);
        sub(&self.counters.n_objectcore, 1);
        if let Some(object) = shard.remove(slot) {
            object.set(flag::DYING);
            self.bans.detach(&object);
            if object.is(flag::TAGGED)
                && let Some(tags) = shard.tags.remove(&slot)
            {
                self.tags.remove(place_of(&key, slot), &tags);
            }
            deferred.objects.push(object);
        }
    }

    /// Makes an object impossible to find; returns whether it was in the index.
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

    /// Checks whether an object that a fetch validates may still be used: it is in the index, and no ban hits it.
    /// `request` stands for the one that began the fetch. A banned object is removed. `pause` returns whether the caller's
    /// turn is over.
    pub fn recheck(&self, object: &Object, request: &dyn BanRequest, pause: &dyn Fn() -> bool) -> Verdict {
        let mut deferred = DeferredWork::default();
        let Some((shard, slot)) = self.locate(object) else { return Verdict::Banned };
        let mut shard = shard.lock();
        if object.is(flag::DYING) || shard.object(slot, object.vxid()).is_none() {
            return Verdict::Banned;
        }
        let verdict = self.bans.check(object, request, pause);
        if verdict == Verdict::Banned {
            self.remove(&mut shard, slot, &mut deferred);
        }
        drop(shard);
        deferred.run();
        verdict
    }

    /// Kills the object of a transaction if it is still in this place; returns whether it was.
    pub fn kill_at(&self, place: u32, vxid: u64) -> bool {
        let mut deferred = DeferredWork::default();
        let Some((shard, slot)) = self.at(place) else { return false };
        let mut shard = shard.lock();
        let found = shard.object(slot, vxid).is_some();
        if found {
            self.remove(&mut shard, slot, &mut deferred);
        }
        drop(shard);
        deferred.run();
        found
    }

    /// Kills an object because a newer one serves in its place.
    pub fn supersede(&self, old: &Object) {
        if self.kill(old) {
            bump(&self.counters.n_superseded);
        }
    }

    /// The object's fetch failed: nobody finds it from now on.
    pub fn fail(&self, object: &Object) {
        object.set(flag::FAILED);
        self.kill(object);
    }

    /// Completes the object's fetch. Returns the object that the index holds from now on, or that is to be
    /// published: a small body has moved into one span with its head.
    pub fn finish(&self, object: Arc<Object>, writer: BodyWriter) -> Arc<Object> {
        writer.finish();
        if object.is(flag::PRIVATE | flag::HFM) {
            return object;
        }
        if self.device_of(&object).is_some() {
            self.commit_found(&object);
            return object;
        }
        let Some(new) = object.compacted(COMPACT_MAX) else { return object };
        let Some((shard, slot)) = self.locate(&object) else { return new };
        let mut shard = shard.lock();
        let unchanged = shard.object(slot, object.vxid()).is_some_and(|o| Arc::ptr_eq(o, &object));
        if unchanged {
            new.set_ban(object.ban());
            new.set_timers(object.timers());
            let place = shard.slab.get_mut(slot);
            place.object = Some(Arc::clone(&new));
            let key = place.key;
            self.touch(&key);
            drop(shard);
            return new;
        }
        drop(shard);
        object
    }

    pub(crate) fn rush_some(&self, shard: &mut Shard, key: &Key, n: usize, deferred: &mut DeferredWork) {
        let woken = shard.rush(key, n, deferred);
        add(&self.counters.busy_wakeup, woken as u64);
    }

    /// Wakes as many waiting requests as the parameter `rush_exponent` demands.
    pub(crate) fn rush(&self, shard: &mut Shard, key: &Key, deferred: &mut DeferredWork) {
        self.rush_some(shard, key, self.rush_exponent.load(Ordering::Relaxed) as usize, deferred);
    }

    /// A waiting request gave up.
    pub(crate) fn leave(&self, key: &Key, waiter: &Arc<Waiter>) {
        let mut shard = self.shard(key).lock();
        if let Some(list) = shard.waiting.get_mut(key) {
            list.retain(|w| !Arc::ptr_eq(w, waiter));
            if list.is_empty() {
                shard.waiting.remove(key);
            }
        }
    }

    /// A request that was woken does not look: others have its turn.
    pub(crate) fn pass_on(&self, key: &Key) {
        let mut deferred = DeferredWork::default();
        self.rush(&mut self.shard(key).lock(), key, &mut deferred);
        deferred.run();
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} storages)", self.stevedores.len())
    }
}

/// The right and the duty to fetch an object for a key. Others may wait for it: publish an object, or
/// drop this.
#[must_use = "requests may be waiting for what it brings"]
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

    /// Sets which requests the result may serve: those that match this Vary specification.
    pub fn predict_vary(&self, vary: &[u8]) {
        let mut shard = self.cache.shard(&self.key).lock();
        if vary.is_empty() {
            shard.predicted.remove(&self.slot);
        } else {
            shard.predicted.insert(self.slot, vary.into());
        }
    }

    /// Makes the object findable, complete or not, and wakes those who wait.
    pub fn publish(self, object: &Arc<Object>) {
        self.publish_tagged(object, Vec::new());
    }

    /// As `publish`, for an object that can be purged by tags.
    pub fn publish_tagged(mut self, object: &Arc<Object>, mut tags: Vec<Tag>) {
        tags.sort_unstable();
        tags.dedup();
        self.done = true;
        let cache = &self.cache;
        let mut deferred = DeferredWork::default();
        let when = cache.events.clock().ticks(object.expires());
        {
            let mut shard = cache.shard(&self.key).lock();
            let place = place_of(&self.key, self.slot);
            object.set_slot(place);
            cache.bans.attach(object);
            if !tags.is_empty() {
                object.set(flag::TAGGED);
                cache.tags.insert(place, &tags);
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
            cache.touch(&self.key);
            cache.rush(&mut shard, &self.key, &mut deferred);
        }
        cache.events.inserted(object, when);
        deferred.run();
        if object.state() == BodyState::Complete {
            cache.commit(self.key, object);
        }
    }

    /// Whether requests wait for what it brings.
    pub fn is_awaited(&self) -> bool {
        self.cache.shard(&self.key).lock().waiting.contains_key(&self.key)
    }

    /// Gives up, waking just one of those who wait: for a request that turned out not to fetch.
    pub fn release(mut self) {
        self.done = true;
        self.end(1);
    }

    fn end(&self, wake: usize) {
        let mut deferred = DeferredWork::default();
        {
            let mut shard = self.cache.shard(&self.key).lock();
            shard.remove(self.slot);
            self.cache.touch(&self.key);
            self.cache.rush_some(&mut shard, &self.key, wake, &mut deferred);
        }
        sub(&self.cache.counters.n_objectcore, 1);
        deferred.run();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if !self.done {
            self.end(self.cache.rush_exponent.load(Ordering::Relaxed) as usize);
        }
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Busy({})", self.slot)
    }
}
