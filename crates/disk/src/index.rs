//! The index of the objects on a disk: 24 bytes for each, in tables with open addressing, one for each of 256 shards.
//! A table grows by a quarter when nine tenths are in use, so that an object takes 27 to 36 bytes. Growth copies one
//! shard at a time, 1/256 of the index.
//!
//! A fingerprint only finds candidates. The key of the record on the disk decides.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::layout::UNIT;

pub(crate) const SHARDS: usize = 256;
const LEAST: usize = 8;
/// The unit of [`Entry::read_len`].
const READ_UNIT: u64 = 512;
const PLACE_BITS: u32 = 40;
const SIZE_BITS: u32 = 16;
const HIT: u64 = 1 << (PLACE_BITS + SIZE_BITS);
/// The position of the part of a variant that is equal for variants of the same headers.
const FAMILY_SHIFT: u32 = 20;

/// Returns the number of a variant, from a hash of the names of the headers by which the object varies, and a hash of
/// their values. No request matches two variants with equal names and different values. It may match two variants with
/// different names.
pub fn variant(names: u64, values: u64) -> u32 {
    let values = (values as u32) & ((1 << FAMILY_SHIFT) - 1);
    ((names as u32) << FAMILY_SHIFT) | values
}

/// Returns whether a request may match both variants of a key.
pub fn are_rivals(a: u32, b: u32) -> bool {
    a == b || !have_same_names(a, b)
}

/// Returns whether the names of the headers by which two variants vary have the same hash.
pub fn have_same_names(a: u32, b: u32) -> bool {
    a >> FAMILY_SHIFT == b >> FAMILY_SHIFT
}

/// Returns the variants whose headers have names with the same hash.
pub(crate) fn variants_of_same_names(variant: u32) -> RangeInclusive<u32> {
    let values = (1 << FAMILY_SHIFT) - 1;
    (variant & !values)..=(variant | values)
}

/// Returns the number of the shard with a fingerprint.
pub(crate) fn shard_of(fingerprint: u64) -> usize {
    (fingerprint >> 56) as usize
}

/// An object on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub fingerprint: u64,
    /// The position on the device in units of 64 bytes, the length in units of 512 bytes, and flags.
    packed: u64,
    pub expires: u32,
    pub variant: u32,
}

const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    pub fn new(fingerprint: u64, place: u64, len: u64, variant: u32, expires: u32) -> Self {
        let size = len.div_ceil(READ_UNIT).min((1 << SIZE_BITS) - 1);
        Self { fingerprint, packed: (place / UNIT) | (size << PLACE_BITS), expires, variant }
    }

    /// Returns the position on the device.
    pub fn place(&self) -> u64 {
        (self.packed & ((1 << PLACE_BITS) - 1)) * UNIT
    }

    /// Returns the length of the record, rounded up.
    pub fn read_len(&self) -> u64 {
        (self.packed >> PLACE_BITS & ((1 << SIZE_BITS) - 1)) * READ_UNIT
    }

    /// Returns whether a request may match both this object and one of `variant`, so that only the newer may stay.
    pub(crate) fn rivals(&self, variant: u32) -> bool {
        are_rivals(self.variant, variant)
    }

    pub fn is_hit(&self) -> bool {
        self.packed & HIT != 0
    }

    fn is_free(&self) -> bool {
        self.packed == 0
    }
}

/// An object and its log position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub entry: Entry,
    pub log: u64,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    used: usize,
}

