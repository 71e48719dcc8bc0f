//! Objects whose store keeps them on a device: handing them over when they are complete, and indexing those that are
//! still there from before.

use std::io;
use std::sync::{Arc, Weak};

use lacquer_storage::{Stevedore, Stored};

use crate::cache::{Busy, Cache};
use crate::descriptor::Descriptor;
use crate::object::{Object, flag};
use crate::slab::Key;
use crate::stats::bump;

/// Objects that a store had from before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub indexed: u64,
    /// Objects that this version cannot read, or that are damaged. They are freed.
    pub refused: u64,
}

impl Cache {
    /// Indexes the objects that the stores still have from before. To be called once, before the first lookup. Memory has
    /// none.
    pub fn recover(self: &Arc<Self>) -> io::Result<Recovery> {
        let mut recovery = Recovery::default();
        for stevedore in &self.stevedores {
            stevedore.recover(&mut |stored, about| match self.index_again(stevedore, stored, about) {
                Some(()) => recovery.indexed += 1,
                None => recovery.refused += 1,
            })?;
        }
        Ok(recovery)
    }

    fn index_again(self: &Arc<Self>, stevedore: &Stevedore, stored: Stored, about: &[u8]) -> Option<()> {
        let descriptor = Descriptor::read(about).ok()?;
        let object = Object::new(stored, &descriptor.spec(), stevedore.index());
        if !object.has_sound_head() || !self.bans.heads.is_sound(object.head()) {
            return None;
        }
        let slot = self.shard(&descriptor.key).lock().insert_busy(descriptor.key);
        bump(&self.counters.n_objectcore);
        Busy::new(self, descriptor.key, slot).publish(&object);
        Some(())
    }

    /// Hands an object that can be found and is complete to the device of its store. One with tags stays in memory alone:
    /// recovered without them, it would outlive a purge of its tags.
    pub(crate) fn commit(&self, key: Key, object: &Object) {
        let Some(stevedore) = self.device_of(object) else { return };
        if !object.is(flag::PRIVATE | flag::HFM | flag::HFP | flag::TAGGED | flag::DYING) {
            stevedore.commit(object.stored(), &Descriptor::of(key, object).bytes());
        }
    }

    /// As `commit`, for an object whose fetch ends. One that is not in the index yet is committed when it is published.
    pub(crate) fn commit_found(&self, object: &Object) {
        let Some((shard, slot)) = self.locate(object) else { return };
        let key = {
            let shard = shard.lock();
            shard.object(slot, object.vxid()).map(|_| shard.slab.get(slot).key)
        };
        if let Some(key) = key {
            self.commit(key, object);
        }
    }

    /// Returns the store of an object, if it has a device.
    #[inline]
    pub(crate) fn device_of(&self, object: &Object) -> Option<&Stevedore> {
        self.stevedores.get(usize::from(object.stevedore())).filter(|stevedore| stevedore.has_device())
    }

    /// Lets loads of bodies evict objects of their store.
    pub(crate) fn make_room_for_loads(self: &Arc<Self>) {
        for stevedore in self.stevedores.iter().filter(|stevedore| stevedore.has_device()) {
            let (cache, index): (Weak<Cache>, u8) = (Arc::downgrade(self), stevedore.index());
            stevedore.on_full(move || {
                cache.upgrade().is_some_and(|cache| cache.nuke_one(index, true, &mut |_| {}))
            });
        }
    }
}
