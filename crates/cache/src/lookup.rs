//! Finds the objects of a key that may serve a request, and carries out the decision of [`lacquer_flow::lookup`].

use std::cell::Cell;
use std::sync::Arc;

use lacquer_flow::lookup::{self, Decision, Limits, Stale, Standing};
use lacquer_storage::BodyState;

use crate::bans::{BanRequest, Verdict};
use crate::busy::Busy;
use crate::cache::Cache;
use crate::object::{Object, flag};
use crate::object_ref::ObjRef;
use crate::shard::{DeferredWork, Shard};
use crate::slab::{Digest, Key, NONE, key_of};
use crate::stats::bump;
use crate::waiter::Waiter;
use crate::waiting::{Resumed, Wait};

/// The properties of a request that a lookup depends on.
pub struct LookupArgs<'a> {
    /// The time at which the request began.
    pub t_req: f64,
    pub limits: Limits,
    pub always_miss: bool,
    pub ignore_busy: bool,
    pub ignore_vary: bool,
    /// Parameter `ban_any_variant`.
    pub ban_any_variant: u32,
    /// Returns whether the request matches a Vary specification.
    pub vary: &'a dyn Fn(&[u8]) -> bool,
    pub ban: &'a dyn BanRequest,
    /// Returns whether the caller's time slice is over. If so, the remaining bans of a long list are tested in a
    /// later lookup.
    pub pause: &'a dyn Fn() -> bool,
    /// Called with the VXID of each object that a ban removed.
    pub banned: &'a dyn Fn(u64),
    /// Counts the variants that did not match.
    pub mismatches: Cell<u32>,
}

/// The outcome of a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// The object is fresh.
    Hit(ObjRef),
    /// Stale but in grace. With `busy`, this request must fetch a new object in the background.
    Grace { object: ObjRef, busy: Option<Busy> },
    /// To be fetched. `stale` can be validated by a conditional fetch.
    Miss { busy: Busy, stale: Option<Arc<Object>> },
    /// Treated as a miss, because `marker` records that the last response was not cacheable. `stale` is the marker
    /// too, unless it has expired.
    HitMiss { busy: Busy, marker: Arc<Object>, stale: Option<Arc<Object>> },
    /// To be passed, because the object is a hit-for-pass marker.
    HitPass(Arc<Object>),
    /// Another request is fetching it.
    Wait(Wait),
    /// The caller's time slice ended before all bans were tested. The tests so far are recorded. The caller must
    /// yield and then look up again with this value.
    Unfinished(Option<Resumed>),
}

/// The result of a walk over the slots of a key.
struct Walk {
    /// The time at which the request began.
    t_req: f64,
    /// The first fresh object.
    fresh: Option<u32>,
    /// The newest stale object.
    stale: Option<u32>,
    /// The first fetch in progress that may serve the request.
    busy: Option<u32>,
    /// The first published object.
    first: Option<u32>,
    /// The time slice ended; the other fields are incomplete.
    unfinished: bool,
}

/// The outcome of a lookup, and the generation with which a front table may keep the object.
pub(crate) struct Found {
    pub(crate) lookup: Lookup,
    pub(crate) front: Option<u32>,
}

impl Cache {
    /// Looks up the object for a request. `resumed` comes from the [`Wait`] of an earlier lookup.
    pub fn lookup(
        self: &Arc<Self>,
        digest: &Digest,
        args: &LookupArgs<'_>,
        resumed: Option<Resumed>,
    ) -> Lookup {
        self.find(digest, args, resumed).lookup
    }

    pub(crate) fn find(
        self: &Arc<Self>,
        digest: &Digest,
        args: &LookupArgs<'_>,
        resumed: Option<Resumed>,
    ) -> Found {
        let key = key_of(digest);
        let mut deferred = DeferredWork::default();
        let mut found = {
            let mut shard = self.shard(&key).lock();
            let found = self.decide(&mut shard, &key, args, &mut deferred);
            if let Some(resumed) = &resumed
                && let Some(fetch) = found.lookup.fetch()
            {
                resumed.follow(&mut shard, fetch);
            }
            found
        };
        deferred.run();
        match (&mut found.lookup, resumed) {
            (Lookup::Unfinished(turn), resumed) => *turn = resumed,
            // Wakes others that may get the object too.
            (Lookup::Grace { .. }, resumed) => drop(resumed),
            (_, resumed) => resumed.into_iter().for_each(Resumed::take_turn),
        }
        found
    }

