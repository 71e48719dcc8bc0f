//! A memory arena: one mapping, an allocator inside, and counters. Memory use stays within the configuration: a
//! limited arena never has more resident pages than its size, and an unlimited one returns freed pages to the system.

use std::fmt;
use std::io;
use std::ops::DerefMut;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(not(miri))]
use parking_lot::Mutex;

use crate::copy::copy_file;
use crate::dirty::Dirty;
pub use crate::full::Full;
use crate::mapping::Mapping;
use crate::part_memory::PartMemory;
use crate::pins::Handover;
use crate::record::Place;
use crate::records::Records;
use crate::runs::Runs;
use crate::slabs::{Geometry, PAGE, Slabs};
#[cfg(miri)]
use crate::sync::Mutex;
use crate::system;

/// The address space that an unlimited arena reserves by default, in bytes. It costs nothing until it is touched.
const RESERVE: u64 = 1 << 36;
/// The minimum address space of an unlimited arena.
const RESERVE_LEAST: u64 = 16 << 20;
/// An unlimited arena returns a freed run of at least this many pages to the system if it keeps enough free pages
/// already. Shorter runs are returned only by [`Arena::return_free_pages`].
const RETURN_PAGES: u32 = 8;
/// The number of free pages that an unlimited arena keeps resident: getting a new page costs as much as filling it.
const KEPT_PAGES: u64 = 2048;
/// The number of pages that are returned to the system at a time.
const AT_ONCE: u32 = 4096;
/// The number of empty slabs that an unlimited arena keeps: returning and touching them again costs more than keeping
/// them.
const EMPTY_SLABS: u32 = 8;
/// A table of records that is taken over may exceed the size of its arena by this many bytes. Objects take more bytes of
/// the arena than of the table, but bans take none.
const LONGEST_SPARE: u64 = 64 << 20;
/// The units of transaction numbers that a process may hand out after the next one has copied its table.
const SERIALS_OF_PREDECESSOR: u32 = 1024;
/// The maximum length of a span.
const MAX_SPAN: usize = (u32::MAX - PAGE) as usize;

/// Allocation counters with the names of Varnish's SMA counters. The code that stores objects maintains `g_objects`.
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

/// The size of a span in bytes, with four flags in the low bits, which sizes leave free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation(u32);

impl Allocation {
    const PAGES: u32 = 1;
    pub(crate) const SENT: u32 = 2;
    const PART: u32 = 4;
    pub(crate) const UNVERIFIED: u32 = 8;

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

    /// Returns whether the checksum of the body in the span is still to be compared.
    pub(crate) fn is_unverified(self) -> bool {
        self.0 & Self::UNVERIFIED != 0
    }

    /// Returns the size of the slot, or 0 if the span has pages of its own.
    pub(crate) fn slot_size(self) -> u32 {
        if self.is_pages() { 0 } else { self.capacity() }
    }

    /// Returns whether the span contains a part of a body on a device.
    fn is_part(self) -> bool {
        self.0 & Self::PART != 0
    }
}

#[derive(Debug)]
pub(crate) struct Allocator {
    pub(crate) runs: Runs,
    pub(crate) slabs: Slabs,
    dirty: Dirty,
    pub(crate) handover: Handover,
}

/// A mapped file with an allocator in it.
pub struct Arena {
    mapping: Mapping,
    limit: Option<u64>,
    geometry: Geometry,
    /// Whether sockets may hold pages of the file.
    can_send: bool,
    counters: Counters,
    allocator: Mutex<Allocator>,
    /// Evicts an object. Returns false if no object can be evicted.
    evict: OnceLock<Evict>,
    parts: PartMemory,
    records: Records,
    /// The arena for allocations during a handover.
    overflow: OnceLock<Arc<Arena>>,
    uses_overflow: AtomicBool,
}

/// The files of an arena that outlives the process.
#[derive(Debug)]
pub struct KeptFiles {
    pub arena: OwnedFd,
    pub records: OwnedFd,
    /// Whether the files contain objects of an earlier process. If so, [`crate::Stevedore::recover`] must be called
    /// before any other operation.
    pub take_over: bool,
    /// The table of a process that still lives and has [frozen](Arena::freeze) the arena. `records` is empty then, and
    /// becomes a copy of it.
    pub predecessor: Option<OwnedFd>,
    /// The pages that another process may still use, until [`Arena::release_pins`].
    pub pins: Option<OwnedFd>,
}

