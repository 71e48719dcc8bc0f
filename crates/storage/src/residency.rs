//! The parts in memory of a body that is on a device, and the loads that will bring others.
//!
//! A part that a reader waits for stays in memory until the reader is woken. The parts that a delivery needs next are
//! loaded ahead while there is memory to spare. Few other parts stay in memory, and none when the memory for parts is
//! short.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::arena::Arena;
use crate::load::{Extent, Load, Receiver};
use crate::part_memory::Holder;
use crate::span::{Span, SpanWriter};
use crate::sync::{AtomicBool, AtomicU64, Mutex};

/// The maximum length of a load, in bytes: a whole number of the block store's blocks, so that no block is read twice.
const LOAD: u64 = 8 * 16_376;
/// The number of bytes that are loaded before a delivery needs them.
const AHEAD: u64 = 2 * LOAD;
/// The length of the shortest load when the memory for parts is short.
const LOAD_SHORT: u64 = 16 * 1024;
/// The length of the shortest load when memory is full of small objects.
const LOAD_LEAST: usize = 256;
/// The number of parts of one body that stay in memory although no reader waits for them.
const IDLE_PARTS: usize = 2;
/// The maximum number of objects that one poll of a reader evicts, and the number after which a shorter load is tried.
const EVICTIONS: u32 = 32;
const EVICTIONS_BEFORE_SHORTER: u32 = 8;

/// Whether objects may be evicted for a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    Allowed,
    /// As a result: another attempt must wait until memory is freed.
    Ended,
}

#[derive(Debug)]
struct Part {
    start: u64,
    span: Arc<Span>,
}

impl Part {
    fn has(&self, at: u64) -> bool {
        self.start <= at && at - self.start < self.span.len() as u64
    }

    fn end(&self) -> u64 {
        self.start + self.span.len() as u64
    }

    fn is_awaited(&self, awaited: &Awaited) -> bool {
        awaited.range(self.start..self.end()).next().is_some()
    }

    /// Returns whether a delivery will soon need it.
    fn is_next(&self, deliveries: &Deliveries) -> bool {
        // A delivery needs it if less than `AHEAD` is before it.
        let first = (self.start + 1).saturating_sub(AHEAD);
        deliveries.range((first, 0)..(self.end(), 0)).next().is_some()
    }
}

/// The number of readers that wait for the byte at each position.
type Awaited = BTreeMap<u64, u32>;
/// The end of each delivery, by the position of its next byte and its number.
type Deliveries = BTreeMap<(u64, u64), u64>;

#[derive(Debug, Default)]
struct Loaded {
    /// The parts, oldest first.
    parts: Vec<Part>,
    /// The beginning and end of each load in progress.
    loading: Vec<(u64, u64)>,
    awaited: Awaited,
    deliveries: Deliveries,
    last_delivery: u64,
    /// The body is in the arena's list of bodies with parts.
    is_listed: bool,
}

impl Loaded {
    fn lacks(&self, at: u64, end: u64) -> bool {
        let is_loading = self.loading.iter().any(|&(from, to)| from <= at && at < to);
        at < end && !is_loading && !self.parts.iter().any(|part| part.has(at))
    }

    /// Registers a load from `at` on, and returns its length. Returns `None` if the byte is in memory or is being
    /// loaded.
    fn plan(&mut self, at: u64, end: u64) -> Option<u64> {
        if !self.lacks(at, end) {
            return None;
        }
        let end = self.needed(at, end).unwrap_or(end);
        let begins = self.parts.iter().map(|p| p.start).chain(self.loading.iter().map(|l| l.0));
        let next = begins.filter(|&start| start > at).min().unwrap_or(end);
        let length = LOAD.min(next.min(end) - at);
        self.loading.push((at, at + length));
        Some(length)
    }

    /// Returns the end of the longest delivery that needs the byte at `at`, or `end` if that is nearer.
    fn needed(&self, at: u64, end: u64) -> Option<u64> {
        let mut longest = None;
        for (_, &to) in self.deliveries.range(..=(at, u64::MAX)).rev().filter(|&(_, &to)| to > at) {
            longest = longest.max(Some(to.min(end)));
            if to >= end {
                break;
            }
        }
        longest
    }

