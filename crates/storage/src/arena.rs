//! A memory arena: one mapping, an allocator inside, and counters. Memory use stays within the configuration:
//! a limited arena never has more resident pages than its size, an unlimited one gives freed pages back.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(not(miri))]
use parking_lot::Mutex;

use crate::dirty::Dirty;
use crate::mapping::Mapping;
use crate::part_memory::PartMemory;
use crate::runs::Runs;
use crate::slabs::{Geometry, PAGE, Slabs};
#[cfg(miri)]
use crate::sync::Mutex;
use crate::system;

/// Bytes of addresses that an unlimited arena reserves by default; they cost nothing until touched.
const RESERVE: u64 = 1 << 36;
/// Less of it than this is of no use.
const RESERVE_LEAST: u64 = 16 << 20;
/// From this many pages on, an unlimited arena gives a freed run back to the system when it keeps enough already.
/// Shorter runs are given back by [`Arena::give_back`] only.
const RETURN_PAGES: u32 = 8;
/// So many free pages an unlimited arena keeps resident: to take a page anew costs as much as to fill it.
const KEPT_PAGES: u64 = 2048;
/// Pages that are given back to the system at a time.
const AT_ONCE: u32 = 4096;
/// So many empty slabs an unlimited arena keeps: giving back and touching anew costs more than they do.
const EMPTY_SLABS: u32 = 8;
/// No span is longer.
const MAX_SPAN: usize = (u32::MAX - PAGE) as usize;

/// No room: something must be evicted first, or the request is too large for the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("storage is full")
    }
}

impl std::error::Error for Full {}

/// Allocation counters, named as in Varnish's SMA counters; `g_objects` is for the code that stores objects.
#[derive(Debug, Default)]
pub struct Counters {
    pub c_req: AtomicU64,
    pub c_fail: AtomicU64,
    pub c_bytes: AtomicU64,
    pub c_freed: AtomicU64,
    pub g_alloc: AtomicU64,
    pub g_bytes: AtomicU64,
    pub g_space: AtomicU64,
    pub g_objects: AtomicU64,
}

/// The place of a span: its size, and three marks in the low bits that sizes leave free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    const PAGES: u32 = 1;
    pub(crate) const SENT: u32 = 2;
    const PART: u32 = 4;

    fn pages(bytes: u32) -> Self {
        Self(bytes | Self::PAGES)
    }

    fn slot(bytes: u32) -> Self {
        Self(bytes)
    }

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn capacity(self) -> u32 {
        self.0 & !15
    }

    pub(crate) fn is_pages(self) -> bool {
        self.0 & Self::PAGES != 0
    }

    pub(crate) fn is_sent(self) -> bool {
        self.0 & Self::SENT != 0
    }

    /// Returns whether the span is a part of a body on a device.
    fn is_part(self) -> bool {
        self.0 & Self::PART != 0
    }
}

#[derive(Debug)]
struct Allocator {
    runs: Runs,
    slabs: Slabs,
    dirty: Dirty,
}

/// A mapped file with an allocator in it.
pub struct Arena {
    mapping: Mapping,
    limit: Option<u64>,
    geometry: Geometry,
    can_punch: bool,
    counters: Counters,
    allocator: Mutex<Allocator>,
    /// Evicts an object; returns false if there is none that could go.
    evict: OnceLock<Evict>,
    parts: PartMemory,
}

pub(crate) type Evict = Box<dyn Fn() -> bool + Send + Sync>;

