//! The stores, and the operations of all of them together.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lacquer_disk::{Ban, Committed, Dropped, Ring, Running, Stats, Store};

use crate::bans::{HeadReader, PastBans};
use crate::disk::admission::Admission;
use crate::disk::content::{Resident, meta_of};
use crate::disk::extent::{Beginnings, SpillExtent};
use crate::disk::lending::Lending;
use crate::disk::tag_purges::{TagPurge, TagPurges};
use crate::disk::variant;
use crate::invalidation::Ticket;
use crate::locks::Mutex;
use crate::object::{Object, flag};
use crate::shard::Shard;
use crate::slab::Key;
use crate::tags::Tag;

/// A store behind the memory of a storage.
pub struct Disk {
    pub running: Arc<Running>,
    /// The path of its device, for messages.
    pub path: PathBuf,
    /// The number of the storage.
    pub stevedore: u8,
    /// Receives the failure of the store: whether its contents are invalid for the next start.
    pub failed: Box<dyn Fn(bool) + Send + Sync>,
}

impl Disk {
    pub(crate) fn store(&self) -> &Arc<Store> {
        self.running.store()
    }
}

/// The stores when the worker starts.
#[derive(Default)]
pub struct OpenDisks {
    pub disks: Vec<Disk>,
    /// The bans that they have recorded.
    pub past_bans: PastBans,
    /// One for each reactor, or none: then threads read.
    pub rings: Vec<Ring>,
}

/// All stores, and the rule by which objects are admitted to them.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    stores: Box<[Disk]>,
    /// Those that no reactor has taken.
    rings: Mutex<Vec<Ring>>,
    /// One for each store.
    lending: Box<[Lending]>,
    beginnings: Box<[Beginnings]>,
    pub(crate) admission: Admission,
    pub(crate) tag_purges: TagPurges,
    /// The number of bodies that move to a disk while they are fetched.
    pub(crate) spills: Arc<AtomicU64>,
}

impl Disks {
    pub(crate) fn new(stores: Vec<Disk>, rings: Vec<Ring>) -> Self {
        let lending = stores.iter().map(|_| Lending::default()).collect();
        let beginnings = stores.iter().map(|_| Beginnings::default()).collect();
        Self { stores: stores.into(), rings: Mutex::new(rings), lending, beginnings, ..Self::default() }
    }

    pub(crate) fn take_ring(&self) -> Option<Ring> {
        self.rings.lock().pop()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Disk> {
        self.stores.iter()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Disk> {
        self.stores.get(index)
    }

    /// Returns a store, and the use of the memory of its reads.
    pub(crate) fn lending(&self, index: usize) -> Option<(&Disk, &Lending)> {
        self.stores.get(index).zip(self.lending.get(index))
    }

    /// Returns a store, and the bodies in it that may have their beginnings in memory.
    pub(crate) fn beginnings(&self, index: usize) -> Option<(&Disk, &Beginnings)> {
        self.stores.get(index).zip(self.beginnings.get(index))
    }

    pub(crate) fn has_stevedore(&self, stevedore: u8) -> bool {
        self.stores.iter().any(|disk| disk.stevedore == stevedore)
    }

    pub(crate) fn may_have(&self, key: &Key) -> bool {
        self.stores.iter().any(|disk| disk.store().may_have(key))
    }

    /// Removes all objects of a key. The ticket waits until that is durable. The caller holds the lock of the shard, and
    /// drops the result after it.
    pub(crate) fn purge(&self, key: &Key, ticket: &mut Ticket) -> Vec<Dropped> {
        self.stores.iter().map(|disk| disk.store().purge(key, Some(Box::new(ticket.hold())))).collect()
    }

    /// Begins a purge by tags: removes all objects that have one of them. The ticket waits until that is durable.
    pub(crate) fn begin_tag_purge(
        &self,
        words: &[Box<[u8]>],
        tags: Vec<Tag>,
        ticket: &mut Ticket,
    ) -> TagPurge {
        self.tag_purges.begin(tags, || {
            for disk in &self.stores {
                let words = words.iter().map(|word| &**word);
                disk.store().purge_tags(words, Some(Box::new(ticket.hold())));
            }
        })
    }

    /// Removes all objects with a fingerprint. 0 is none.
    pub(crate) fn forget(&self, fingerprint: u64) -> Vec<Dropped> {
        let stores = self.stores.iter().filter(|_| fingerprint != 0);
        stores.map(|disk| disk.store().purge_fingerprint(fingerprint, None)).collect()
    }

    /// Passes an object to the store behind its storage, if it may be stored and is admitted. Otherwise removes the older
    /// objects of its key from all stores, and from the other stores in any case. `is_allowed` states whether purges by
    /// its tags will reach it. The caller holds the lock of the shard that contains the object, and drops the result
    /// after it.
    pub(crate) fn commit(
        &self,
        key: &Key,
        shard: &Shard,
        slot: u32,
        object: &Arc<Object>,
        heads: &dyn HeadReader,
        is_allowed: bool,
    ) -> Vec<Dropped> {
        // An object that was published later decides.
        if has_rival(shard, key, slot, object, heads) {
            return Vec::new();
        }
        let is_stored = is_allowed && !object.is(flag::NEVER_STORED);
        let chosen = if is_stored { self.store_for(key, object.stevedore()) } else { None };
        let chosen = chosen.filter(|&index| self.admits(key, object, index));
        let spilled = SpillExtent::of(object);
        // A body that has moved to another store stays there.
        let chosen = chosen.filter(|&index| spilled.is_none_or(|spilled| spilled.disk == index));
        let store = |(index, disk): (usize, &Disk)| {
            if chosen != Some(index) {
                return disk.store().purge(key, None);
            }
            let content = Box::new(Resident::new(*key, object, heads));
            let Committed { dropped, is_refused } = match spilled {
                Some(spilled) => disk.store().commit_streamed(content, &spilled.stream),
                None => disk.store().commit(content),
            };
            // A body that has left memory cannot be passed again.
            if is_refused && spilled.is_none() {
                object.set(flag::ONCE);
            }
            dropped
        };
        self.stores.iter().enumerate().map(store).collect()
    }

    /// Returns whether an object is written to a store now. Otherwise, it is when it is requested again. The caller holds
    /// the lock of its shard.
    fn admits(&self, key: &Key, object: &Object, store: usize) -> bool {
        if !self.admission.is_by_second() || object.hits() > 0 {
            return true;
        }
        let store = self.stores[store].store();
        // The new object replaces one that was admitted before.
        let is_admitted = store.may_have(key) || self.admission.was_refused(key);
        if !is_admitted {
            object.set(flag::ONCE);
            Stats::count(&store.stats().postponed);
        }
        is_admitted
    }

    /// Returns the store that has an object with the key, variant and time of expiry of one in memory.
    pub(crate) fn find_similar(&self, key: &Key, object: &Object, heads: &dyn HeadReader) -> Option<usize> {
        let meta = meta_of(*key, object, heads);
        self.stores.iter().position(|disk| disk.store().has_similar(&meta))
    }

    /// Returns whether the store for a key refuses objects, because too many wait. Takes no lock of a store.
    pub(crate) fn is_crowded(&self, key: &Key, stevedore: u8) -> bool {
        self.store_for(key, stevedore).is_some_and(|index| self.stores[index].store().is_crowded())
    }

    /// Returns whether the memory of a storage is in front of a disk.
    pub(crate) fn is_behind(&self, stevedore: u8) -> bool {
        self.stores.iter().any(|disk| disk.stevedore == stevedore)
    }

    /// Chooses the store for a key among those of a storage that work, in proportion to their sizes. While the same stores
    /// work, the choice is the same. If one fails, only its keys get another.
    pub(crate) fn store_for(&self, key: &Key, stevedore: u8) -> Option<usize> {
        let is_meant = |(_, disk): &(usize, &Disk)| disk.stevedore == stevedore && disk.store().works();
        let mut stores = self.stores.iter().enumerate().filter(is_meant);
        let (first, _) = stores.next()?;
        if stores.clone().next().is_none() {
            return Some(first);
        }
        let score = |(index, disk): (usize, &Disk)| {
            (weighted(key, index as u64, disk.store().layout().size()), index)
        };
        let all = self.stores.iter().enumerate().filter(is_meant).map(score);
        all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, index)| index)
    }

