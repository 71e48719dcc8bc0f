//! An object: its data in storage, and the attributes that determine its lifetime. Objects are kept small, because
//! there are many.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use lacquer_flow::Lifetime;
use lacquer_flow::lookup::{self, Limits, Standing};
use lacquer_flow::storing::Storing;
use lacquer_storage::{BodyState, Chunk, Stored};

use crate::tags::Tag;

/// Properties of an object, one bit each.
pub mod flag {
    use lacquer_flow::storing::Storing;

    /// Hit-for-miss: records that the response was not cacheable.
    pub const HFM: u32 = 1 << 0;
    /// Hit-for-pass; always set together with `HFM`.
    pub const HFP: u32 = 1 << 1;
    /// Belongs to one request and is not in the index.
    pub const PRIVATE: u32 = 1 << 2;
    /// Being removed: lookups skip it.
    pub const DYING: u32 = 1 << 3;
    /// Its fetch failed.
    pub const FAILED: u32 = 1 << 4;
    /// The rest of its body is not needed.
    pub const CANCEL: u32 = 1 << 5;
    /// Was hit since eviction last cleared this mark.
    pub const TOUCHED: u32 = 1 << 6;
    /// Has tags and can be purged by them.
    pub(crate) const TAGGED: u32 = 1 << 7;
    /// Has a validator, so the origin may respond with 304.
    pub const IMSCAND: u32 = 1 << 8;
    /// Stored gzipped.
    pub const GZIPED: u32 = 1 << 9;
    /// The cache has changed its Content-Encoding.
    pub const CHGCE: u32 = 1 << 10;
    /// Was ESI-processed.
    pub const ESIPROC: u32 = 1 << 11;
    /// Must not be written to a disk, because it was purged softly.
    pub(crate) const UNSTORED: u32 = 1 << 12;
    /// Is passed to the disks at its next hit.
    pub(crate) const ONCE: u32 = 1 << 13;
    /// A disk may have it: the previous process may have written it, or the disk has dropped a record of it. Always set
    /// together with `ONCE`.
    pub(crate) const MAY_BE_STORED: u32 = 1 << 15;
    /// Contains only a part of a body, and stays in the index so that a later fetch completes it. Always set together
    /// with `FAILED`.
    pub(crate) const PART: u32 = 1 << 14;
    /// The flags of objects that are not written to a disk.
    pub(crate) const NEVER_STORED: u32 = PRIVATE | HFM | HFP | DYING | FAILED | UNSTORED;
    /// Flags that the creator of an object may set.
    pub const GIVEN: u32 = HFM | HFP | PRIVATE | IMSCAND | GZIPED | CHGCE | ESIPROC;

    /// Flags that the next process finds.
    pub(crate) const KEPT: u32 = IMSCAND | GZIPED | CHGCE | ESIPROC;

    /// Returns the flags for a kind of object.
    pub fn of(storing: Storing) -> u32 {
        match storing {
            Storing::Cached => 0,
            Storing::HitForMiss => HFM,
            Storing::HitForPass => HFM | HFP,
            Storing::Private => HFM | PRIVATE,
        }
    }

    /// Returns the kind of object that the flags represent; the inverse of `of`.
    #[inline]
    pub(crate) fn storing(flags: u32) -> Storing {
        if flags & (HFM | HFP | PRIVATE) == 0 {
            Storing::Cached
        } else if flags & PRIVATE != 0 {
            Storing::Private
        } else if flags & HFP != 0 {
            Storing::HitForPass
        } else {
            Storing::HitForMiss
        }
    }
}

/// The part of the digest that identifies a key: finding a collision takes about 2^96 attempts.
pub(crate) type Key = [u8; 24];

const STEVEDORE_SHIFT: u32 = 24;
/// The position of [`flag::KEPT`].
const KEPT_SHIFT: u32 = 8;
const PIN: u32 = 1 << 16;
const PINS: u32 = 0xff << 16;
/// Front tables count further hits in batches once an object has this many.
pub(crate) const EXACT_HITS: u32 = 1024;
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// The lifetime of an object, in seconds from its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timers {
    pub ttl: f32,
    pub grace: f32,
    pub keep: f32,
}