impl Arena {
    /// An arena over a descriptor: of `size` bytes, or without a limit but the `reserve` of addresses.
    ///
    /// # Safety
    /// As long as the arena or a part of it lives, nothing else may write to the file, map it for writing or make it
    /// shorter. That includes another arena over the file.
    pub unsafe fn from_fd(fd: OwnedFd, size: Option<u64>, reserve: u64) -> io::Result<Arc<Self>> {
        let (mapping, bytes) = match size {
            Some(size) => {
                let size = size - size % u64::from(PAGE);
                system::extend(fd.as_fd(), size)?;
                (Mapping::new(fd, size as usize)?, size)
            }
            None => map_reserve(&fd, reserve)?,
        };
        let geometry = Geometry::for_size(bytes);
        let pages = u32::try_from(bytes / u64::from(PAGE)).unwrap_or(u32::MAX);
        let slabs = Slabs::new(geometry, if size.is_none() { EMPTY_SLABS } else { 0 });
        let arena = Self {
            // This also drops the content that an earlier user of the descriptor left.
            can_punch: mapping.punch(0, bytes).is_ok(),
            mapping,
            limit: size,
            geometry,
            counters: Counters::default(),
            allocator: Mutex::new(Allocator { runs: Runs::new(pages), slabs, dirty: Dirty::default() }),
            evict: OnceLock::new(),
            parts: PartMemory::new(bytes),
        };
        arena.counters.g_space.store(size.unwrap_or(0), Ordering::Relaxed);
        Ok(Arc::new(arena))
    }

    /// An arena over a memfd of its own.
    pub fn anonymous(size: Option<u64>) -> io::Result<Arc<Self>> {
        // SAFETY: the file is new and known to the arena alone, which lends its descriptor to nobody.
        unsafe { Self::from_fd(system::memory_file()?, size, RESERVE) }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The configured size, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.counters.g_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether so many bytes are free, in any places.
    pub fn has_free(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| limit.saturating_sub(self.used()) >= bytes)
    }

    /// The largest size that lives in a slab; larger spans have pages of their own.
    pub fn max_small(&self) -> usize {
        self.geometry.max_small() as usize
    }

    /// The largest span that could be had now.
    pub fn longest_free(&self) -> u64 {
        u64::from(self.allocator.lock().runs.longest()) * u64::from(PAGE)
    }

    /// Sets, once, the function that makes room for those who cannot ask the cache for it.
    pub(crate) fn set_evict(&self, evict: Evict) {
        let _ = self.evict.set(evict);
    }

    /// Evicts an object, with no lock held. Returns false if there is none that could go.
    pub(crate) fn make_room(&self) -> bool {
        self.evict.get().is_some_and(|evict| evict())
    }