pub(crate) type Evict = Box<dyn Fn() -> bool + Send + Sync>;

impl Arena {
    /// Creates an arena over a descriptor. It has `size` bytes, or no limit except the `reserve` of address space.
    ///
    /// # Safety
    /// As long as the arena or a part of it lives, nothing else may write to the file, map it for writing or make it
    /// shorter. That includes another arena over the file.
    pub unsafe fn from_fd(fd: OwnedFd, size: Option<u64>, reserve: u64) -> io::Result<Arc<Self>> {
        Self::over(fd, size, reserve, Records::anonymous()?, false, None)
    }

    /// Creates an arena like [`Self::from_fd`] whose objects another process can take over later.
    ///
    /// # Safety
    /// The same as for `from_fd`, for both files. Only a process that has frozen an arena over the first file, whose use
    /// of it the pins contain, may use that at the same time.
    pub unsafe fn kept(files: KeptFiles, size: Option<u64>, reserve: u64) -> io::Result<Arc<Self>> {
        let KeptFiles { arena, records, take_over, predecessor, pins } = files;
        // Both the bytes of the arena and its table may have grown since `reserve` was computed for another process.
        let bytes = size.unwrap_or_else(|| reserve.max(system::length(arena.as_fd())));
        let most = if take_over { bytes.saturating_add(LONGEST_SPARE) } else { 0 };
        if let Some(before) = predecessor.as_ref().filter(|before| system::length(before.as_fd()) <= most) {
            copy_file(before.as_fd(), records.as_fd())?;
        }
        // SAFETY: the caller promises it.
        let records = unsafe { Records::new(records, true, most)? };
        if predecessor.is_some() {
            // The other process continues to hand out numbers.
            records.raise_serial(records.serial().saturating_add(SERIALS_OF_PREDECESSOR));
        }
        Self::over(arena, size, reserve, records, take_over, pins)
    }

    fn over(
        fd: OwnedFd,
        size: Option<u64>,
        reserve: u64,
        records: Records,
        take_over: bool,
        pins: Option<OwnedFd>,
    ) -> io::Result<Arc<Self>> {
        let (mapping, bytes) = match size {
            Some(size) => {
                let size = size - size % u64::from(PAGE);
                if take_over && pins.is_none() && system::length(fd.as_fd()) > size {
                    system::resize(fd.as_fd(), size)?;
                }
                system::extend(fd.as_fd(), size)?;
                (Mapping::new(fd, size as usize)?, size)
            }
            // Another process maps the file with its present length.
            None if pins.is_some() => {
                let bytes = system::length(fd.as_fd());
                (Mapping::new(fd, usize::try_from(bytes).map_err(io::Error::other)?)?, bytes)
            }
            None => map_reserve(&fd, reserve)?,
        };
        if !records.belong_to(bytes) {
            records.empty(bytes);
        }
        let geometry = Geometry::for_size(bytes);
        let pages = u32::try_from(bytes / u64::from(PAGE)).unwrap_or(u32::MAX);
        let slabs = Slabs::new(geometry, if size.is_none() { EMPTY_SLABS } else { 0 });
        let is_shared = pins.is_some();
        let handover = match pins {
            Some(pins) => Handover::pinned(pages, pins.as_fd())?,
            None => Handover::None,
        };
        let arena = Self {
            // Punching also discards the content that an earlier user of the descriptor left. Recovery does so for the
            // pages that no object uses.
            can_send: (take_over || is_shared || mapping.punch(0, bytes).is_ok()) && mapping.can_send(),
            mapping,
            limit: size,
            geometry,
            counters: Counters::default(),
            allocator: Mutex::new(Allocator {
                runs: Runs::new(pages),
                slabs,
                dirty: Dirty::default(),
                handover,
            }),
            evict: OnceLock::new(),
            parts: PartMemory::new(bytes),
            records,
            overflow: OnceLock::new(),
            uses_overflow: AtomicBool::new(false),
        };
        if is_shared {
            arena.make_overflow()?;
        }
        arena.counters.g_space.store(size.unwrap_or(0), Ordering::Relaxed);
        Ok(Arc::new(arena))
    }

    /// Creates an arena over a new memfd.
    pub fn anonymous(size: Option<u64>) -> io::Result<Arc<Self>> {
        // SAFETY: the file is new and known only to the arena, which does not lend its descriptor.
        unsafe { Self::from_fd(system::memory_file()?, size, RESERVE) }
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn allocator(&self) -> impl DerefMut<Target = Allocator> + '_ {
        self.allocator.lock()
    }

