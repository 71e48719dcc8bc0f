//! Small extents: slabs with slots of one size class each. A small object costs its bytes rounded up to 16 and one
//! bit in a bitmap. Classes are 16 bytes apart up to 1 KB, and a sixteenth of the size apart above. If a class has no
//! free slot and cannot grow, the next larger class with a free slot is used.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::dirty::Dirty;
use crate::runs::Runs;

pub(crate) const PAGE: u32 = 4096;
const STEP: u32 = 16;
const FINE: u32 = 1024;
const MIN: u32 = 64;

/// The size of slabs in an arena: small arenas have small slabs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    unit: u32,
}

impl Geometry {
    pub(crate) fn for_size(bytes: u64) -> Self {
        let unit = (bytes / 4096).clamp(u64::from(PAGE), 16 * u64::from(PAGE));
        Self { unit: (unit as u32 + 1).next_power_of_two() >> 1 }
    }

    /// Returns the largest extent that is allocated in a slab.
    pub(crate) fn max_small(self) -> u32 {
        self.unit / 2
    }

    /// Returns the number of bytes of a slab with slots of this size.
    fn slab_bytes(self, slot: u32) -> u32 {
        if slot <= FINE { self.unit } else { self.unit * 4 }
    }
}

/// Returns a size rounded up to its class.
pub(crate) fn class_size(size: u32) -> u32 {
    let size = size.max(MIN);
    let step = if size <= FINE { STEP } else { (1 << (size - 1).ilog2()) / 16 };
    size.next_multiple_of(step.max(STEP))
}

#[derive(Debug)]
struct Slab {
    slot: u32,
    used: u32,
    slots: u32,
    free: Box<[u64]>,
    /// Another process may use its free slots.
    is_closed: bool,
}

impl Slab {
    fn new(slot: u32, bytes: u32) -> Self {
        let slots = bytes / slot;
        let mut free = vec![u64::MAX; slots.div_ceil(64) as usize].into_boxed_slice();
        if !slots.is_multiple_of(64)
            && let Some(last) = free.last_mut()
        {
            *last = (1 << (slots % 64)) - 1;
        }
        Self { slot, used: 0, slots, free, is_closed: false }
    }

    fn take(&mut self) -> Option<u32> {
        let word = self.free.iter().position(|&w| w != 0)?;
        let bit = self.free[word].trailing_zeros();
        self.free[word] &= self.free[word] - 1;
        self.used += 1;
        Some(word as u32 * 64 + bit)
    }

    /// Takes this slot if it is free.
    fn claim(&mut self, slot: u32) -> bool {
        let Some(word) = self.free.get_mut(slot as usize / 64) else { return false };
        let bit = 1 << (slot % 64);
        let is_free = *word & bit != 0;
        *word &= !bit;
        self.used += u32::from(is_free);
        is_free
    }

    fn give(&mut self, slot: u32) {
        let bit = 1 << (slot % 64);
        debug_assert_eq!(self.free[slot as usize / 64] & bit, 0, "slot freed twice");
        self.free[slot as usize / 64] |= bit;
        self.used -= 1;
    }
}

/// A hasher for page numbers. They are not under outside control, so one multiplication spreads them well enough.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        let spread = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// All slabs of an arena.
#[derive(Debug)]
pub(crate) struct Slabs {
    geometry: Geometry,
    /// All slabs, by first page.
    by_page: HashMap<u32, Slab, BuildHasherDefault<Spread>>,
    /// Slot size and first page of the slabs with a free slot. The lowest address is used first, so that slabs at the
    /// end become empty and are freed.
    partial: BTreeSet<(u32, u32)>,
    /// The number of empty slabs that are kept, and its maximum.
    empty: u32,
    most_empty: u32,
}

impl Slabs {
    /// Creates an allocator that keeps up to `most_empty` empty slabs, so that repeated allocation and freeing of one
    /// slot does not need a new slab each time.
    pub(crate) fn new(geometry: Geometry, most_empty: u32) -> Self {
        Self { geometry, by_page: HashMap::default(), partial: BTreeSet::new(), empty: 0, most_empty }
    }

    /// Takes a slot. Returns its byte offset and its size.
    pub(crate) fn take(&mut self, size: u32, runs: &mut Runs, dirty: &mut Dirty) -> Option<(u64, u32)> {
        let class = class_size(size);
        let exact = self.partial.range((class, 0)..=(class, u32::MAX)).next().copied();
        let found = exact
            .or_else(|| self.grow(class, runs, dirty))
            .or_else(|| self.partial.range((class, 0)..).next().copied())?;
        let (slot, page) = found;
        let slab = self.by_page.get_mut(&page)?;
        let index = slab.take()?;
        if slab.used == 1 {
            self.empty -= 1;
        }
        if slab.used == slab.slots {
            self.partial.remove(&(slot, page));
        }
        Some((u64::from(page) * u64::from(PAGE) + u64::from(index * slot), slot))
    }