    fn decide(
        self: &Arc<Self>,
        shard: &mut Shard,
        key: &Key,
        args: &LookupArgs<'_>,
        deferred: &mut DeferredWork,
    ) -> Found {
        if args.always_miss {
            return Found::plain(Lookup::Miss { busy: self.busy(shard, key), stale: None });
        }
        let walk = self.walk(shard, key, args, deferred);
        if walk.unfinished {
            return Found::plain(Lookup::Unfinished(None));
        }
        let object = |slot: Option<u32>| slot.and_then(|s| shard.slab.get(s).object.clone());
        let (fresh, stale) = (object(walk.fresh), object(walk.stale));
        let decision = lookup::decide(lookup::Found {
            fresh: fresh.as_ref().map(|object| object.storing()),
            stale: stale.as_ref().map(|object| Stale {
                storing: object.storing(),
                is_in_grace: lookup::is_in_grace(object.lifetime(), args.limits, args.t_req),
            }),
            is_fetched: walk.busy.is_some(),
        });
        let lookup = match (decision, fresh, stale) {
            (Decision::Hit, Some(object), _) => return self.hit(shard, key, &walk, object, deferred),
            (Decision::HitPass, Some(marker), _) => {
                self.rush(shard, key, walk.fresh.unwrap_or(NONE), deferred);
                Lookup::HitPass(marker)
            }
            (Decision::HitMiss { is_expired: false }, Some(marker), _) => {
                let stale = Some(Arc::clone(&marker));
                Lookup::HitMiss { busy: self.busy(shard, key), marker, stale }
            }
            (Decision::HitMiss { is_expired: true }, _, Some(marker)) => {
                Lookup::HitMiss { busy: self.busy(shard, key), marker, stale: None }
            }
            (Decision::Grace { refresh }, _, Some(object)) => {
                self.count_hit(&object, args.t_req);
                let busy = refresh.then(|| self.busy(shard, key));
                Lookup::Grace { object: ObjRef::shared(object), busy }
            }
            (Decision::Wait, ..) => Lookup::Wait(self.wait(shard, key, walk.busy.unwrap_or(NONE))),
            (_, _, stale) => Lookup::Miss { busy: self.busy(shard, key), stale },
        };
        Found::plain(lookup)
    }

    /// Adds a request to the queue of those that wait for the fetch in a slot.
    fn wait(self: &Arc<Self>, shard: &mut Shard, key: &Key, fetch: u32) -> Wait {
        let waiter = Waiter::new(fetch);
        shard.waiting.entry(*key).or_default().push(Arc::clone(&waiter));
        self.bump_generation(key);
        bump(&self.counters.busy_sleep);
        Wait { cache: Arc::clone(self), key: *key, waiter }
    }

    fn hit(
        self: &Arc<Self>,
        shard: &mut Shard,
        key: &Key,
        walk: &Walk,
        object: Arc<Object>,
        deferred: &mut DeferredWork,
    ) -> Found {
        self.count_hit(&object, walk.t_req);
        if object.is(flag::ONCE)
            && let Some(slot) = walk.fresh
        {
            self.commit_requested_again(key, shard, slot, &object, deferred);
        }
        self.rush(shard, key, walk.fresh.unwrap_or(NONE), deferred);
        let front_may_keep = walk.first == walk.fresh
            && object.state() == BodyState::Complete
            // Otherwise, no later hit would pass it to a disk.
            && !object.is(flag::ONCE)
            && !shard.waiting.contains_key(key);
        let front = front_may_keep.then(|| self.generation(key));
        Found { lookup: Lookup::Hit(ObjRef::shared(object)), front }
    }