    fn end_loading(&mut self, from: u64) {
        self.loading.retain(|load| load.0 != from);
    }

    /// Adds a part. Returns the part that is dropped for it, if any.
    fn insert(&mut self, part: Part) -> Option<Part> {
        self.end_loading(part.start);
        self.parts.push(part);
        let Self { parts, awaited, deliveries, .. } = self;
        let is_idle = |part: &Part| !part.is_awaited(awaited) && !part.is_next(deliveries);
        let mut idle = parts.iter().enumerate().filter(|(_, part)| is_idle(part));
        let oldest = idle.next()?.0;
        (idle.count() >= IDLE_PARTS).then(|| parts.remove(oldest))
    }

    /// Returns the first byte from `at` on that is neither in memory nor being loaded.
    fn first_lacking(&self, mut at: u64) -> u64 {
        loop {
            let parts = self.parts.iter().map(|part| (part.start, part.end()));
            let mut all = parts.chain(self.loading.iter().copied());
            match all.find(|&(from, to)| from <= at && at < to) {
                Some((_, to)) => at = to,
                None => return at,
            }
        }
    }

    /// Removes the parts that no reader waits for.
    fn take_idle(&mut self) -> Vec<Part> {
        let Self { parts, awaited, .. } = self;
        parts.extract_if(.., |part| !part.is_awaited(awaited)).collect()
    }
}

/// The location of a body on a device, and the parts of it that are in memory.
#[derive(Debug)]
pub(crate) struct Residency {
    extent: Box<dyn Extent>,
    /// The number of bytes of the body that are on the device.
    end: AtomicU64,
    /// The device takes no more bytes.
    is_stopped: AtomicBool,
    loaded: Mutex<Loaded>,
}

impl Residency {
    /// The location of a body of which all bytes are on the device.
    pub(crate) fn whole(extent: Box<dyn Extent>) -> Self {
        Self {
            extent,
            end: AtomicU64::new(u64::MAX),
            is_stopped: AtomicBool::new(false),
            loaded: Mutex::default(),
        }
    }

    /// The location of a body of which no byte is on the device yet.
    pub(crate) fn growing(extent: Box<dyn Extent>) -> Self {
        Self { end: AtomicU64::new(0), ..Self::whole(extent) }
    }

    pub(crate) fn extent(&self) -> &dyn Extent {
        &*self.extent
    }

