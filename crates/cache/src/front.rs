//! A thread's own table of the hottest objects. A hit in it takes no lock and writes to no memory that other threads
//! write to, except for every 64th hit, to count the hits.
//!
//! An entry is valid as long as the generation of its key is unchanged, no ban is newer than the one that the object
//! was checked against, and the object is fresh. All other lookups use the index.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_storage::BodyState;

use crate::cache::Cache;
use crate::lookup::{Lookup, LookupArgs};
use crate::object_ref::{ObjRef, Pinned};
use crate::slab::{Digest, Key, key_of};
use crate::waiting::Resumed;

const WAYS: usize = 4;
/// The maximum body size of admitted objects. Objects are admitted at their second hit.
const MAX_BODY: u64 = 64 * 1024;

struct Entry {
    key: Key,
    generation: u32,
    pinned: Rc<Pinned>,
}

/// A front table. There is one per thread; see the documentation of the module.
pub struct FrontTable {
    sets: Box<[[Option<Entry>; WAYS]]>,
    pressure: u32,
    victim: usize,
}

impl FrontTable {
    /// Creates a table for about `entries` objects. The number of sets is rounded up to a power of two.
    pub fn new(entries: usize) -> Self {
        let sets = entries.div_ceil(WAYS).next_power_of_two();
        Self { sets: (0..sets).map(|_| std::array::from_fn(|_| None)).collect(), pressure: 0, victim: 0 }
    }

    /// Does the same as [`Cache::lookup`], but tries the table first.
    pub fn lookup(
        &mut self,
        cache: &Arc<Cache>,
        digest: &Digest,
        args: &LookupArgs<'_>,
        resumed: Option<Resumed>,
    ) -> Lookup {
        let pressure = cache.pressure.load(Ordering::Relaxed);
        if pressure != self.pressure {
            self.pressure = pressure;
            self.sweep(cache);
        }
        let key = key_of(digest);
        let plain = !args.always_miss && !args.ignore_vary && resumed.is_none();
        if plain && let Some(found) = self.get(cache, &key, args) {
            return Lookup::Hit(found);
        }
        let found = cache.find(digest, args, resumed);
        if let (Lookup::Hit(object), Some(generation)) = (&found.lookup, found.front) {
            self.admit(&key, generation, object);
        }
        found.lookup
    }

    /// Drops objects whose key has changed in the index. Must be called now and then, because the memory of objects
    /// in the table is not freed.
    pub fn sweep(&mut self, cache: &Cache) {
        for entry in self.sets.iter_mut().flatten() {
            if entry.as_ref().is_some_and(|e| cache.generation(&e.key) != e.generation) {
                *entry = None;
            }
        }
    }

    fn set(&self, key: &Key) -> usize {
        usize::from(u16::from_le_bytes([key[3], key[4]])) & (self.sets.len() - 1)
    }

    fn get(&mut self, cache: &Cache, key: &Key, args: &LookupArgs<'_>) -> Option<ObjRef> {
        let set = self.set(key);
        let way = self.sets[set].iter().position(|e| e.as_ref().is_some_and(|e| e.key == *key))?;
        let entry = self.sets[set][way].as_ref()?;
        if entry.generation != cache.generation(key) {
            self.sets[set][way] = None;
            return None;
        }
        let object = entry.pinned.object();
        let good = object.fresh_until(args.limits) > args.t_req
            && object.timers().ttl > 0.0
            && object.state() == BodyState::Complete
            && cache.bans.is_current(object)
            && object.vary().is_none_or(|v| (args.vary)(v));
        if !good {
            return None;
        }
        entry.pinned.hit();
        Some(ObjRef::local(Rc::clone(&entry.pinned)))
    }

    fn admit(&mut self, key: &Key, generation: u32, object: &ObjRef) {
        let worth =
            object.hits() > 1 && object.state() == BodyState::Complete && object.body_len() <= MAX_BODY;
        if !worth || !object.pin() {
            return;
        }
        let set = self.set(key);
        let entries = &mut self.sets[set];
        let same = entries.iter().position(|e| e.as_ref().is_some_and(|e| e.key == *key));
        let way = same.or_else(|| entries.iter().position(Option::is_none)).unwrap_or_else(|| {
            self.victim = (self.victim + 1) % WAYS;
            self.victim
        });
        let pinned = Rc::new(Pinned::new(object.to_shared()));
        entries[way] = Some(Entry { key: *key, generation, pinned });
    }
}

impl std::fmt::Debug for FrontTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrontTable({} entries)", self.sets.len() * WAYS)
    }
}