impl Table {
    fn home(&self, fingerprint: u64) -> usize {
        let scaled = u128::from(fingerprint << 8) * self.entries.len() as u128;
        (scaled >> 64) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// Returns the positions of the entries with a fingerprint.
    fn find(&self, fingerprint: u64) -> impl Iterator<Item = usize> {
        let mut at = if self.entries.is_empty() { None } else { Some(self.home(fingerprint)) };
        std::iter::from_fn(move || {
            loop {
                let here = at?;
                let entry = self.entries[here];
                if entry.is_free() {
                    return None;
                }
                at = Some(self.after(here));
                if entry.fingerprint == fingerprint {
                    return Some(here);
                }
            }
        })
    }

    fn add(&mut self, entry: Entry) {
        self.make_room();
        self.place(entry);
        self.used += 1;
    }

    /// Adds an object in place of its rivals, unless `replaces` returns false for one of them. Returns the change of the
    /// number of objects, as a wrapping number.
    fn insert(&mut self, entry: Entry, replaces: impl Fn(&Entry) -> bool) -> u64 {
        if self.add_first(entry) {
            return 1;
        }
        let is_rival = |old: &Entry| old.rivals(entry.variant);
        if self
            .find(entry.fingerprint)
            .map(|at| self.entries[at])
            .any(|old| is_rival(&old) && !replaces(&old))
        {
            return 0;
        }
        let removed = self.remove_if(entry.fingerprint, is_rival);
        self.add(entry);
        1_u64.wrapping_sub(removed)
    }

    /// Adds an entry if there is none with its fingerprint, in one pass. Returns whether it was added.
    fn add_first(&mut self, entry: Entry) -> bool {
        self.make_room();
        let mut at = self.home(entry.fingerprint);
        while !self.entries[at].is_free() {
            if self.entries[at].fingerprint == entry.fingerprint {
                return false;
            }
            at = self.after(at);
        }
        self.entries[at] = entry;
        self.used += 1;
        true
    }

    /// Reads the places where a fingerprint is looked for first, one in each line of the processor's cache.
    fn peek(&self, fingerprint: u64) -> u64 {
        let home = self.home(fingerprint);
        let read = |at: usize| self.entries.get(at).map_or(0, |entry| entry.fingerprint);
        read(home) ^ read(home + 3) ^ read(home + 6)
    }

    fn make_room(&mut self) {
        if (self.used + 1) * 10 > self.entries.len() * 9 {
            self.grow();
        }
    }

    fn place(&mut self, entry: Entry) {
        let mut at = self.home(entry.fingerprint);
        while !self.entries[at].is_free() {
            at = self.after(at);
        }
        self.entries[at] = entry;
    }

    fn grow(&mut self) {
        let len = (self.entries.len() * 5 / 4 + 1).max(LEAST);
        let old = std::mem::replace(&mut self.entries, vec![Entry::default(); len]);
        for entry in old.into_iter().filter(|entry| !entry.is_free()) {
            self.place(entry);
        }
    }

    /// Removes the entries with a fingerprint for which `gone` returns true. Returns their number.
    fn remove_if(&mut self, fingerprint: u64, gone: impl Fn(&Entry) -> bool) -> u64 {
        let found: Vec<usize> = self.find(fingerprint).filter(|&at| gone(&self.entries[at])).collect();
        // The last one first, because a removal moves only later entries.
        found.iter().rev().for_each(|&at| self.remove(at));
        found.len() as u64
    }

    /// Removes an entry, and moves later ones so that no gap separates one from its home.
    fn remove(&mut self, at: usize) {
        let len = self.entries.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + len - from };
        let (mut gap, mut next) = (at, self.after(at));
        while !self.entries[next].is_free() && next != at {
            let home = self.home(self.entries[next].fingerprint);
            if distance(home, next) >= distance(gap, next) {
                self.entries[gap] = self.entries[next];
                gap = next;
            }
            next = self.after(next);
        }
        self.entries[gap] = Entry::default();
        self.used -= 1;
    }
}

/// The index of a disk.
#[derive(Debug)]
pub struct Index {
    shards: Box<[Mutex<Table>]>,
    len: AtomicU64,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), len: AtomicU64::new(0) }
    }
}

impl Index {
    fn shard(&self, fingerprint: u64) -> &Mutex<Table> {
        &self.shards[shard_of(fingerprint)]
    }