    /// Returns the number of bytes of the body that are on the device; `u64::MAX` if all are.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::SeqCst)
    }

    pub(crate) fn set_end(&self, end: u64) {
        self.end.fetch_max(end, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// Returns bytes from `at` on that are in memory of the device.
    pub(crate) fn lent_at(&self, at: u64) -> Option<&[u8]> {
        self.extent.bytes_at(at)
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        self.lent_at(at).is_some() || self.loaded.lock().parts.iter().any(|part| part.has(at))
    }

    /// Begins a reader's wait for the byte at `at`. The part with that byte stays in memory until the wait ends.
    pub(crate) fn begin_wait(&self, at: u64) {
        *self.loaded.lock().awaited.entry(at).or_default() += 1;
    }

    /// Ends a reader's wait for the byte at `at`.
    pub(crate) fn end_wait(&self, at: u64) {
        if let Entry::Occupied(mut readers) = self.loaded.lock().awaited.entry(at) {
            *readers.get_mut() -= 1;
            if *readers.get() == 0 {
                readers.remove();
            }
        }
    }

    /// Begins the delivery of the bytes `at..to`. Returns its number.
    pub(crate) fn begin_delivery(&self, at: u64, to: u64) -> u64 {
        let mut loaded = self.loaded.lock();
        loaded.last_delivery += 1;
        let id = loaded.last_delivery;
        loaded.deliveries.insert((at, id), to);
        id
    }

    /// Records that a delivery, whose next byte was that at `before`, has sent the bytes before `at`.
    pub(crate) fn advance_delivery(&self, id: u64, before: u64, at: u64) {
        let mut loaded = self.loaded.lock();
        if let Some(to) = loaded.deliveries.remove(&(before, id)) {
            loaded.deliveries.insert((at, id), to);
        }
    }

    /// Ends a delivery whose next byte is that at `at`.
    pub(crate) fn end_delivery(&self, id: u64, at: u64) {
        self.loaded.lock().deliveries.remove(&(at, id));
    }

    /// Starts to load the bytes behind those that a delivery at `at` has in memory or that are being loaded, if there is
    /// memory to spare for them. It ends at `end`.
    pub(crate) fn read_ahead(&self, receiver: Weak<dyn Receiver>, arena: &Arc<Arena>, at: u64, end: u64) {
        let end = end.min(self.end());
        let next = self.loaded.lock().first_lacking(at);
        if next >= end || next - at > AHEAD || !arena.parts().has_spare(2 * LOAD) {
            return;
        }
        let Some(length) = self.loaded.lock().plan(next, end) else { return };
        match SpanWriter::for_part(arena, length as usize) {
            Ok(writer) => self.extent.load(Load::new(next, length as usize, writer, receiver)),
            Err(_) => self.loaded.lock().end_loading(next),
        }
    }

    /// Returns whether the byte at `at`, which is before `end`, is neither in memory nor being loaded.
    pub(crate) fn lacks(&self, at: u64, end: u64) -> bool {
        self.loaded.lock().lacks(at, end)
    }

    /// Returns the part with the byte at `at`, and the byte's index in it.
    pub(crate) fn part_at(&self, at: u64) -> Option<(Arc<Span>, usize)> {
        let loaded = self.loaded.lock();
        let part = loaded.parts.iter().find(|part| part.has(at))?;
        Some((Arc::clone(&part.span), (at - part.start) as usize))
    }

    pub(crate) fn insert(self: &Arc<Self>, start: u64, span: Arc<Span>) {
        let arena = Arc::clone(span.arena());
        let (goes, was_listed) = {
            let mut loaded = self.loaded.lock();
            (loaded.insert(Part { start, span }), std::mem::replace(&mut loaded.is_listed, true))
        };
        if !was_listed {
            let this: Weak<Self> = Arc::downgrade(self);
            arena.parts().list(this);
        }
        drop(goes);
        arena.parts().wake();
    }

    /// Drops all parts in memory.
    pub(crate) fn clear(&self) {
        let _gone = std::mem::take(&mut self.loaded.lock().parts);
    }

    pub(crate) fn owns_pages(&self) -> bool {
        self.loaded.lock().parts.iter().any(|part| part.span.owns_pages())
    }

    /// Starts a load of the byte at `at` and the following ones, up to `end`, unless one is in progress. If there is no
    /// memory for it, returns whether more objects can be evicted.
    pub(crate) fn load(
        &self,
        receiver: Weak<dyn Receiver>,
        arena: &Arc<Arena>,
        at: u64,
        end: u64,
        eviction: Eviction,
    ) -> Result<(), Eviction> {
        let Some(length) = self.loaded.lock().plan(at, end) else { return Ok(()) };
        let found = allocate(arena, length, eviction);
        let writer = found.inspect_err(|_| self.loaded.lock().end_loading(at))?;
        let wanted = writer.free_len().min(length as usize);
        self.extent.load(Load::new(at, wanted, writer, receiver));
        Ok(())
    }
}

impl Holder for Residency {
    fn drop_parts(&self) -> bool {
        let (_gone, is_left) = {
            let mut loaded = self.loaded.lock();
            let gone = loaded.take_idle();
            loaded.is_listed = !loaded.parts.is_empty();
            (gone, loaded.is_listed)
        };
        is_left
    }
}

/// Allocates memory for a load, within the limit for parts. Drops other parts first, and then evicts objects. If that
/// frees only small pieces, one of those is used.
fn allocate(arena: &Arc<Arena>, length: u64, eviction: Eviction) -> Result<SpanWriter, Eviction> {
    let wanted = arena.parts().make_room(length);
    if wanted < length.min(LOAD_SHORT) {
        return Err(Eviction::Ended);
    }
    let wanted = wanted as usize;
    let (mut evicted, mut eviction) = (0, eviction);
    loop {
        let found = SpanWriter::for_part(arena, wanted).ok();
        let is_short_enough = evicted >= EVICTIONS_BEFORE_SHORTER;
        if let Some(writer) = found.or_else(|| is_short_enough.then(|| allocate_less(arena, wanted))?) {
            return Ok(writer);
        }
        if eviction == Eviction::Ended || evicted == EVICTIONS {
            break;
        }
        evicted += 1;
        if !arena.make_room() {
            eviction = Eviction::Ended;
        }
    }
    let less = allocate_less(arena, wanted).or_else(|| {
        arena.parts().drop_all();
        allocate_less(arena, wanted)
    });
    less.ok_or(eviction)
}

fn allocate_less(arena: &Arc<Arena>, wanted: usize) -> Option<SpanWriter> {
    let longest = usize::try_from(arena.longest_free()).unwrap_or(usize::MAX);
    let sizes = [longest, arena.max_small(), LOAD_LEAST];
    let mut fitting = sizes.into_iter().filter(|&size| size > 0).map(|size| size.min(wanted));
    fitting.find_map(|size| SpanWriter::for_part(arena, size).ok())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Extent for Nowhere {
        fn load(&self, _: Load) {}
    }

    /// With a search among all readers for each of them, this takes several times as long. A busy machine may stall.
    #[test]
    fn many_readers_of_a_body_cost_little_each() {
        let is_fast = |_| time_of_many_readers() < Duration::from_secs(5) || cfg!(miri);
        assert!((0..5).any(is_fast));
    }

    fn time_of_many_readers() -> Duration {
        const READERS: u64 = if cfg!(miri) { 100 } else { 60_000 };
        let residency = Residency::whole(Box::new(Nowhere));
        let begun = Instant::now();
        let ids: Vec<u64> = (0..READERS).map(|n| residency.begin_delivery(n, u64::MAX)).collect();
        (0..READERS).for_each(|n| residency.begin_wait(n));
        for (at, &id) in (0..).zip(&ids) {
            residency.advance_delivery(id, at, at + 10);
            residency.end_wait(at);
            assert_eq!(residency.loaded.lock().needed(at + 10, 1 << 40), Some(1 << 40));
        }
        for (at, &id) in (0..).zip(&ids) {
            residency.end_delivery(id, at + 10);
        }
        let loaded = residency.loaded.lock();
        assert!(loaded.awaited.is_empty() && loaded.deliveries.is_empty());
        begun.elapsed()
    }

    #[test]
    fn waits_are_counted_and_the_longest_delivery_counts() {
        let residency = Residency::whole(Box::new(Nowhere));
        residency.begin_wait(7);
        residency.begin_wait(7);
        residency.end_wait(7);
        residency.end_wait(8);
        assert_eq!(residency.loaded.lock().awaited, BTreeMap::from([(7, 1)]));
        residency.end_wait(7);
        assert!(residency.loaded.lock().awaited.is_empty());
        let long = residency.begin_delivery(10, 900);
        let short = residency.begin_delivery(20, 50);
        let needed = |at, end| residency.loaded.lock().needed(at, end);
        assert_eq!([needed(9, 1000), needed(10, 1000), needed(30, 1000)], [None, Some(900), Some(900)]);
        assert_eq!([needed(30, 40), needed(900, 1000)], [Some(40), None]);
        residency.advance_delivery(long, 10, 60);
        assert_eq!([needed(30, 1000), needed(55, 1000), needed(60, 1000)], [Some(50), None, Some(900)]);
        residency.end_delivery(short, 20);
        assert_eq!(needed(30, 1000), None);
    }
}
