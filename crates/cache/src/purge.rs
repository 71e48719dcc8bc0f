//! Purging: all variants of one key, or all objects with a tag. There may be many, so a purge goes in steps; it is
//! complete when the last one is done, and everything it found is gone then.

use lacquer_flow::lookup::Limits;

use crate::cache::{Cache, place_of};
use crate::shard::DeferredWork;
use crate::slab::{Digest, NONE, key_of};
use crate::stats::{add, bump};
use crate::tags::Tag;

/// Objects that are purged before `pause` is asked.
const GROUP: usize = 64;

/// Effect of a purge on the objects that it finds.
#[derive(Clone, Copy, Debug)]
pub enum Purge {
    /// Removes them.
    Hard,
    /// Shortens their timers to these at most, in seconds (NaN: leave); `ttl` counts from `now`.
    Soft { now: f64, ttl: f64, grace: f64, keep: f64 },
}

/// The property by which a purge checks that the object in a place is still the one that was found.
#[derive(Clone, Copy, Debug)]
enum Found {
    Object { vxid: u64 },
    Tagged { tag: Tag },
}

/// A purge that is under way.
#[derive(Debug)]
#[must_use = "objects are purged by its steps"]
pub struct Purging {
    purge: Purge,
    of_key: bool,
    /// Objects that are still to be purged.
    places: Vec<(u32, Found)>,
    /// Objects purged so far.
    total: usize,
}

impl Purging {
    /// Goes on until all is done, and returns the number of objects; `None` if `pause`, which is asked after each
    /// group of objects, ended the step before.
    pub fn step(&mut self, cache: &Cache, pause: &dyn Fn() -> bool) -> Option<usize> {
        while !self.places.is_empty() {
            let rest = self.places.len().saturating_sub(GROUP);
            for (place, found) in self.places.drain(rest..) {
                self.total += usize::from(cache.purge_place(place, found, self.purge));
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
}

impl Cache {
    /// Begins a purge of all objects of a key, not of the fetches under way.
    pub fn begin_purge(&self, digest: &Digest, purge: Purge) -> Purging {
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
        Purging { purge, of_key: true, places, total: 0 }
    }

    /// Begins a purge of all objects that have any of the tags. An object that is not fresh any more is none for a
    /// soft purge.
    pub fn begin_tag_purge(&self, tags: &[Tag], purge: Purge) -> Purging {
        let of_tag = |&tag: &Tag| {
            let tagged = move |place| (place, Found::Tagged { tag });
            self.tags.places(tag).into_iter().map(tagged)
        };
        Purging { purge, of_key: false, places: tags.iter().flat_map(of_tag).collect(), total: 0 }
    }

    /// Purges all objects of a key in one step; returns how many there were.
    pub fn purge(&self, digest: &Digest, purge: Purge) -> usize {
        self.begin_purge(digest, purge).step(self, &|| false).unwrap_or_default()
    }

    /// Purges all objects that have any of the tags in one step; returns how many there were.
    pub fn purge_tags(&self, tags: &[Tag], purge: Purge) -> usize {
        self.begin_tag_purge(tags, purge).step(self, &|| false).unwrap_or_default()
    }

    /// Locks one shard, for one object.
    fn purge_place(&self, place: u32, found: Found, purge: Purge) -> bool {
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
            (Purge::Soft { now, .. }, Found::Tagged { .. }) if object.fresh_until(Limits::NONE) <= now => {
                return false;
            }
            (Purge::Soft { now, ttl, grace, keep }, _) => {
                self.shorten(&mut shard, slot, &object, now, [ttl, grace, keep]);
            }
        }
        drop(shard);
        deferred.run();
        true
    }
}