    /// Returns the number of objects.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes of memory that the tables occupy.
    pub fn bytes(&self) -> u64 {
        let bytes = |table: &Mutex<Table>| table.lock().entries.capacity() * size_of::<Entry>();
        self.shards.iter().map(bytes).sum::<usize>() as u64
    }

    /// Adds an object in place of those that the same requests may match. If `replaces` returns false for one of them,
    /// the index stays as it is.
    pub fn insert(&self, entry: Entry, replaces: impl Fn(&Entry) -> bool) {
        let change = self.shard(entry.fingerprint).lock().insert(entry, replaces);
        self.len.fetch_add(change, Ordering::Relaxed);
    }

    /// Adds objects of one shard, each as [`insert`](Self::insert) does. `log` is passed to `replaces` with the object that
    /// it may replace.
    pub(crate) fn insert_all(&self, group: &[Placed], replaces: impl Fn(&Entry, u64) -> bool) {
        let Some(first) = group.first() else { return };
        let mut table = self.shard(first.entry.fingerprint).lock();
        // The processor loads these places at the same time, instead of one after the other later.
        black_box(group.iter().fold(0, |sum, placed| sum ^ table.peek(placed.entry.fingerprint)));
        let mut change = 0_u64;
        for &Placed { entry, log } in group {
            change = change.wrapping_add(table.insert(entry, |old| replaces(old, log)));
        }
        self.len.fetch_add(change, Ordering::Relaxed);
    }

    /// Returns the objects with a fingerprint.
    pub fn get(&self, fingerprint: u64) -> Vec<Entry> {
        let table = self.shard(fingerprint).lock();
        table.find(fingerprint).map(|at| table.entries[at]).collect()
    }

    /// Returns whether there are objects with a fingerprint.
    pub fn has(&self, fingerprint: u64) -> bool {
        self.shard(fingerprint).lock().find(fingerprint).next().is_some()
    }

    /// Returns the object with a fingerprint at a place.
    pub fn at(&self, fingerprint: u64, place: u64) -> Option<Entry> {
        let table = self.shard(fingerprint).lock();
        table.find(fingerprint).map(|at| table.entries[at]).find(|entry| entry.place() == place)
    }

    /// Records a hit of the object at a place.
    pub fn hit(&self, fingerprint: u64, place: u64) {
        let mut table = self.shard(fingerprint).lock();
        let found = table.find(fingerprint).find(|&at| table.entries[at].place() == place);
        if let Some(at) = found {
            table.entries[at].packed |= HIT;
        }
    }

    /// Records that the objects with a fingerprint were of use.
    pub fn hit_all(&self, fingerprint: u64) {
        let mut table = self.shard(fingerprint).lock();
        let found: Vec<_> = table.find(fingerprint).collect();
        for at in found {
            table.entries[at].packed |= HIT;
        }
    }

    /// Removes the object at a place. Returns whether it was there.
    pub fn remove(&self, fingerprint: u64, place: u64) -> bool {
        self.remove_if(fingerprint, |entry| entry.place() == place) > 0
    }

    /// Removes the objects with a fingerprint for which `gone` returns true. Returns their number.
    pub fn remove_if(&self, fingerprint: u64, gone: impl Fn(&Entry) -> bool) -> u64 {
        let removed = self.shard(fingerprint).lock().remove_if(fingerprint, gone);
        self.len.fetch_sub(removed, Ordering::Relaxed);
        removed
    }

    /// Removes all objects for which `gone` returns true, one shard after the other.
    pub fn sweep(&self, gone: impl Fn(&Entry) -> bool) {
        for shard in &self.shards {
            let mut table = shard.lock();
            let before = table.used;
            let old = std::mem::take(&mut *table);
            for entry in old.entries.into_iter().filter(|entry| !entry.is_free() && !gone(entry)) {
                table.add(entry);
            }
            self.len.fetch_sub((before - table.used) as u64, Ordering::Relaxed);
        }
    }
}
