//! Purging: all variants of one key, or all objects with a tag. There may be many, so a purge goes in steps; it is
//! complete when the last one is done, and everything it found is gone then.

use lacquer_flow::lookup::Limits;

use crate::cache::{Cache, place_of};
use crate::invalidation::{Purge, Ticket};
use crate::shard::DeferredWork;
use crate::slab::{Digest, NONE, key_of};
use crate::stats::{add, bump};
use crate::tags::Tag;

/// Objects that are purged before `pause` is asked.
const GROUP: usize = 64;

/// The property by which a purge checks that the object in a place is still the one that was found.
#[derive(Clone, Copy, Debug)]
enum Found {
    Object { vxid: u64 },
    Tagged { tag: Tag },
}

/// A purge that is under way. Of a ban nothing is under way, and the first step ends it.
#[derive(Debug)]
#[must_use = "objects are purged by its steps"]
pub struct Purging {
    purge: Purge,
    /// Time from which the ttl of a soft purge counts.
    now: f64,
    /// Whether it purges a key, which is counted.
    of_key: bool,
    /// Objects that are still to be purged.
    places: Vec<(u32, Found)>,
    /// Objects purged so far.
    total: usize,
    pub(crate) ticket: Ticket,
}

impl Purging {
    pub(crate) fn of_nothing() -> Self {
        Self::new(Purge::Hard, 0.0, false, Vec::new())
    }

    fn new(purge: Purge, now: f64, of_key: bool, places: Vec<(u32, Found)>) -> Self {
        Self { purge, now, of_key, places, total: 0, ticket: Ticket::default() }
    }

    /// Returns the wait until listeners have recorded the invalidation. It is taken once.
    pub fn ticket(&mut self) -> Ticket {
        std::mem::take(&mut self.ticket)
    }

    /// Goes on until all is done, and returns the number of objects; `None` if `pause`, which is asked after each
    /// group of objects, ended the step before.
    pub fn step(&mut self, cache: &Cache, pause: &dyn Fn() -> bool) -> Option<usize> {
        while !self.places.is_empty() {
            let rest = self.places.len().saturating_sub(GROUP);
            for (place, found) in self.places.drain(rest..) {
                self.total += usize::from(cache.purge_place(place, found, self.purge, self.now));
            }
            if !self.places.is_empty() && pause() {
                return None;
            }
        }
        if self.of_key && matches!(self.purge, Purge::Hard) {
            bump(&cache.counters.n_purges);
            add(&cache.counters.n_obj_purged, self.total as u64);
        }
        Some(self.total)
    }

    /// Does all that is left in one go, and returns the number of objects.
    pub fn finish(mut self, cache: &Cache) -> usize {
        self.step(cache, &|| false).unwrap_or_default()
    }
}

impl Cache {
    /// Begins a purge of all objects of a key, not of the fetches under way.
    pub(crate) fn begin_purge(&self, digest: &Digest, purge: Purge, now: f64) -> Purging {
        let key = key_of(digest);
        let mut places = Vec::new();
        let shard = self.shard(&key).lock();
        let mut slot = shard.first(&key);
        while slot != NONE {
            let place = shard.slab.get(slot);
            if let Some(object) = &place.object {
                places.push((place_of(&key, slot), Found::Object { vxid: object.vxid() }));
            }
            slot = place.next;
        }
        Purging::new(purge, now, true, places)
    }

    /// Begins a purge of all objects that have any of the tags. An object that is not fresh any more is none for a
    /// soft purge.
    pub(crate) fn begin_tag_purge(&self, tags: &[Box<[u8]>], purge: Purge, now: f64) -> Purging {
        let of_tag = |tag: Tag| {
            let tagged = move |place| (place, Found::Tagged { tag });
            self.tags.places(tag).into_iter().map(tagged)
        };
        let places = tags.iter().flat_map(|word| of_tag(self.tags.tag(word))).collect();
        Purging::new(purge, now, false, places)
    }

    /// Locks one shard, for one object.
    fn purge_place(&self, place: u32, found: Found, purge: Purge, now: f64) -> bool {
        let Some((shard, slot)) = self.at(place) else { return false };
        let mut deferred = DeferredWork::default();
        let mut shard = shard.lock();
        let is_it = match found {
            Found::Object { vxid } => shard.slab.holds(slot, vxid),
            Found::Tagged { tag } => shard.tags.get(&slot).is_some_and(|t| t.binary_search(&tag).is_ok()),
        };
        let Some(object) = is_it.then(|| shard.slab.get(slot).object.clone()).flatten() else { return false };
        match (purge, found) {
            (Purge::Hard, _) => self.remove(&mut shard, slot, &mut deferred),
            (Purge::Soft { .. }, Found::Tagged { .. }) if object.fresh_until(Limits::NONE) <= now => {
                return false;
            }
            (Purge::Soft { ttl, grace, keep }, _) => {
                let most = [ttl, grace.unwrap_or(f64::NAN), keep.unwrap_or(f64::NAN)];
                self.shorten(&mut shard, slot, &object, now, most);
            }
        }
        drop(shard);
        deferred.run();
        true
    }
}
