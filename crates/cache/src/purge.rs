//! Purging: removes or shortens all variants of one key, or all objects with a tag. There may be many objects, so a
//! purge runs in steps. When the last step is done, the purge has been applied to every object that it found.

use std::sync::Arc;

use lacquer_flow::lookup::Limits;

use crate::cache::{Cache, slot_id};
use crate::disk::TagPurge;
use crate::invalidation::{Purge, Ticket};
use crate::object::flag;
use crate::shard::DeferredWork;
use crate::slab::{Digest, key_of};
use crate::stats::{add, bump};
use crate::tags::Tag;

/// The number of objects that are purged between calls of `pause`.
const GROUP: usize = 64;

/// The property by which a purge checks that a slot still contains the object that it found.
#[derive(Clone, Copy, Debug)]
enum Found {
    Object { vxid: u64 },
    Tagged { tag: Tag },
}

/// A purge in progress. For a ban it is empty, and the first step ends it.
#[derive(Debug)]
#[must_use = "objects are purged by its steps"]
pub struct Purging {
    purge: Purge,
    /// The time from which the ttl of a soft purge counts.
    now: f64,
    /// Whether it purges a key. Only such purges are counted.
    of_key: bool,
    /// The slots of objects that are still to be purged.
    slots: Vec<(u32, Found)>,
    /// The number of objects purged so far.
    total: usize,
    /// Prevents until the end that objects with the tags are written to disks, or replaced by others with the same body.
    of_tags: Option<TagPurge>,
    /// Prevents until the end that objects of the key are replaced by others with the same body.
    in_shard: Option<Arc<()>>,
    /// Exists until the end of the purge.
    pub(crate) in_progress: Option<Arc<()>>,
    pub(crate) ticket: Ticket,
}

impl Purging {
    pub(crate) fn of_nothing() -> Self {
        Self::new(Purge::Hard, 0.0, false, Vec::new())
    }

    fn new(purge: Purge, now: f64, of_key: bool, slots: Vec<(u32, Found)>) -> Self {
        let (of_tags, in_shard, in_progress) = (None, None, None);
        let ticket = Ticket::default();
        Self { purge, now, of_key, slots, total: 0, of_tags, in_shard, in_progress, ticket }
    }

    /// Returns the ticket, which is ready once listeners have recorded the invalidation. Later calls return a ready
    /// ticket.
    pub fn ticket(&mut self) -> Ticket {
        std::mem::take(&mut self.ticket)
    }

    /// Continues until all objects are purged, and returns their number. `pause` is called after each group of
    /// objects. If it returns true, the step ends early with `None`.
    pub fn step(&mut self, cache: &Cache, pause: &dyn Fn() -> bool) -> Option<usize> {
        while !self.slots.is_empty() {
            let rest = self.slots.len().saturating_sub(GROUP);
            for (id, found) in self.slots.drain(rest..) {
                self.total += usize::from(cache.purge_slot(id, found, self.purge, self.now));
            }
            if !self.slots.is_empty() && pause() {
                return None;
            }
        }
        self.of_tags = None;
        self.in_shard = None;
        self.in_progress = None;
        if self.of_key && matches!(self.purge, Purge::Hard) {
            bump(&cache.counters.n_purges);
            add(&cache.counters.n_obj_purged, self.total as u64);
        }
        Some(self.total)
    }

    /// Purges all remaining objects without a pause. Returns the total number of objects.
    pub fn finish(mut self, cache: &Cache) -> usize {
        self.step(cache, &|| false).unwrap_or_default()
    }
}

impl Cache {
    /// Begins a purge of all objects of a key, but not of fetches in progress.
    pub(crate) fn begin_purge(&self, digest: &Digest, purge: Purge, now: f64) -> Purging {
        let key = key_of(digest);
        let (mut slots, mut ticket) = (Vec::new(), Ticket::default());
        let mut shard = self.shard(&key).lock();
        // Those that the steps will purge must not be passed to a disk in between.
        let dropped = if self.disks.is_empty() { Vec::new() } else { self.disks.purge(&key, &mut ticket) };
        for slot in shard.slots(&key) {
            if let Some(object) = &shard.slab.get(slot).object {
                if !self.disks.is_empty() {
                    object.set(flag::UNSTORED);
                }
                slots.push((slot_id(&key, slot), Found::Object { vxid: object.vxid() }));
            }
        }
        let is_marked = matches!(purge, Purge::Hard) && !slots.is_empty();
        let in_shard = is_marked.then(|| shard.purges.begin(key));
        drop(shard);
        drop(dropped);
        Purging { in_shard, ticket, ..Purging::new(purge, now, true, slots) }
    }

    /// Begins a purge of all objects that have any of the tags. A soft purge skips objects that are not fresh.
    pub(crate) fn begin_tag_purge(&self, tags: &[Box<[u8]>], purge: Purge, now: f64) -> Purging {
        let of_tag = |tag: Tag| {
            let tagged = move |id| (id, Found::Tagged { tag });
            self.tags.slot_ids(tag).into_iter().map(tagged)
        };
        let hashed: Vec<Tag> = tags.iter().map(|word| self.tags.tag(word)).collect();
        let mut ticket = Ticket::default();
        // Before the objects in memory are collected: the rules are in [`crate::disk`].
        let of_tags = Some(self.disks.begin_tag_purge(tags, hashed.clone(), &mut ticket));
        let slots = hashed.into_iter().flat_map(of_tag).collect();
        Purging { of_tags, ticket, ..Purging::new(purge, now, false, slots) }
    }

    /// Purges one object, under the lock of its shard. Returns whether the object was still there.
    fn purge_slot(&self, id: u32, found: Found, purge: Purge, now: f64) -> bool {
        let Some((shard, slot)) = self.at(id) else { return false };
        let mut deferred = DeferredWork::default();
        let mut shard = shard.lock();
        let is_it = match found {
            Found::Object { vxid } => shard.slab.holds(slot, vxid),
            Found::Tagged { tag } => shard.tags.get(&slot).is_some_and(|t| t.binary_search(&tag).is_ok()),
        };
        let Some(object) = is_it.then(|| shard.slab.get(slot).object.clone()).flatten() else { return false };
        if !self.disks.is_empty() {
            // A soft purge has removed it from the disks.
            object.set(flag::UNSTORED);
        }
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