    pub(crate) fn overflow_slot(&self) -> &OnceLock<Arc<Arena>> {
        &self.overflow
    }

    pub(crate) fn uses_overflow(&self) -> &AtomicBool {
        &self.uses_overflow
    }

    /// Returns the number of its pages.
    pub(crate) fn pages(&self) -> u32 {
        u32::try_from(self.mapping.len() as u64 / u64::from(PAGE)).unwrap_or(u32::MAX)
    }

    /// Returns the configured size, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Returns the number of bytes in use.
    pub fn used(&self) -> u64 {
        self.counters.g_bytes.load(Ordering::Relaxed)
    }

    /// Returns an upper bound of the bytes that an earlier process has written.
    pub(crate) fn contents(&self) -> u64 {
        self.limit.unwrap_or_else(|| system::resident(self.mapping.fd()))
    }

    /// Returns whether `bytes` bytes are free, though not necessarily contiguous.
    pub fn has_free(&self, bytes: u64) -> bool {
        self.limit.is_none_or(|limit| limit.saturating_sub(self.used()) >= bytes)
    }

    /// Returns the maximum size that is allocated in a slab. Larger spans have pages of their own.
    pub fn max_small(&self) -> usize {
        self.geometry.max_small() as usize
    }

    /// Returns the length of the largest span that could be allocated now.
    pub fn longest_free(&self) -> u64 {
        u64::from(self.allocator.lock().runs.longest()) * u64::from(PAGE)
    }

    /// Sets the function that evicts objects for callers that cannot reach the cache. Only the first call has an
    /// effect.
    pub(crate) fn set_evict(&self, evict: Evict) {
        let _ = self.evict.set(evict);
    }

