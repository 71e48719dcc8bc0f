//! Stores with a device: indexes the objects that were stored by a previous process, and evicts objects when a store
//! has no memory for bodies that it loads.

use std::io;
use std::sync::{Arc, Weak};

use lacquer_storage::{Stevedore, Stored};

use crate::busy::Busy;
use crate::cache::Cache;
use crate::config::Config;
use crate::descriptor::Descriptor;
use crate::disk::OpenDisks;
use crate::evicted::Evicted;
use crate::object::{Object, flag};
use crate::stats::bump;
use crate::take_over::Recovery;

impl Cache {
    /// Creates a cache. No later call may pass a time before `now`.
    pub fn new(config: Config, now: f64) -> Arc<Self> {
        Self::with_disks(config, OpenDisks::default(), now)
    }

    /// Indexes the objects that the stores contain from a previous process. Must be called once, before the first
    /// lookup. Stores in memory that are not kept contain none.
    pub fn recover(self: &Arc<Self>) -> io::Result<Recovery> {
        let mut recovery = self.take_over()?;
        self.count_bans_on_disks();
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
        // An object with tags would be published without them.
        let descriptor = Descriptor::read(descriptor).ok().filter(|found| found.flags & flag::TAGGED == 0)?;
        let object = Object::new(stored, &descriptor.spec(), stevedore.index());
        let heads = &self.bans.heads;
        let is_sound = object.has_sound_head()
            && heads.is_sound(object.head())
            && heads.is_sound_extra(object.extra(), object.body_len());
        if !is_sound {
            return None;
        }
        let slot = self.shard(&descriptor.key).lock().insert_busy(descriptor.key);
        bump(&self.counters.n_objectcore);
        Busy::new(self, descriptor.key, slot).publish(&object);
        Some(())
    }

    /// Allows stores to evict their objects when they load bodies from the device.
    pub(crate) fn install_load_eviction(self: &Arc<Self>) {
        let loads = |it: &&Stevedore| it.has_device() || self.disks.has_stevedore(it.index());
        for stevedore in self.stevedores.iter().filter(loads) {
            let (cache, index): (Weak<Cache>, u8) = (Arc::downgrade(self), stevedore.index());
            stevedore.on_full(move || {
                let evict = |cache: Arc<Cache>| cache.nuke_one(index, true, &mut |_| {});
                cache.upgrade().is_some_and(|cache| evict(cache) != Evicted::Nothing)
            });
        }
    }
}