    /// Records a ban in all stores. The ticket waits until it is durable.
    pub(crate) fn ban(&self, number: u32, time: f64, words: &[Vec<u8>], ticket: &mut Ticket) {
        for disk in &self.stores {
            let ban = Ban { number, time, words: words.to_vec() };
            disk.store().ban(ban, Some(Box::new(ticket.hold())));
        }
    }
}

/// Returns the score of a store for a key. That of the highest score is chosen, and the number of keys for which that is
/// the case is in proportion to the size.
fn weighted(key: &Key, store: u64, size: u64) -> f64 {
    let mut mixed = store.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in key.as_chunks::<8>().0 {
        mixed = (mixed ^ u64::from_le_bytes(*word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^= mixed >> 32;
    }
    // In (0, 1).
    let even = ((mixed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    size as f64 / -even.ln()
}

/// Returns whether one of the objects of the key that were published later than that in `slot` may match the same
/// requests as `object`.
pub(crate) fn has_rival(
    shard: &Shard,
    key: &Key,
    slot: u32,
    object: &Object,
    heads: &dyn HeadReader,
) -> bool {
    if shard.first(key) == slot {
        return false;
    }
    let variant_of = |object: &Object| variant::of(heads, object.vary().unwrap_or_default());
    let own = variant_of(object);
    let is_rival = |newer: &Object| lacquer_disk::are_rivals(own, variant_of(newer));
    shard
        .slots(key)
        .take_while(|&newer| newer != slot)
        .any(|newer| shard.slab.get(newer).object.as_deref().is_some_and(is_rival))
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}, {:?})", self.stevedore, self.running)
    }
}

#[cfg(test)]
mod tests {
    use super::weighted;
    use crate::slab::Key;

    fn chosen(number: u64, sizes: &[u64]) -> usize {
        let mut key: Key = [0; 24];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let scores = sizes.iter().enumerate().map(|(store, &size)| weighted(&key, store as u64, size));
        let best = scores.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        best.expect("there are stores").0
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn stores_get_keys_in_proportion_to_their_sizes() {
        let mut counts = [0; 3];
        for number in 0..40_000 {
            counts[chosen(number, &[100 << 30, 200 << 30, 100 << 30])] += 1;
        }
        let expected = [10_000, 20_000, 10_000];
        let is_near = |(count, expected): (&i32, &i32)| (count - expected).abs() < 400;
        assert!(counts.iter().zip(&expected).all(is_near), "{counts:?}");
    }

    #[test]
    fn a_store_less_moves_only_its_keys() {
        for number in 0..1000 {
            let with = chosen(number, &[1 << 30, 1 << 30, 1 << 30]);
            let without = chosen(number, &[1 << 30, 1 << 30]);
            assert!(with == without || with == 2, "{number}: {with}, {without}");
        }
    }
}
