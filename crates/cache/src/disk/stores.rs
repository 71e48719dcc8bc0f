//! The stores, and the operations of all of them together.

use std::fmt;
use std::sync::Arc;

use lacquer_disk::{Ban, Dropped, Running, Store};

use crate::bans::{HeadReader, PastBans};
use crate::disk::content::Resident;
use crate::disk::variant;
use crate::invalidation::Ticket;
use crate::object::{Object, flag};
use crate::shard::Shard;
use crate::slab::Key;

/// A store behind the memory of a storage.
pub struct Disk {
    pub running: Arc<Running>,
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
}

/// All stores.
#[derive(Debug, Default)]
pub(crate) struct Disks(Box<[Disk]>);

impl Disks {
    pub(crate) fn new(disks: Vec<Disk>) -> Self {
        Self(disks.into())
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Disk> {
        self.0.iter()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Disk> {
        self.0.get(index)
    }

    pub(crate) fn has_stevedore(&self, stevedore: u8) -> bool {
        self.0.iter().any(|disk| disk.stevedore == stevedore)
    }

    pub(crate) fn may_have(&self, key: &Key) -> bool {
        self.0.iter().any(|disk| disk.store().may_have(key))
    }

    /// Removes all objects of a key. The ticket waits until that is durable. The caller holds the lock of the shard, and
    /// drops the result after it.
    pub(crate) fn purge(&self, key: &Key, ticket: &mut Ticket) -> Vec<Dropped> {
        self.0.iter().map(|disk| disk.store().purge(key, Some(Box::new(ticket.hold())))).collect()
    }

    /// Removes all objects with a fingerprint. 0 is none.
    pub(crate) fn forget(&self, fingerprint: u64) -> Vec<Dropped> {
        let stores = self.0.iter().filter(|_| fingerprint != 0);
        stores.map(|disk| disk.store().purge_fingerprint(fingerprint, None)).collect()
    }

    /// Passes an object to the store behind its storage, if it may be stored. Otherwise removes the older objects of its
    /// key from all stores, and from the other stores in any case. The caller holds the lock of the shard that contains
    /// the object, and drops the result after it.
    pub(crate) fn commit(
        &self,
        key: &Key,
        shard: &Shard,
        slot: u32,
        object: &Arc<Object>,
        heads: &dyn HeadReader,
    ) -> Vec<Dropped> {
        const NEVER: u32 = flag::PRIVATE
            | flag::HFM
            | flag::HFP
            | flag::TAGGED
            | flag::DYING
            | flag::FAILED
            | flag::UNSTORED;
        // An object that was published later decides.
        if has_rival(shard, key, slot, object, heads) {
            return Vec::new();
        }
        let store = |disk: &Disk| {
            if disk.stevedore == object.stevedore() && !object.is(NEVER) {
                disk.store().commit(Box::new(Resident::new(*key, object, heads)))
            } else {
                disk.store().purge(key, None)
            }
        };
        self.0.iter().map(store).collect()
    }

    /// Records a ban in all stores. The ticket waits until it is durable.
    pub(crate) fn ban(&self, number: u32, time: f64, words: &[String], ticket: &mut Ticket) {
        for disk in &self.0 {
            let ban = Ban { number, time, words: words.to_vec() };
            disk.store().ban(ban, Some(Box::new(ticket.hold())));
        }
    }
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
