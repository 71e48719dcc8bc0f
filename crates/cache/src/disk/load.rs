//! Moves an object from a store to memory, and publishes it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_disk::Loaded;
use lacquer_storage::{BodyWriter, ChunkSizes, Full, Layout, Parts, Stevedore, Stored};

use crate::alloc::Nuke;
use crate::busy::{Awaited, Busy};
use crate::cache::Cache;
use crate::config::Config;
use crate::disk::extent::{DiskBody, DiskExtent};
use crate::disk::owner::CacheOwner;
use crate::disk::search::DiskObject;
use crate::disk::stores::has_rival;
use crate::disk::{Disks, OpenDisks};
use crate::object::Object;
use crate::slab::NONE;

/// The least size of the pieces of a body.
const LEAST_PIECE: usize = 16 * 1024;

impl Cache {
    /// Creates a cache with stores on disks. No later call may pass a time before `now`. The threads that write to the
    /// stores are started afterwards.
    pub fn with_disks(config: Config, disks: OpenDisks, now: f64) -> Arc<Self> {
        let OpenDisks { disks, past_bans, rings } = disks;
        let cache = Self::without_load_eviction(config, Disks::new(disks, rings), now);
        cache.install_load_eviction();
        if cache.has_disks() {
            cache.bans.restore_past(past_bans, now);
            let this = Arc::downgrade(&cache);
            let oldest = move |cache: Arc<Self>| {
                cache.disks.iter().map(|disk| disk.store().oldest_ban()).min().unwrap_or(u32::MAX)
            };
            let weak = this.clone();
            let _ = cache.bans.on_disks.set(Box::new(move || weak.upgrade().map_or(u32::MAX, oldest)));
            for (index, disk) in cache.disks.iter().enumerate() {
                disk.store().set_owner(Box::new(CacheOwner { cache: this.clone(), disk: index }));
            }
            cache.count_bans_on_disks();
        }
        cache
    }
}

impl Cache {
    /// Lets the stores know the number of the newest ban. One that has not recorded it would store objects as if they were
    /// older, and bans of which no object has the number are not in the list.
    pub(crate) fn count_bans_on_disks(&self) {
        let newest = self.bans.newest.load(Ordering::Acquire);
        self.disks.iter().for_each(|disk| disk.store().count_bans(newest));
    }
}

impl Busy {
    /// Moves an object to memory and publishes it, if it is still in its store. Returns `self` if it is not, is damaged,
    /// or has no room.
    pub fn publish_from_disk(self, found: DiskObject, nuke: &mut Nuke<'_>) -> Result<Awaited, Self> {
        let DiskObject { loaded, descriptor, tags, disk, stevedore } = found;
        let cache = Arc::clone(self.cache());
        let Some((disk, beginnings)) = cache.disks.beginnings(disk) else { return Err(self) };
        let Some(stevedore) = cache.stevedores.get(usize::from(stevedore)) else { return Err(self) };
        let (candidate, ban, hashes) = (loaded.candidate().clone(), loaded.ban(), loaded.tags().to_vec());
        let is_whole = loaded.present() == loaded.body_len();
        let stored = if is_whole {
            cache.store_whole(stevedore, &loaded, nuke)
        } else {
            let (head, extra) = (loaded.fields().head.to_vec(), loaded.fields().extra.to_vec());
            let length = loaded.body_len();
            let body = DiskBody::new(&disk.running, loaded, beginnings);
            let parts = Parts { head: &[&head], extra: &extra };
            let make = |_| stevedore.on_device(parts, length, Box::new(DiskExtent(Arc::clone(&body))));
            cache.with_room(stevedore, false, nuke, make).ok()
        };
        let Some(stored) = stored else { return Err(self) };
        let object = Object::new(stored, &descriptor.spec(), stevedore.index());
        let store = disk.store();
        let (key, heads) = (self.key(), &*cache.bans.heads);
        let published = self.publish_if(&object, tags, |shard, bans| {
            // An object that was published meanwhile is newer.
            if has_rival(shard, &key, NONE, &object, heads) || !bans.attach_at(&object, ban) {
                return false;
            }
            let is_alive = store.is_alive(&candidate, &hashes);
            if !is_alive {
                bans.detach(&object);
            }
            is_alive
        });
        if published.is_ok() {
            store.hit(&candidate);
        }
        published
    }
}

impl Cache {
    /// Stores an object that was read whole. Returns `None` if it is damaged or has no room.
    fn store_whole(&self, stevedore: &Stevedore, loaded: &Loaded, nuke: &mut Nuke<'_>) -> Option<Stored> {
        let length = loaded.body_len();
        let parts = Parts { head: &[loaded.fields().head], extra: loaded.fields().extra };
        if stevedore.is_small(length) {
            let mut body = Vec::with_capacity(length as usize);
            let is_sound = loaded.read_present(|piece| body.extend_from_slice(piece));
            let make = |_| stevedore.complete(parts, &body);
            return is_sound.then(|| self.with_room(stevedore, false, nuke, make).ok()).flatten();
        }
        let sizes = ChunkSizes { first: LEAST_PIECE, max: length as usize + parts.head[0].len() + 64 };
        let begin = |_| stevedore.begin(parts, Some(length), sizes, Layout::Pieces);
        let (stored, mut writer) = self.with_room(stevedore, true, nuke, begin).ok()?;
        let mut has_room = true;
        // Each piece is verified before it is copied.
        let is_sound = loaded.read_present(|piece| {
            has_room = has_room && self.append(stevedore, &mut writer, piece, nuke).is_ok();
        });
        if !is_sound || !has_room {
            return None;
        }
        writer.finish();
        Some(stored)
    }

    fn append(
        &self,
        stevedore: &Stevedore,
        writer: &mut BodyWriter,
        mut bytes: &[u8],
        nuke: &mut Nuke<'_>,
    ) -> Result<(), Full> {
        while !bytes.is_empty() {
            self.reserve(stevedore, writer, nuke)?;
            bytes = &bytes[writer.write(bytes)?..];
        }
        Ok(())
    }
}