    pub(crate) fn parts(&self) -> &PartMemory {
        &self.parts
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn can_punch(&self) -> bool {
        self.can_punch
    }

    pub(crate) fn alloc(&self, size: usize) -> Result<(u64, Place), Full> {
        let c = &self.counters;
        c.c_req.fetch_add(1, Ordering::Relaxed);
        let found = if size > MAX_SPAN { None } else { self.find(size as u32) };
        let Some((at, place)) = found else {
            c.c_fail.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        };
        c.g_alloc.fetch_add(1, Ordering::Relaxed);
        self.account(u64::from(place.capacity()));
        Ok((at, place))
    }

    /// Allocates memory for a part of a body on a device.
    pub(crate) fn alloc_part(&self, size: usize) -> Result<(u64, Place), Full> {
        let (at, place) = self.alloc(size)?;
        self.parts.add(place.capacity());
        Ok((at, Place(place.0 | Place::PART)))
    }

    fn find(&self, size: u32) -> Option<(u64, Place)> {
        let mut guard = self.allocator.lock();
        let Allocator { runs, slabs, dirty } = &mut *guard;
        if size <= self.geometry.max_small()
            && let Some((at, slot)) = slabs.take(size, runs, dirty)
        {
            return Some((at, Place::slot(slot)));
        }
        let pages = size.max(1).div_ceil(PAGE);
        let start = runs.take(pages)?;
        dirty.take(start, pages);
        Some((u64::from(start) * u64::from(PAGE), Place::pages(pages * PAGE)))
    }

    /// Gives back the whole pages behind `len` bytes.
    pub(crate) fn trim(&self, at: u64, place: Place, len: u32) -> Place {
        let keep = len.max(1).div_ceil(PAGE) * PAGE;
        if !place.is_pages() || keep >= place.capacity() {
            return place;
        }
        let tail = place.capacity() - keep;
        if place.is_part() {
            self.parts.sub(tail);
        }
        self.release_pages(at + u64::from(keep), tail, false);
        self.unaccount(u64::from(tail));
        self.parts.wake();
        Place(place.0 - tail)
    }

    pub(crate) fn free(&self, at: u64, place: Place) {
        let bytes = place.capacity();
        if place.is_part() {
            self.parts.sub(bytes);
        }
        if place.is_pages() {
            self.release_pages(at, bytes, place.is_sent());
        } else {
            let empty = self.allocator.lock().slabs.give(at, bytes);
            if let Some((page, pages)) = empty {
                self.release_pages(u64::from(page) * u64::from(PAGE), pages * PAGE, false);
            }
        }
        self.counters.g_alloc.fetch_sub(1, Ordering::Relaxed);
        self.unaccount(u64::from(bytes));
        self.parts.wake();
    }

    /// Makes pages free for reuse: first out of the file if a socket may hold them, or if nothing else
    /// limits what stays resident and enough is free already.
    fn release_pages(&self, at: u64, bytes: u32, sent: bool) {
        let pages = bytes / PAGE;
        let mut allocator = self.allocator.lock();
        let is_surplus = self.limit.is_none()
            && pages >= RETURN_PAGES
            && allocator.dirty.pages() + u64::from(pages) > KEPT_PAGES;
        if sent || is_surplus {
            drop(allocator);
            let is_clean = self.mapping.punch(at, u64::from(bytes)).is_ok();
            if sent && !is_clean {
                // Better lost than served to the wrong client. `can_punch` makes this all but impossible.
                return;
            }
            allocator = self.allocator.lock();
        } else {
            allocator.dirty.give(pages);
        }
        allocator.runs.give((at / u64::from(PAGE)) as u32, pages);
    }

    /// Returns how many bytes are resident but not in use. Memory that is reserved and not yet written counts as
    /// resident, so there may be more.
    pub fn surplus(&self) -> u64 {
        system::resident(self.mapping.fd()).saturating_sub(self.used())
    }

    /// Gives all free pages back to the system, some at a time, so that others can allocate meanwhile.
    pub fn give_back(&self) {
        let mut from = 0;
        loop {
            let next = {
                let mut allocator = self.allocator.lock();
                let Allocator { runs, dirty, .. } = &mut *allocator;
                let next = dirty.next(runs, from, AT_ONCE);
                if next.is_none() {
                    dirty.clear();
                }
                next
            };
            let Some((start, pages)) = next else { return };
            // If this fails, the pages stay resident, which does no harm.
            let _ =
                self.mapping.punch(u64::from(start) * u64::from(PAGE), u64::from(pages) * u64::from(PAGE));
            self.allocator.lock().runs.give(start, pages);
            from = start + pages;
        }
    }

    fn account(&self, bytes: u64) {
        let c = &self.counters;
        c.c_bytes.fetch_add(bytes, Ordering::Relaxed);
        c.g_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.limit.is_some() {
            c.g_space.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn unaccount(&self, bytes: u64) {
        let c = &self.counters;
        c.c_freed.fetch_add(bytes, Ordering::Relaxed);
        c.g_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.limit.is_some() {
            c.g_space.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({:?}, {} used)", self.limit, self.used())
    }
}

/// Maps sparse space: so many bytes, or as many as the system lets us.
fn map_reserve(fd: &OwnedFd, wanted: u64) -> io::Result<(Mapping, u64)> {
    let mut bytes = wanted - wanted % u64::from(PAGE);
    loop {
        match system::resize(fd.as_fd(), bytes).and_then(|()| Mapping::new(fd.try_clone()?, bytes as usize)) {
            Ok(mapping) => return Ok((mapping, bytes)),
            Err(e) if bytes <= RESERVE_LEAST => return Err(e),
            Err(_) => bytes = bytes / 2 / u64::from(PAGE) * u64::from(PAGE),
        }
    }
}
