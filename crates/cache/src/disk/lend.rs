//! Objects in the memory into which they were read. They are sent without a copy, and belong to their request alone.

use std::sync::Arc;

use lacquer_disk::{Loaded, Stats};
use lacquer_flow::lookup::{self, Limits, Standing};
use lacquer_storage::{Extent, Load, Parts, Stevedore};

use crate::alloc::Nuke;
use crate::busy::Busy;
use crate::disk::lending::{Lending, LentRead};
use crate::disk::search::DiskObject;
use crate::object::Object;
use crate::object_ref::ObjRef;

/// Objects move to memory at once as long as this part of it is free.
const FREE_PART: u64 = 16;

/// The body of an object that was read whole.
#[derive(Debug)]
struct LentBody {
    loaded: Loaded,
    _lent: LentRead,
}

/// A reference to a body that was read whole.
#[derive(Debug)]
struct LentExtent(Arc<LentBody>);

impl Extent for LentExtent {
    /// Fails: all bytes are in memory.
    fn load(&self, load: Load) {
        load.fail();
    }

    fn bytes_at(&self, offset: u64) -> Option<&[u8]> {
        self.0.loaded.bytes_at(offset)
    }
}

impl Busy {
    /// Creates an object from a store that only this request uses, in the memory of its read, and gives up the right to
    /// fetch. Returns `self` and the object if it is better moved to memory: there is room, it was requested again, others
    /// wait for it, it is not fresh, or bans must be tested. Returns `self` alone if there is no room for its head.
    pub fn lend_from_disk(
        self,
        found: Box<DiskObject>,
        t_req: f64,
        limits: Limits,
        nuke: &mut Nuke<'_>,
    ) -> Result<ObjRef, (Self, Option<Box<DiskObject>>)> {
        let cache = Arc::clone(self.cache());
        let Some(stevedore) = cache.stevedores.get(usize::from(found.stevedore)) else {
            return Err((self, None));
        };
        let Some((disk, lending)) = cache.disks.lending(found.disk) else { return Err((self, None)) };
        if !self.may_lend(&found, stevedore, lending, t_req, limits) {
            return Err((self, Some(found)));
        }
        let DiskObject { mut loaded, descriptor, .. } = *found;
        let (candidate, ban, tags) = (loaded.candidate().clone(), loaded.ban(), loaded.tags().to_vec());
        // The response needs nothing from the disk.
        loaded.release();
        let length = loaded.body_len();
        let body = Arc::new(LentBody { loaded, _lent: lending.begin() });
        let fields = body.loaded.fields();
        let parts = Parts { head: &[fields.head], extra: fields.extra };
        let make = |_| stevedore.on_device(parts, length, Box::new(LentExtent(Arc::clone(&body))));
        let Ok(stored) = cache.with_room(stevedore, false, nuke, make) else { return Err((self, None)) };
        let object = Object::new(stored, &descriptor.spec(), stevedore.index());
        object.set_ban(ban);
        if !disk.store().is_alive(&candidate, &tags) {
            return Err((self, None));
        }
        disk.store().hit(&candidate);
        Stats::count(&disk.store().stats().lent);
        cache.count_hit(&object, t_req);
        self.release();
        Ok(ObjRef::shared(object))
    }

    fn may_lend(
        &self,
        found: &DiskObject,
        stevedore: &Stevedore,
        lending: &Lending,
        t_req: f64,
        limits: Limits,
    ) -> bool {
        let DiskObject { loaded, descriptor, .. } = found;
        let Some(memory) = stevedore.limit() else { return false };
        let length = loaded.body_len();
        let is_requested_again = lending.note(&descriptor.key, length, memory);
        let standing = || {
            let ttl = f64::from(descriptor.timers.ttl);
            lookup::standing(descriptor.t_origin, ttl, limits, t_req) == Standing::Fresh && ttl > 0.0
        };
        !is_requested_again
            && !stevedore.has_free(memory / FREE_PART)
            && loaded.present() == length
            && lending.has_room(memory)
            && standing()
            && self.cache().bans.is_newest(loaded.ban())
            && !self.is_awaited()
            && loaded.is_sound()
    }
}