/// The content and metadata of a new object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSpec<'a> {
    /// The VXID of the transaction that fetched it.
    pub vxid: u64,
    pub t_origin: f64,
    pub timers: Timers,
    /// Bits of [`flag::GIVEN`].
    pub flags: u32,
    /// The time at which the content last changed, in seconds since the epoch; 0 if unknown.
    pub last_modified: f64,
    /// The Vary specification, empty if the object does not vary.
    pub vary: &'a [u8],
    /// The packed head.
    pub head: &'a [u8],
    /// Data that filters produced (ESI program, gzip bits).
    pub extra: &'a [u8],
}

/// The length of the fixed part before the Vary specification and the packed head.
pub(crate) const FIXED: usize = 12;

impl ObjectSpec<'_> {
    pub(crate) fn fixed(&self) -> [u8; FIXED] {
        let mut fixed = [0; FIXED];
        fixed[..8].copy_from_slice(&self.last_modified.to_le_bytes());
        fixed[8..].copy_from_slice(&(self.vary.len() as u32).to_le_bytes());
        fixed
    }
}

/// A cached object, or one that is private to a request.
pub struct Object {
    /// The bytes, and the record with VXID, times, hits and the last ban.
    stored: Stored,
    flags: AtomicU32,
    slot: AtomicU32,
}

// With the two counts of its Arc, an object fits into a 64-byte allocation.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Object>() <= 40);

impl Object {
    pub(crate) fn new(stored: Stored, spec: &ObjectSpec<'_>, stevedore: u8) -> Arc<Self> {
        let Timers { ttl, grace, keep } = spec.timers;
        stored.record().begin(spec.vxid, spec.t_origin, [ttl, grace, keep]);
        Self::with_flags(stored, spec.flags & flag::GIVEN | u32::from(stevedore) << STEVEDORE_SHIFT)
    }

    /// Creates an object of the previous process, whose record contains its times.
    pub(crate) fn kept(stored: Stored, flags: u8, stevedore: u8) -> Arc<Self> {
        let flags = u32::from(flags) << KEPT_SHIFT & flag::KEPT;
        Self::with_flags(stored, flags | u32::from(stevedore) << STEVEDORE_SHIFT)
    }