    fn walk(&self, shard: &mut Shard, key: &Key, args: &LookupArgs<'_>, deferred: &mut DeferredWork) -> Walk {
        let mut walk =
            Walk { t_req: args.t_req, fresh: None, stale: None, busy: None, first: None, unfinished: false };
        let mut newest = 0.0;
        let (mut banned, mut failed) = (Vec::new(), Vec::new());
        let mut ban_checks = 0;
        let mut next = shard.first(key);
        while next != NONE {
            let slot = next;
            let entry = shard.slab.get(slot);
            next = entry.next;
            let Some(object) = &entry.object else {
                walk.busy = walk.busy.or(Self::awaitable(shard, slot, args));
                continue;
            };
            if object.is(flag::DYING | flag::FAILED) || object.timers().ttl <= 0.0 {
                // No request gets a part, so the front tables need not know it.
                if !object.is(flag::PART) {
                    walk.first = walk.first.or(Some(slot));
                }
                continue;
            }
            walk.first = walk.first.or(Some(slot));
            let early = ban_checks < args.ban_any_variant;
            ban_checks += 1;
            let is_other = || !args.ignore_vary && object.vary().is_some_and(|v| !args.matches(v));
            if !early && is_other() {
                continue;
            }
            match self.bans.check(object, args.ban, args.pause) {
                Verdict::Clear => {}
                Verdict::Banned => {
                    banned.push(slot);
                    continue;
                }
                Verdict::Unfinished => {
                    walk.unfinished = true;
                    break;
                }
            }
            if early && is_other() {
                continue;
            }
            if object.state() == BodyState::Failed {
                failed.push(slot);
                continue;
            }
            match Self::standing(object, args) {
                Standing::Fresh => {
                    walk.fresh = Some(slot);
                    break;
                }
                Standing::Stale if object.t_origin() > newest => {
                    walk.stale = Some(slot);
                    newest = object.t_origin();
                }
                Standing::Stale | Standing::TooOld => {}
            }
        }
        for slot in banned {
            if let Some(object) = &shard.slab.get(slot).object {
                (args.banned)(object.vxid());
            }
            self.remove(shard, slot, deferred);
        }
        for slot in failed {
            self.remove(shard, slot, deferred);
        }
        walk
    }

    /// Returns whether an object is fresh or stale. One whose body is on a device that does not respond is neither: its
    /// response would wait for the device, and then be cut.
    #[inline]
    fn standing(object: &Object, args: &LookupArgs<'_>) -> Standing {
        let is_available = object.stored().is_available();
        if is_available { object.standing(args.limits, args.t_req) } else { Standing::TooOld }
    }

    /// Returns the slot of a fetch if the request may wait for it: a response is expected that matches the request.
    fn awaitable(shard: &Shard, slot: u32, args: &LookupArgs<'_>) -> Option<u32> {
        let may_match = || shard.predicted.get(&slot).is_none_or(|vary| args.matches(vary));
        let may_serve = !args.ignore_busy && (args.ignore_vary || may_match());
        may_serve.then_some(slot)
    }

    fn busy(self: &Arc<Self>, shard: &mut Shard, key: &Key) -> Busy {
        let slot = shard.insert_busy(*key);
        bump(&self.counters.n_objectcore);
        Busy::new(self, *key, slot)
    }
}

impl Lookup {
    /// Returns the slot of the fetch that the request makes or waits for.
    fn fetch(&self) -> Option<u32> {
        match self {
            Self::Miss { busy, .. } | Self::HitMiss { busy, .. } => Some(busy.slot()),
            Self::Wait(wait) => Some(wait.waiter.fetch()),
            Self::Hit(_) | Self::Grace { .. } | Self::HitPass(_) | Self::Unfinished(_) => None,
        }
    }
}

impl Found {
    fn plain(lookup: Lookup) -> Self {
        Self { lookup, front: None }
    }
}

impl LookupArgs<'_> {
    pub(crate) fn matches(&self, vary: &[u8]) -> bool {
        let matches = (self.vary)(vary);
        if !matches {
            self.mismatches.set(self.mismatches.get() + 1);
        }
        matches
    }
}