    /// Evicts an object, with no lock held. Returns false if no object can be evicted.
    pub(crate) fn make_room(&self) -> bool {
        self.evict.get().is_some_and(|evict| evict())
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// Takes the memory of a span that an earlier process used, if it lies within the arena, and no other span uses it.
    pub(crate) fn claim(&self, place: Place, filled: u32) -> Option<Allocation> {
        if filled as usize > MAX_SPAN {
            return None;
        }
        let mut guard = self.allocator.lock();
        let Allocator { runs, slabs, dirty, .. } = &mut *guard;
        let allocation = if place.slot == 0 {
            let pages = filled.max(1).div_ceil(PAGE);
            let first = u32::try_from(place.at / u64::from(PAGE)).ok()?;
            let is_free = place.at.is_multiple_of(u64::from(PAGE)) && runs.claim(first, pages);
            if !is_free {
                return None;
            }
            dirty.take(first, pages);
            Allocation::pages(pages * PAGE)
        } else {
            let is_free = filled <= place.slot && slabs.claim(place.at, place.slot, runs, dirty);
            is_free.then(|| Allocation::slot(place.slot))?
        };
        drop(guard);
        self.counters.g_alloc.fetch_add(1, Ordering::Relaxed);
        self.account(u64::from(allocation.capacity()));
        Some(allocation)
    }

    /// Returns all free pages to the system, except those that another process may use. A socket may still hold some of
    /// them for a process that has ended.
    pub(crate) fn punch_free_pages(&self) -> io::Result<()> {
        {
            let mut guard = self.allocator.lock();
            let Allocator { runs, slabs, handover, .. } = &mut *guard;
            handover.pin(runs, slabs);
        }
        if !self.can_send {
            // No span was ever sent from the file.
            return Ok(());
        }
        let mut from = 0;
        loop {
            let next = self.allocator.lock().runs.next_from(from);
            let Some((start, pages)) = next else { return Ok(()) };
            self.mapping.punch(u64::from(start) * u64::from(PAGE), u64::from(pages) * u64::from(PAGE))?;
            from = start + pages;
        }
    }

    pub(crate) fn parts(&self) -> &PartMemory {
        &self.parts
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn can_send(&self) -> bool {
        self.can_send
    }

    pub(crate) fn alloc(&self, size: usize) -> Result<(u64, Allocation), Full> {
        let c = &self.counters;
        c.c_req.fetch_add(1, Ordering::Relaxed);
        let found = if size > MAX_SPAN { None } else { self.find(size as u32) };
        let Some((at, allocation)) = found else {
            c.c_fail.fetch_add(1, Ordering::Relaxed);
            return Err(Full);
        };
        c.g_alloc.fetch_add(1, Ordering::Relaxed);
        self.account(u64::from(allocation.capacity()));
        Ok((at, allocation))
    }

    /// Allocates memory for a part of a body on a device.
    pub(crate) fn alloc_part(&self, size: usize) -> Result<(u64, Allocation), Full> {
        let (at, allocation) = self.alloc(size)?;
        self.parts.add(allocation.capacity());
        Ok((at, Allocation(allocation.0 | Allocation::PART)))
    }

    fn find(&self, size: u32) -> Option<(u64, Allocation)> {
        let mut guard = self.allocator.lock();
        let Allocator { runs, slabs, dirty, handover } = &mut *guard;
        if handover.is_frozen() {
            return None;
        }
        if size <= self.geometry.max_small()
            && let Some((at, slot)) = slabs.take(size, runs, dirty)
        {
            return Some((at, Allocation::slot(slot)));
        }
        let pages = size.max(1).div_ceil(PAGE);
        let start = runs.take(pages)?;
        dirty.take(start, pages);
        Some((u64::from(start) * u64::from(PAGE), Allocation::pages(pages * PAGE)))
    }

    /// Frees the whole pages after the first `len` bytes. Returns the shortened allocation.
    pub(crate) fn trim(&self, at: u64, allocation: Allocation, len: u32) -> Allocation {
        let keep = len.max(1).div_ceil(PAGE) * PAGE;
        if !allocation.is_pages() || keep >= allocation.capacity() {
            return allocation;
        }
        let tail = allocation.capacity() - keep;
        if allocation.is_part() {
            self.parts.sub(tail);
        }
        self.release_pages(at + u64::from(keep), tail, false);
        self.unaccount(u64::from(tail));
        self.parts.wake();
        Allocation(allocation.0 - tail)
    }

    pub(crate) fn free(&self, at: u64, allocation: Allocation) {
        let bytes = allocation.capacity();
        if allocation.is_part() {
            self.parts.sub(bytes);
        }
        if allocation.is_pages() {
            self.release_pages(at, bytes, allocation.is_sent());
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

    /// Makes pages available for reuse. The pages are first removed from the file if a socket may hold them, or if
    /// the arena has no limit and enough free pages are resident already.
    pub(crate) fn release_pages(&self, at: u64, bytes: u32, sent: bool) {
        let pages = bytes / PAGE;
        let mut allocator = self.allocator.lock();
        if allocator.handover.hold((at / u64::from(PAGE)) as u32, pages, sent) {
            return;
        }
        let is_surplus = self.limit.is_none()
            && pages >= RETURN_PAGES
            && allocator.dirty.pages() + u64::from(pages) > KEPT_PAGES;
        if sent || is_surplus {
            drop(allocator);
            let is_clean = self.mapping.punch(at, u64::from(bytes)).is_ok();
            if sent && !is_clean {
                // Losing the pages is better than serving their new contents to the wrong client. `can_send` makes
                // this nearly impossible.
                return;
            }
            allocator = self.allocator.lock();
        } else {
            allocator.dirty.give(pages);
        }
        allocator.runs.give((at / u64::from(PAGE)) as u32, pages);
    }

    /// Returns the number of bytes that are resident but not in use. Memory that is allocated and not yet written
    /// counts as in use, so the real number may be higher.
    pub fn surplus(&self) -> u64 {
        let more = self.overflow.get().map_or(0, |overflow| overflow.surplus());
        system::resident(self.mapping.fd()).saturating_sub(self.used()) + more
    }

    /// Returns all free pages to the system, some at a time, so that other threads can allocate in between.
    pub fn return_free_pages(&self) {
        if let Some(overflow) = self.overflow.get() {
            overflow.return_free_pages();
        }
        let mut from = 0;
        loop {
            let next = {
                let mut allocator = self.allocator.lock();
                let Allocator { runs, dirty, handover, .. } = &mut *allocator;
                if handover.is_frozen() {
                    return;
                }
                let next = dirty.next(runs, from, AT_ONCE);
                if next.is_none() {
                    dirty.clear();
                }
                next
            };
            let Some((start, pages)) = next else { return };
            // If this fails, the pages stay resident, which is harmless.
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

/// Maps `wanted` bytes of sparse space, or as many as the system allows.
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
