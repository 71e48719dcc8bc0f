//! Bodies that are long compared with the memory move to a disk while they are fetched.
//!
//! The parts of such a body are written as soon as they are complete, and then leave memory. Readers that are behind read
//! them from the disk. When the fetch has ended, the object is committed like others, without the body. If the fetch
//! fails, or the object is not committed, the parts are of no use, and their segments are reused in their turn.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_disk::{Meta, PartSource, PartStream, Store};
use lacquer_storage::{BodyWriter, Stevedore, Transfer};

use crate::cache::Cache;
use crate::disk::Disks;
use crate::disk::content::meta_of;
use crate::disk::extent::SpillExtent;
use crate::object::{Object, flag};
use crate::slab::{Digest, key_of};

/// A body moves when it is longer than this part of the memory.
const THRESHOLD_DIVISOR: u64 = 8;
/// The part of the memory that all bodies that move may use together.
const SHARED_DIVISOR: u64 = 4;
/// The part of the memory that they leave free for heads and for reads from the disk.
const FREE_DIVISOR: u64 = 16;
/// The number of parts that each may have in memory in any case: one is written, and one is received.
const LEAST_PARTS: u64 = 2;
/// The maximum length of the pieces of a body that moves.
const PIECE: usize = 256 * 1024;

/// A body that moves to a disk while it is fetched. Dropping it before [`finish`](Self::finish) ends that: the object is
/// not stored.
pub struct Spill {
    stream: Arc<PartStream>,
    /// The number of bytes in parts that were passed to the store.
    pushed: u64,
    /// The memory of the storage.
    memory: u64,
    active: Arc<AtomicU64>,
    is_finished: bool,
}

/// Returns whether a body may leave memory for a store: it is not too long, and later requests find it.
fn may_move(store: &Store, object: &Object, writer: &BodyWriter) -> bool {
    let fits = writer.expected().is_none_or(|length| length <= store.longest_body());
    fits && !object.is(flag::PART | flag::FAILED)
}

impl Cache {
    /// Returns the length from which on the body of a new object moves to a disk while it is fetched. `u64::MAX` if it
    /// stays in memory.
    pub fn spill_from(&self, stevedore: &Stevedore, flags: u32) -> u64 {
        const STAYS: u32 = flag::HFM | flag::HFP | flag::PRIVATE;
        if self.disks.is_empty() || flags & STAYS != 0 {
            return u64::MAX;
        }
        self.disks.spill_from(stevedore)
    }

    /// Returns the maximum length of a piece of a new body, so that it can leave memory in pieces.
    pub(crate) fn spilled_piece(&self, stevedore: &Stevedore, flags: u32, expected: Option<u64>) -> usize {
        let from = self.spill_from(stevedore, flags);
        if from < u64::MAX && expected.is_none_or(|length| length > from) { PIECE } else { usize::MAX }
    }

    /// Returns whether the body of an object cannot move to its disk yet, only because the index is being read.
    pub fn is_reading_index(&self, digest: &Digest, object: &Object, writer: &BodyWriter) -> bool {
        let index = self.disks.store_for(&key_of(digest), object.stevedore());
        let disk = index.and_then(|index| self.disks.get(index));
        disk.is_some_and(|disk| disk.store().is_reading_index() && may_move(disk.store(), object, writer))
    }

    /// Begins to move the body of an object to a disk. Returns `None` if it stays in memory: it is too long for the disk,
    /// or the disk does not work, or [not yet](Self::is_reading_index).
    pub fn begin_spill(&self, digest: &Digest, object: &Object, writer: &BodyWriter) -> Option<Spill> {
        let key = key_of(digest);
        let index = self.disks.store_for(&key, object.stevedore())?;
        let disk = self.disks.get(index)?;
        let (store, stevedore) = (disk.store(), self.stevedores.get(usize::from(object.stevedore()))?);
        if !may_move(store, object, writer) {
            return None;
        }
        let memory = stevedore.limit()?;
        let meta = Meta { ban: 0, ..meta_of(key, object, &*self.bans.heads) };
        let active = Arc::clone(&self.disks.spills);
        active.fetch_add(1, Ordering::Relaxed);
        let source =
            Source { transfer: writer.transfer(), memory, least: LEAST_PARTS * store.part_len(), active };
        let active = Arc::clone(&source.active);
        let Some(stream) = store.begin_stream(meta, Box::new(source)) else {
            active.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let extent =
            SpillExtent { running: Arc::clone(&disk.running), stream: Arc::clone(&stream), disk: index };
        let spill = Spill { stream, pushed: 0, memory, active, is_finished: false };
        writer.move_to(Box::new(extent)).then_some(spill)
    }
}

impl Disks {
    fn spill_from(&self, stevedore: &Stevedore) -> u64 {
        let parts = self.iter().filter(|disk| disk.stevedore == stevedore.index());
        let part = parts.map(|disk| disk.store().part_len()).max();
        let Some((part, memory)) = part.zip(stevedore.limit()) else { return u64::MAX };
        (memory / THRESHOLD_DIVISOR).max(LEAST_PARTS * part)
    }
}

/// Returns the number of bytes that a body may have in memory before the fetch waits for the disk.
fn window(memory: u64, least: u64, active: &AtomicU64) -> u64 {
    let most = (memory / THRESHOLD_DIVISOR).max(least);
    (memory / SHARED_DIVISOR / active.load(Ordering::Relaxed).max(1)).clamp(least, most)
}

impl Spill {
    /// Passes the parts to the store that are complete. `length` bytes of the body are in memory or moved.
    pub fn advance(&mut self, length: u64) {
        let (store, part) = (self.stream.store(), self.stream.store().part_len());
        if length > store.longest_body() {
            self.stream.stop();
        }
        while !self.stream.is_stopped() && length - self.pushed >= part {
            self.pushed += part;
            self.stream.push(part);
        }
    }

    /// Passes the last part to the store, when the body has ended.
    pub fn finish(&mut self, length: u64) {
        self.advance(length);
        if length > self.pushed && !self.stream.is_stopped() {
            self.stream.push(length - self.pushed);
        }
        self.is_finished = true;
    }

    /// Returns the number of bytes that may be in memory and not on the disk yet before the fetch must wait.
    pub fn window(&self) -> u64 {
        window(self.memory, LEAST_PARTS * self.stream.store().part_len(), &self.active)
    }

    /// Returns the number of bytes of the memory that the body leaves free for others.
    pub fn free(&self) -> u64 {
        self.memory / FREE_DIVISOR
    }

    /// Returns whether parts were passed to the store that it has not written.
    pub fn has_unwritten(&self, writer: &BodyWriter) -> bool {
        !self.is_stopped() && self.pushed > writer.moved()
    }

    /// Returns whether other bodies move to disks, too.
    pub fn has_others(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 1
    }

    /// Returns whether the rest of the body stays in memory, so that the object cannot be stored.
    pub fn is_stopped(&self) -> bool {
        self.stream.is_stopped()
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        if !self.is_finished {
            self.stream.stop();
        }
    }
}

/// The memory of a body that moves.
struct Source {
    transfer: Transfer,
    memory: u64,
    least: u64,
    active: Arc<AtomicU64>,
}

impl PartSource for Source {
    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        self.transfer.read(from, window)
    }

    fn written(&self, to: u64) {
        // Readers that keep up with the fetch find the last bytes in memory.
        self.transfer.advance(to, window(self.memory, self.least, &self.active) / 2);
    }

    fn stopped(&self) {
        self.transfer.stop();
    }
}

impl fmt::Debug for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spill({:?}, {} passed on)", self.stream, self.pushed)
    }
}
