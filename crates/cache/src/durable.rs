//! Objects that their store keeps on a device: commits them when they are complete, and indexes those that were
//! stored by a previous process.

use std::io;
use std::sync::{Arc, Weak};

use lacquer_storage::{Stevedore, Stored};

use crate::cache::{Busy, Cache};
use crate::descriptor::Descriptor;
use crate::evicted::Evicted;
use crate::object::{Object, flag};
use crate::slab::Key;
use crate::stats::bump;

/// The number of objects from a previous process that the stores contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub indexed: u64,
    /// Objects that are damaged or of another version. They are freed.
    pub refused: u64,
}

impl Cache {
    /// Indexes the objects that the stores contain from a previous process. Must be called once, before the first
    /// lookup. Stores in memory that are not kept contain none.
    pub fn recover(self: &Arc<Self>) -> io::Result<Recovery> {
        let mut recovery = self.take_over()?;
        for stevedore in &self.stevedores {
            stevedore.recover(
                &mut |stored, descriptor| match self.reindex(stevedore, stored, descriptor) {
                    Some(()) => recovery.indexed += 1,
                    None => recovery.refused += 1,
                },
            )?;
        }
        Ok(recovery)
    }

    fn reindex(self: &Arc<Self>, stevedore: &Stevedore, stored: Stored, descriptor: &[u8]) -> Option<()> {
        let descriptor = Descriptor::read(descriptor).ok()?;
        let object = Object::new(stored, &descriptor.spec(), stevedore.index());
        if !object.has_sound_head() || !self.bans.heads.is_sound(object.head()) {
            return None;
        }
        let slot = self.shard(&descriptor.key).lock().insert_busy(descriptor.key);
        bump(&self.counters.n_objectcore);
        Busy::new(self, descriptor.key, slot).publish(&object);
        Some(())
    }

    /// Passes an object that is in the index and complete to the device of its store. An object with tags stays in
    /// memory only: recovered without its tags, it would survive a purge of them.
    pub(crate) fn commit(&self, key: Key, object: &Object) {
        let Some(stevedore) = self.device_of(object) else { return };
        if !object.is(flag::PRIVATE | flag::HFM | flag::HFP | flag::TAGGED | flag::DYING) {
            stevedore.commit(object.stored(), &Descriptor::of(key, object).bytes());
        }
    }

    /// Commits an object whose fetch ends. An object that is not in the index yet is committed when it is published.
    pub(crate) fn commit_indexed(&self, object: &Object) {
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
    pub(crate) fn device_of(&self, object: &Object) -> Option<&Stevedore> {
        self.stevedores.get(usize::from(object.stevedore())).filter(|stevedore| stevedore.has_device())
    }

    /// Allows stores to evict their objects when they load bodies from the device.
    pub(crate) fn install_load_eviction(self: &Arc<Self>) {
        for stevedore in self.stevedores.iter().filter(|stevedore| stevedore.has_device()) {
            let (cache, index): (Weak<Cache>, u8) = (Arc::downgrade(self), stevedore.index());
            stevedore.on_full(move || {
                let evict = |cache: Arc<Cache>| cache.nuke_one(index, true, &mut |_| {});
                cache.upgrade().is_some_and(|cache| evict(cache) != Evicted::Nothing)
            });
        }
    }
}
