//! Objects in memory that outlive the process: indexes those of the previous process, with their bans and tags.

use std::io;
use std::sync::Arc;

use lacquer_storage::{KeptObject, Stevedore};

use crate::cache::{Cache, slot_id};
use crate::object::{Object, flag};
use crate::shard::Shard;
use crate::stats::bump;
use crate::tags::Tag;

/// The number of objects from a previous process that the stores contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    pub indexed: u64,
    /// Objects that are damaged or of another version. They are freed.
    pub refused: u64,
}

impl Cache {
    /// Takes over the objects of the previous process. The bans are in the store that keeps them
    /// ([`Stevedore::keeper`]): if they cannot be read, all objects are refused.
    pub(crate) fn take_over(self: &Arc<Self>) -> io::Result<Recovery> {
        let mut recovery = Recovery::default();
        let Some(keeper) = Stevedore::keeper(&self.stevedores) else { return Ok(recovery) };
        let others =
            self.stevedores.iter().filter(|other| other.is_kept() && other.index() != keeper.index());
        let mut has_bans = None;
        for stevedore in std::iter::once(keeper).chain(others) {
            let taken = stevedore.take_over(
                &mut |notes| *has_bans.get_or_insert_with(|| self.bans.restore(notes)),
                &mut |kept| self.reindex_kept(stevedore, kept),
            )?;
            has_bans.get_or_insert(false);
            recovery.indexed += taken.accepted;
            recovery.refused += taken.refused;
        }
        self.bans.write_notes(keeper);
        Ok(recovery)
    }

    /// Indexes an object. Returns false if its head or its ban is unknown, or if it has expired.
    fn reindex_kept(&self, stevedore: &Stevedore, kept: KeptObject) -> bool {
        let KeptObject { stored, key, flags, mut tags } = kept;
        let object = Object::kept(stored, flags, stevedore.index());
        let when = self.events.clock().ticks(object.expires());
        let heads = &self.bans.heads;
        let is_sound = object.has_sound_head()
            && heads.is_sound(object.head())
            && heads.is_sound_extra(object.extra(), object.body_len());
        if when == 0 || !is_sound || !self.bans.attach_to(&object) {
            return false;
        }
        let mut shard = self.shard(&key).lock();
        if self.disks.is_behind(stevedore.index()) {
            object.set(flag::ONCE | flag::MAY_BE_STORED);
        }
        let slot = shard.insert_busy(key);
        let id = slot_id(&key, slot);
        object.set_slot(id);
        tags.sort_unstable();
        tags.dedup();
        if !tags.is_empty() {
            let tags: Box<[Tag]> = tags.into_iter().map(Tag).collect();
            object.set(flag::TAGGED);
            self.tags.insert(id, &tags);
            shard.tags.insert(slot, tags);
        }
        let is_large = object.stored().is_large();
        let vxid = object.vxid();
        shard.publish(slot, object);
        let Shard { slab, heap, large, .. } = &mut *shard;
        heap.insert(slab, slot, when);
        if is_large {
            large.push_back((slot, vxid));
        }
        bump(&self.counters.n_objectcore);
        true
    }
}