    /// Frees a slot. Returns the pages of its slab if that is now empty and not kept.
    pub(crate) fn give(&mut self, at: u64, size: u32) -> Option<(u32, u32)> {
        let bytes = self.geometry.slab_bytes(size);
        let base = at - at % u64::from(bytes);
        let page = (base / u64::from(PAGE)) as u32;
        let slab = self.by_page.get_mut(&page)?;
        debug_assert_eq!(slab.slot, size);
        if slab.used == slab.slots && !slab.is_closed {
            self.partial.insert((size, page));
        }
        slab.give(((at - base) / u64::from(size)) as u32);
        if slab.used > 0 {
            return None;
        }
        if self.empty < self.most_empty && !slab.is_closed {
            self.empty += 1;
            return None;
        }
        self.by_page.remove(&page);
        self.partial.remove(&(size, page));
        Some((page, bytes / PAGE))
    }

    /// Takes the slot of this size at a byte offset, if it and the pages of its slab are free.
    pub(crate) fn claim(&mut self, at: u64, size: u32, runs: &mut Runs, dirty: &mut Dirty) -> bool {
        if size < MIN || size > self.geometry.max_small() || class_size(size) != size {
            return false;
        }
        let bytes = self.geometry.slab_bytes(size);
        let within = (at % u64::from(bytes)) as u32;
        let (index, pages) = (within / size, bytes / PAGE);
        let Ok(page) = u32::try_from((at - u64::from(within)) / u64::from(PAGE)) else { return false };
        if !within.is_multiple_of(size) || index >= bytes / size {
            return false;
        }
        let is_new = !self.by_page.contains_key(&page);
        if is_new {
            if !runs.claim(page, pages) {
                return false;
            }
            dirty.take(page, pages);
            self.by_page.insert(page, Slab::new(size, bytes));
            self.partial.insert((size, page));
            self.empty += 1;
        }
        let Some(slab) = self.by_page.get_mut(&page).filter(|slab| slab.slot == size) else { return false };
        if !slab.claim(index) {
            return false;
        }
        self.empty -= u32::from(slab.used == 1);
        if slab.used == slab.slots {
            self.partial.remove(&(size, page));
        }
        true
    }

    /// Closes all slabs: another process may use their free slots. Frees those without a slot in use.
    pub(crate) fn close(&mut self, runs: &mut Runs) {
        let geometry = self.geometry;
        self.by_page.retain(|&page, slab| {
            slab.is_closed = true;
            if slab.used == 0 {
                runs.give(page, geometry.slab_bytes(slab.slot) / PAGE);
            }
            slab.used > 0
        });
        self.partial.clear();
        self.empty = 0;
    }

    /// Opens the closed slabs whose pages no other process uses. `is_free` gets the first page and the number of pages.
    pub(crate) fn open(&mut self, is_free: impl Fn(u32, u32) -> bool) {
        for (&page, slab) in &mut self.by_page {
            if slab.is_closed && is_free(page, self.geometry.slab_bytes(slab.slot) / PAGE) {
                slab.is_closed = false;
                if slab.used < slab.slots {
                    self.partial.insert((slab.slot, page));
                }
            }
        }
    }

    fn grow(&mut self, class: u32, runs: &mut Runs, dirty: &mut Dirty) -> Option<(u32, u32)> {
        let bytes = self.geometry.slab_bytes(class);
        let pages = bytes / PAGE;
        let page = runs.take_aligned(pages, pages)?;
        dirty.take(page, pages);
        self.by_page.insert(page, Slab::new(class, bytes));
        self.partial.insert((class, page));
        self.empty += 1;
        Some((class, page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_empty_slabs_are_kept() {
        let mut runs = Runs::new(1024);
        let mut slabs = Slabs::new(Geometry::for_size(1 << 20), 1);
        let mut dirty = Dirty::default();
        let mut take =
            |slabs: &mut Slabs, size| slabs.take(size, &mut runs, &mut dirty).expect("there is room");
        let (a, b) = (take(&mut slabs, 64), take(&mut slabs, 128));
        assert_eq!(slabs.give(a.0, a.1), None);
        assert!(slabs.give(b.0, b.1).is_some(), "one is enough");
        assert_eq!(take(&mut slabs, 64), a);
        let c = take(&mut slabs, 128);
        assert_eq!(slabs.give(c.0, c.1), None);
        assert!(slabs.give(a.0, a.1).is_some());
    }

    #[test]
    fn size_classes_waste_little_and_are_idempotent() {
        assert_eq!(class_size(1), 64);
        assert_eq!(class_size(65), 80);
        assert_eq!(class_size(1024), 1024);
        assert_eq!(class_size(1025), 1088);
        assert_eq!(class_size(2048), 2048);
        assert_eq!(class_size(2049), 2176);
        for size in (1..32768).step_by(if cfg!(miri) { 331 } else { 1 }) {
            let class = class_size(size);
            assert!(class >= size && class.is_multiple_of(16));
            assert_eq!(class_size(class), class);
            assert!(class <= 64 || class - size < (size / 16).max(16));
        }
    }

    #[test]
    fn larger_arenas_have_larger_slabs() {
        assert_eq!(Geometry::for_size(1 << 20).max_small(), 2048);
        assert_eq!(Geometry::for_size(64 << 20).max_small(), 8192);
        assert_eq!(Geometry::for_size(1 << 40).max_small(), 32768);
    }
}
