//! Eviction from a full storage by the clock algorithm. A hit sets a mark on the object. The hand clears marks and
//! evicts the first object without one. A new object takes the slot of the evicted one, behind the hand, so it has a
//! full round to get a hit. Each shard has its own hand; of the candidates of several shards the oldest is evicted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::locks::Mutex;

use crate::cache::Cache;
use crate::evicted::Evicted;
use crate::object::Object;
use crate::shard::{DeferredWork, Shard};
use crate::stats::bump;

/// The maximum number of candidates that are compared.
const CANDIDATES: usize = 8;
/// The maximum number of slots that are visited in one shard before the next is tried.
const REACH: u32 = 512;

/// The objects that a search considers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Search {
    /// Objects with pages of their own.
    Large,
    /// Any object that is not in use.
    Idle,
    /// Also those that were hit since the last round.
    Marked,
    /// Also objects that front tables hold, whose memory is freed a little later, and objects that share their body
    /// with others, which keep it in memory.
    Pinned,
}

impl Search {
    fn allows(self, object: &Arc<Object>, stevedore: u8) -> bool {
        let pins = if self == Self::Pinned { object.pins() } else { 0 };
        object.stevedore() == stevedore
            && Arc::strong_count(object) <= 1 + pins
            && (self != Self::Large || object.stored().is_large())
            && (self == Self::Pinned || !object.stored().is_shared())
    }
}

struct Candidate<'a> {
    shard: &'a Mutex<Shard>,
    slot: u32,
    vxid: u64,
    t_origin: f64,
    /// The logarithm of its size to base 2; 0 if size does not matter.
    scale: u32,
}

impl Cache {
    /// Sets parameter `lru_interval`: hits on objects that are younger than this do not protect them.
    pub fn set_lru_interval(&self, seconds: f64) {
        self.tuning.lru_interval.store((seconds as f32).to_bits(), Ordering::Relaxed);
    }

    /// Counts a hit, which protects the object from the next round of the hand.
    pub(crate) fn count_hit(&self, object: &Object, now: f64) {
        let interval = f32::from_bits(self.tuning.lru_interval.load(Ordering::Relaxed));
        if now - object.t_origin() < f64::from(interval) {
            object.count_hits(1);
        } else if object.hit(1) {
            bump(&self.counters.n_lru_moved);
        }
    }

    /// Evicts one object of a storage. With `large`, an object with pages of its own is preferred.
    pub fn nuke_one(&self, stevedore: u8, large: bool, log: &mut dyn FnMut(&str)) -> Evicted {
        let searches: &[Search] = if large {
            &[Search::Large, Search::Idle, Search::Marked, Search::Pinned]
        } else {
            &[Search::Idle, Search::Marked, Search::Pinned]
        };
        for &search in searches {
            // The first round may only clear marks, and in a large cache, so may the second.
            let rounds = if search == Search::Marked { 1 } else { 2 };
            for _ in 0..rounds {
                if let Some(evicted) = self.nuke(stevedore, search, log) {
                    return evicted;
                }
            }
        }
        Evicted::Nothing
    }

    fn nuke(&self, stevedore: u8, search: Search, log: &mut dyn FnMut(&str)) -> Option<Evicted> {
        let first = self.evict_next.fetch_add(1, Ordering::Relaxed) as usize;
        let mut candidates = Vec::with_capacity(CANDIDATES);
        for i in 0..self.shards.len() {
            let shard = &self.shards[(first + i * 7) % self.shards.len()];
            let found = Self::candidate(&mut shard.lock(), stevedore, search);
            candidates.extend(found.map(|(slot, o)| Candidate {
                shard,
                slot,
                vxid: o.vxid(),
                t_origin: o.t_origin(),
                scale: if search == Search::Large { o.body_len().checked_ilog2().unwrap_or(0) } else { 0 },
            }));
            if candidates.len() >= CANDIDATES {
                break;
            }
        }
        // For a large object, evict few large ones rather than many small ones.
        candidates.sort_by(|a, b| {
            b.scale.cmp(&a.scale).then(a.t_origin.total_cmp(&b.t_origin)).then(a.vxid.cmp(&b.vxid))
        });
        candidates.iter().find_map(|candidate| self.take(candidate, stevedore, search, log))
    }

    fn candidate(shard: &mut Shard, stevedore: u8, search: Search) -> Option<(u32, Arc<Object>)> {
        let check = |object: &Arc<Object>| {
            if !search.allows(object, stevedore) {
                return false;
            }
            !object.clear_touched() || search == Search::Marked
        };
        if search == Search::Large {
            return large_candidate(shard, check);
        }
        let end = shard.slab.end();
        for _ in 0..end.min(REACH) {
            if shard.hand >= end {
                shard.hand = 0;
            }
            let slot = shard.hand;
            if let Some(object) = shard.slab.get(slot).object.as_ref().filter(|o| check(o)) {
                // The hand stays: if this object is not the one that is evicted, it is the next candidate.
                return Some((slot, Arc::clone(object)));
            }
            shard.hand += 1;
        }
        None
    }

    fn take(
        &self,
        it: &Candidate<'_>,
        stevedore: u8,
        search: Search,
        log: &mut dyn FnMut(&str),
    ) -> Option<Evicted> {
        let mut deferred = DeferredWork::default();
        let evicted = {
            let mut shard = it.shard.lock();
            let object = shard.object(it.slot, it.vxid).filter(|object| search.allows(object, stevedore))?;
            let evicted = if object.stored().is_shared() { Evicted::Head } else { Evicted::Object };
            log(&format!("LRU_Cand p={:#x} f={:#x} r=1", Arc::as_ptr(object).addr(), object.flags()));
            self.remove(&mut shard, it.slot, &mut deferred);
            if shard.hand == it.slot {
                shard.hand += 1;
            }
            evicted
        };
        if search == Search::Pinned {
            self.pressure.fetch_add(1, Ordering::Relaxed);
        }
        deferred.run();
        bump(&self.counters.n_lru_nuked);
        log(&format!("LRU xid={}", it.vxid));
        Some(evicted)
    }
}

/// Returns the oldest unmarked object with pages of its own. Marked ones move to the end of the queue.
fn large_candidate(shard: &mut Shard, check: impl Fn(&Arc<Object>) -> bool) -> Option<(u32, Arc<Object>)> {
    for _ in 0..shard.large.len() {
        let (slot, vxid) = shard.large.pop_front()?;
        let Some(object) = shard.object(slot, vxid).filter(|o| o.stored().is_large()) else { continue };
        if check(object) {
            let object = Arc::clone(object);
            shard.large.push_front((slot, vxid));
            return Some((slot, object));
        }
        shard.large.push_back((slot, vxid));
    }
    None
}