    fn with_flags(stored: Stored, flags: u32) -> Arc<Self> {
        stored.counters().g_objects.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { stored, flags: AtomicU32::new(flags), slot: AtomicU32::new(NO_SLOT) })
    }

    /// Returns the key under which it was published.
    pub(crate) fn key(&self) -> Key {
        self.stored.record().key()
    }

    /// Sets the key under which it is published.
    pub(crate) fn set_key(&self, key: &Key) {
        self.stored.record().set_key(key);
    }

    /// Returns whether the next process may find the object.
    pub(crate) fn is_keepable(&self) -> bool {
        !self.is(flag::PRIVATE | flag::HFM | flag::HFP | flag::DYING | flag::FAILED)
            && self.state() == BodyState::Complete
    }

    /// Makes a [keepable](Self::is_keepable) object valid for the next process, if its store is kept. The caller holds the
    /// lock of its shard, where the object is.
    pub(crate) fn keep(&self, tags: &[Tag]) {
        let tags: Vec<u64> = tags.iter().map(|tag| tag.0).collect();
        self.stored.keep(((self.flags() & flag::KEPT) >> KEPT_SHIFT) as u8, &tags);
    }

    /// Copies the object into one span of storage, if that is possible and its body is no longer than `limit`.
    pub(crate) fn compacted(&self, limit: usize) -> Option<Arc<Self>> {
        let stored = self.stored.compacted(limit)?;
        stored.record().copy_from(self.stored.record());
        let copy = Self::with_flags(stored, self.flags.load(Ordering::Relaxed) & !PINS);
        copy.set_slot(self.slot());
        Some(copy)
    }

    /// Returns the time of the last change, the Vary specification and the packed head.
    #[inline]
    fn parts(&self) -> Option<(f64, &[u8], &[u8])> {
        let (fixed, rest) = self.stored.head().split_first_chunk::<FIXED>()?;
        let (last_modified, vary) = fixed.split_first_chunk()?;
        let (vary, head) = rest.split_at_checked(u32::from_le_bytes(vary.try_into().ok()?) as usize)?;
        Some((f64::from_le_bytes(*last_modified), vary, head))
    }

    /// Returns whether the parts before the packed head are complete.
    pub(crate) fn has_sound_head(&self) -> bool {
        self.parts().is_some_and(|(last_modified, ..)| last_modified.is_finite())
    }

    /// The packed head.
    pub fn head(&self) -> &[u8] {
        self.parts().map(|parts| parts.2).unwrap_or_default()
    }

    /// Returns the Vary specification, if the object varies.
    pub fn vary(&self) -> Option<&[u8]> {
        self.parts().map(|parts| parts.1).filter(|v| !v.is_empty())
    }

    /// Returns the time at which the content last changed; 0 if unknown.
    pub fn last_modified(&self) -> f64 {
        self.parts().map(|parts| parts.0).unwrap_or_default()
    }

    /// Returns the data that the object's creator stored in addition to head and body; empty if there is none.
    pub fn extra(&self) -> &[u8] {
        self.stored.extra()
    }

    /// Sets `extra` on an object that [`crate::Cache::begin`] created with an empty one. Must be called at most once.
    pub fn set_extra(&self, extra: &[u8]) {
        self.stored.set_extra(extra);
    }

    /// Marks an object that [`crate::Cache::begin`] created and that is not published yet as a part. `extra` describes it.
    pub fn make_part(&self, extra: &[u8]) {
        self.set_extra(extra);
        self.set(flag::FAILED | flag::PART);
    }

    /// Returns the length of the body so far.
    pub fn body_len(&self) -> u64 {
        self.stored.body_len()
    }

    pub fn state(&self) -> BodyState {
        self.stored.state()
    }

    /// Returns the longest contiguous part of the body from `offset` on that is in memory. For bodies with a single
    /// reader, which stay in memory; others may be [pending](Self::read).
    pub fn chunk_at(&self, offset: u64) -> Option<Chunk<'_>> {
        self.stored.chunk_at(offset)
    }

    /// Waits until the byte at `offset` is in memory or will never be. Requests the byte from the device if it is
    /// there.
    pub async fn more(&self, offset: u64) -> BodyState {
        // Keeps the part with that byte in memory until this task has seen it.
        let mut wait = self.stored.wait(offset);
        std::future::poll_fn(|cx| wait.poll(cx)).await
    }

    /// Returns whether the byte at `offset` was not fetched yet, and may come.
    pub fn is_awaited(&self, offset: u64) -> bool {
        self.state() == BodyState::Fetching && self.body_len() <= offset
    }

    /// Waits until the byte at `offset` was fetched, or the fetch has ended. The byte may then be on a device.
    pub async fn fetched(&self, offset: u64) {
        let mut wait = self.stored.wait(offset);
        std::future::poll_fn(|cx| match wait.poll(cx) {
            Poll::Pending if self.is_awaited(offset) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Waits until the fetch has ended.
    pub async fn end(&self) -> BodyState {
        self.more(u64::MAX).await
    }

    /// Returns the storage part, for rare operations: back pressure, freeing delivered parts.
    pub fn stored(&self) -> &Stored {
        &self.stored
    }

    pub fn vxid(&self) -> u64 {
        self.stored.record().vxid()
    }

    /// Returns the time at which its lifetime began: the time of the origin's response, less its age at that time.
    pub fn t_origin(&self) -> f64 {
        self.stored.record().origin()
    }

    pub fn timers(&self) -> Timers {
        let [ttl, grace, keep] = self.stored.record().timers();
        Timers { ttl, grace, keep }
    }

    pub(crate) fn set_timers(&self, timers: Timers) {
        self.stored.record().set_timers([timers.ttl, timers.grace, timers.keep]);
    }

    pub fn lifetime(&self) -> Lifetime {
        let Timers { ttl, grace, keep } = self.timers();
        let [ttl, grace, keep] = [ttl, grace, keep].map(f64::from);
        Lifetime { origin: self.t_origin(), ttl, grace, keep }
    }

    /// Returns the time until which it is fresh for a request.
    #[inline]
    pub fn fresh_until(&self, limits: Limits) -> f64 {
        lookup::fresh_until(self.t_origin(), self.ttl(), limits)
    }

    #[inline]
    pub(crate) fn standing(&self, limits: Limits, t_req: f64) -> Standing {
        lookup::standing(self.t_origin(), self.ttl(), limits, t_req)
    }

    #[inline]
    fn ttl(&self) -> f64 {
        f64::from(self.stored.record().ttl())
    }

    /// Returns the kind of object.
    #[inline]
    pub(crate) fn storing(&self) -> Storing {
        flag::storing(self.flags())
    }

    /// Returns the time at which it must be removed.
    pub fn expires(&self) -> f64 {
        let lifetime = self.lifetime();
        lifetime.origin + lifetime.ttl + lifetime.grace + lifetime.keep
    }

    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Returns whether any of these bits of [`flag`] is set.
    pub fn is(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    /// Returns the index of its storage.
    pub fn stevedore(&self) -> u8 {
        (self.flags() >> STEVEDORE_SHIFT) as u8
    }

    /// Returns whether only the request that it was fetched for reads its body.
    pub fn has_one_reader(&self) -> bool {
        self.is(flag::PRIVATE | flag::HFM | flag::HFP)
    }

    /// Requests the fetch to stop, if the object has a single reader.
    pub fn cancel(&self) {
        if self.has_one_reader() {
            self.set(flag::CANCEL);
        }
    }

    pub(crate) fn set(&self, flag: u32) {
        if !self.is(flag) {
            self.flags.fetch_or(flag, Ordering::Release);
        }
    }

    /// Sets several flags.
    pub(crate) fn set_all(&self, flags: u32) {
        self.flags.fetch_or(flags, Ordering::Release);
    }

    /// Clears a flag.
    pub(crate) fn clear(&self, flag: u32) {
        self.flags.fetch_and(!flag, Ordering::Release);
    }

    /// Clears the eviction mark. Returns whether it was set.
    pub(crate) fn clear_touched(&self) -> bool {
        self.is(flag::TOUCHED) && self.flags.fetch_and(!flag::TOUCHED, Ordering::Relaxed) & flag::TOUCHED != 0
    }

    /// Counts hits and sets the eviction mark. Returns whether it was clear.
    pub(crate) fn hit(&self, n: u32) -> bool {
        let first = !self.is(flag::TOUCHED);
        self.set(flag::TOUCHED);
        self.count_hits(n);
        first
    }

    pub(crate) fn count_hits(&self, n: u32) {
        self.stored.record().add_hits(n);
    }

    pub fn hits(&self) -> u32 {
        self.stored.record().hits()
    }

    /// Records that a front table holds a reference. Returns false if the count is at its maximum.
    pub(crate) fn pin(&self) -> bool {
        if self.flags() & PINS == PINS {
            return false;
        }
        self.flags.fetch_add(PIN, Ordering::Relaxed);
        true
    }

    pub(crate) fn unpin(&self) {
        self.flags.fetch_sub(PIN, Ordering::Relaxed);
    }

    pub(crate) fn pins(&self) -> usize {
        ((self.flags() & PINS) / PIN) as usize
    }

    pub(crate) fn ban(&self) -> u32 {
        self.stored.record().ban()
    }

    pub(crate) fn set_ban(&self, ban: u32) {
        self.stored.record().set_ban(ban);
    }

    /// Returns the number of the object's slot in the index, if it was published. [`crate::Cache::kill_at`] takes it
    /// together with the VXID.
    pub fn slot_id(&self) -> Option<u32> {
        Some(self.slot()).filter(|&slot| slot != NO_SLOT)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slot(&self, slot: u32) {
        self.slot.store(slot, Ordering::Relaxed);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.stored.counters().g_objects.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}, {:?}, flags {:#x})", self.vxid(), self.timers(), self.flags())
    }
}
