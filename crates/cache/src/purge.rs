//! Purging: all variants of one key at once, or all objects with a tag.

use crate::cache::{Cache, Digest, key_of};
use crate::shard::After;
use crate::slab::NONE;
use crate::stats::{add, bump};
use crate::tags::Tag;

/// What a purge does to the objects it finds.
#[derive(Clone, Copy, Debug)]
pub enum Purge {
    /// Removes them.
    Hard,
    /// Shortens their timers to these at most, in seconds (NaN: leave); `ttl` counts from `now`.
    Soft { now: f64, ttl: f64, grace: f64, keep: f64 },
}

impl Cache {
    /// Purges all objects of a key, not the fetches under way; answers how many there were.
    pub fn purge(&self, digest: &Digest, purge: Purge) -> usize {
        let key = key_of(digest);
        let mut after = After::default();
        let mut total = 0;
        {
            let mut shard = self.shard(&key).lock();
            let mut next = shard.first(&key);
            while next != NONE {
                let slot = next;
                let place = shard.slab.get(slot);
                next = place.next;
                let Some(object) = place.object.clone() else { continue };
                total += 1;
                match purge {
                    Purge::Hard => self.remove(&mut shard, slot, &mut after),
                    Purge::Soft { now, ttl, grace, keep } => {
                        self.shorten(&mut shard, slot, &object, now, [ttl, grace, keep]);
                    }
                }
            }
        }
        after.run();
        if matches!(purge, Purge::Hard) {
            bump(&self.counters.n_purges);
            add(&self.counters.n_obj_purged, total as u64);
        }
        total
    }

    /// Purges all objects that have any of the tags; answers how many there were. An object that is not
    /// fresh any more is none for a soft purge. Locks one shard at a time, for one object.
    pub fn purge_tags(&self, tags: &[Tag], purge: Purge) -> usize {
        let mut total = 0;
        for &tag in tags {
            total += self.tags.places(tag).into_iter().filter(|&p| self.purge_place(p, tag, purge)).count();
        }
        total
    }

    fn purge_place(&self, place: u32, tag: Tag, purge: Purge) -> bool {
        let Some((shard, slot)) = self.at(place) else { return false };
        let mut after = After::default();
        let mut shard = shard.lock();
        if shard.tags.get(&slot).is_none_or(|tags| tags.binary_search(&tag).is_err()) {
            return false;
        }
        let Some(object) = shard.slab.get(slot).object.clone() else { return false };
        match purge {
            Purge::Hard => self.remove(&mut shard, slot, &mut after),
            Purge::Soft { now, .. } if object.fresh_until(0.0) <= now => return false,
            Purge::Soft { now, ttl, grace, keep } => {
                self.shorten(&mut shard, slot, &object, now, [ttl, grace, keep]);
            }
        }
        drop(shard);
        after.run();
        true
    }
}
