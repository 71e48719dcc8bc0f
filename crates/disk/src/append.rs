//! Appends records to the segment that is being written, many to a write.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use crate::blocks::{Aligned, BLOCK};
use crate::index::Entry;
use crate::known_tags::SegmentTags;
use crate::record::{Form, Meta, Parts, encode, encode_large, encode_part, fingerprint, relocate};
use crate::segment::{self, Extent, FIRST, Summarized, Summary};
use crate::state::{Flying, Phase, Queued, Source, State};
use crate::stats::{add, bump};
use crate::store::Store;
use crate::stream::QueuedPart;

/// The number of bytes that are written at a time. Longer records are written alone.
pub(crate) const BATCH: usize = 1 << 20;

/// A summary of an open segment is written after one of this many parts of the segment, and after this many times the length
/// of the summary.
const SUMMARIZED_PART: u64 = 32;
const SUMMARY_COST: u64 = 24;

/// The end of a store's log.
pub(crate) struct Appender {
    store: Arc<Store>,
    buffer: Aligned,
    /// The number of bytes in the buffer.
    filled: usize,
    /// The offset in the segment at which the buffer is written.
    start: u64,
    summary: Summary,
    tags: SegmentTags,
    /// The offset in the segment up to which the records are in the summary on the device.
    summarized: u64,
    /// Whether there are writes that may be lost.
    is_dirty: bool,
    /// The parts in the buffer of bodies that are still fetched.
    parts: Vec<PartInBatch>,
}

/// The place of the next record.
#[derive(Clone, Copy)]
pub(crate) enum Room {
    Here,
    /// In the next batch.
    NextBatch,
    NextSegment,
}

/// A part of a body that is in the buffer, at a log position whose segment has the pin.
struct PartInBatch {
    part: QueuedPart,
    log: u64,
    pin: Arc<()>,
}

/// The record of a part.
#[derive(Clone, Copy)]
pub(crate) struct PartRecord {
    pub(crate) meta: Meta,
    /// The number of bytes of the body in it, and the length of the record.
    pub(crate) body: u64,
    pub(crate) len: u64,
}

impl Appender {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            buffer: Aligned::new(BATCH),
            filled: 0,
            start: 0,
            summary: Summary::new(),
            tags: SegmentTags::default(),
            summarized: 0,
            is_dirty: false,
            parts: Vec::new(),
        }
    }

    /// Returns whether something would be lost.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty || self.filled > 0
    }

    /// Returns whether the buffer has parts of bodies that are still fetched.
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Drops what is not written: the device is out of use.
    pub(crate) fn clear(&mut self) {
        (self.filled, self.is_dirty) = (0, false);
        self.drop_parts();
        let flying = std::mem::take(&mut self.store.state.lock().flying);
        drop(flying);
    }

    pub(crate) fn drop_parts(&mut self) {
        self.parts.clear();
    }

    /// Writes the buffer, and makes everything durable.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.write_batch()?;
        if std::mem::take(&mut self.is_dirty) {
            self.store.blocks.sync()?;
            self.summarize()?;
        }
        Ok(())
    }

    /// Writes a summary of the records so far, which are durable, if there are many new ones: the next start need not read
    /// them if this process is killed. It may be lost.
    fn summarize(&mut self) -> io::Result<()> {
        let len = segment::summary_len(self.summary.records.len());
        let least = (self.store.layout.segment / SUMMARIZED_PART).max(len * SUMMARY_COST);
        if self.start == 0 || self.start - self.summarized < least {
            return Ok(());
        }
        let epoch = self.store.state.lock().epoch;
        let tags = self.tags.list();
        let records = std::mem::take(&mut self.summary.records);
        let so_far = Summary { records, bans: self.summary.bans, tags };
        let written = write_summary(&self.store, epoch, &so_far, Extent::SoFar);
        self.summary.records = so_far.records;
        self.summarized = self.start;
        written
    }

    /// Continues in a segment whose header was written.
    pub(crate) fn begin_segment(&mut self) {
        (self.start, self.summarized) = (FIRST, FIRST);
    }

    /// Returns the place of the next record, of `len` bytes and with a number of tags.
    pub(crate) fn room(&self, state: &State, len: u64, tags: usize) -> Room {
        let (layout, count) = (&self.store.layout, self.summary.records.len());
        // The first record of a segment may be so long that there is no room for the list.
        let tags = if count == 0 { 0 } else { self.tags.count_with(layout, tags) };
        let limit = segment::limit(layout, count + 1, tags);
        if state.epoch == 0 || state.offset + len > limit {
            Room::NextSegment
        } else if self.filled as u64 + len > self.buffer.bytes().len() as u64 {
            Room::NextBatch
        } else {
            Room::Here
        }
    }

    /// Gives an object its place.
    pub(crate) fn register(&mut self, state: &mut State, queued: &mut Queued) -> u64 {
        let layout = &self.store.layout;
        // A start that does not know a ban gives its number to another one, which the object must be tested against.
        queued.meta.ban = queued.meta.ban.min(state.live.durable_ban);
        let log = state.epoch * layout.segment + state.offset;
        let meta = queued.meta;
        let entry = queued.entry(layout.place(log));
        state.flying.push(Flying { entry, log, ban: meta.ban, is_purged: false, content: None });
        state.offset += queued.len;
        state.known_tags.add(&queued.tags, state.epoch);
        let slot = layout.slot(state.epoch) as usize;
        let bans = &mut state.slots[slot].bans;
        *bans = (bans.0.min(meta.ban), bans.1.max(meta.ban));
        log
    }

    /// Takes an object to the buffer, which has room. Returns false if its body has ended early, so that it has no place.
    pub(crate) fn take(&mut self, queued: Queued, log: u64) -> bool {
        let layout = &self.store.layout;
        let len = queued.len as usize;
        let form = if matches!(queued.source, Source::Large(..)) { Form::Large } else { Form::Object };
        let out = &mut self.buffer.bytes_mut()[self.filled..self.filled + len];
        let with_meta = |parts| Parts { meta: queued.meta, ..parts };
        let encoded = match &queued.source {
            Source::Content(content) => {
                let parts = with_meta(content.parts());
                encode(layout, log, &parts, out, &mut |from, window| content.read(from, window))
            }
            Source::Large(content, places) => {
                encode_large(layout, log, &with_meta(content.parts()), places, out);
                Some(())
            }
            // These are taken to the buffer in other ways.
            Source::Part(_) | Source::Streamed(..) => None,
            Source::Moved { header, bytes } => {
                bump(&self.store.health.stats.moved);
                relocate(layout, header, bytes, log, out)
            }
        };
        if encoded.is_none() {
            // The object has no place after all. It has replaced older ones, which must not be found again.
            let mut state = self.store.state.lock();
            state.flying.retain(|flying| flying.log != log);
            state.offset -= queued.len;
            state.record_purge(fingerprint(&queued.meta.key), log + 1, None);
            drop(state);
            self.store.has_records.notify_one();
            return false;
        }
        self.filled += len;
        let (meta, offset) = (queued.meta, log % layout.segment);
        let record = Summarized {
            form,
            key: meta.key,
            offset,
            len: queued.len,
            variant: meta.variant,
            expires: meta.expires,
        };
        self.summary.add(record, meta.ban);
        self.tags.add(layout, &queued.tags);
        bump(&self.store.health.stats.written);
        add(&self.store.health.stats.written_bytes, queued.len);
        if let Source::Content(content) | Source::Large(content, _) = queued.source {
            let mut state = self.store.state.lock();
            if let Some(flying) = state.flying.last_mut().filter(|flying| flying.log == log) {
                flying.content = Some(content);
            }
        }
        true
    }

    /// Takes a part to the buffer, which has room. Returns its log position, or `None` if the body has ended early.
    pub(crate) fn put_part(
        &mut self,
        mut state: MutexGuard<'_, State>,
        record: &PartRecord,
        read: &mut dyn FnMut(u64, &mut [u8]) -> usize,
    ) -> Option<u64> {
        let (layout, PartRecord { meta, body, len }) = (self.store.layout, *record);
        let log = state.next_log(&layout);
        state.offset += len;
        drop(state);
        let out = &mut self.buffer.bytes_mut()[self.filled..self.filled + len as usize];
        if encode_part(&layout, log, meta, body, out, read).is_none() {
            self.store.state.lock().offset -= len;
            return None;
        }
        self.filled += len as usize;
        let offset = log % layout.segment;
        let (key, variant, expires) = (meta.key, meta.variant, meta.expires);
        self.summary.add(Summarized { form: Form::Part, key, offset, len, variant, expires }, meta.ban);
        add(&self.store.health.stats.written_bytes, len);
        Some(log)
    }

    /// Takes a part of a body that is still fetched to the buffer, which has room.
    pub(crate) fn take_part(&mut self, state: MutexGuard<'_, State>, len: u64, part: QueuedPart) {
        let layout = self.store.layout;
        let pin = Arc::clone(&state.slots[layout.slot(state.epoch) as usize].pin);
        let record = PartRecord { meta: part.meta(), body: part.len, len };
        if let Some(log) = self.put_part(state, &record, &mut |at, window| part.read(at, window)) {
            self.parts.push(PartInBatch { part, log, pin });
        }
    }

    /// Writes the buffer, and adds its objects to the index.
    pub(crate) fn write_batch(&mut self) -> io::Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let whole = self.filled.next_multiple_of(BLOCK as usize);
        self.buffer.bytes_mut()[self.filled..whole].fill(0);
        let epoch = store.state.lock().epoch;
        let at = store.layout.segment_at(store.layout.slot(epoch)) + self.start;
        self.write(at, whole)?;
        self.start += whole as u64;
        self.filled = 0;
        let mut state = store.state.lock();
        state.offset = self.start;
        if state.queue.bytes() <= store.queue_limit() / 2 {
            store.health.is_crowded.store(false, Ordering::Relaxed);
        }
        let written = std::mem::take(&mut state.flying);
        for &Flying { entry, log, is_purged, .. } in &written {
            if !is_purged && state.phase == Phase::Working {
                let is_older = |old: &Entry| state.log_of(&store.layout, old).is_none_or(|old| old < log);
                store.index.insert(entry, is_older);
            }
        }
        drop(state);
        drop(written);
        for PartInBatch { part, log, pin } in std::mem::take(&mut self.parts) {
            part.written(log, pin);
        }
        Ok(())
    }

    fn write(&mut self, at: u64, len: usize) -> io::Result<()> {
        self.is_dirty = true;
        add(&self.store.health.stats.device_written_bytes, len as u64);
        self.store.blocks.write(at, &self.buffer.bytes()[..len])
    }

    /// Makes the empty buffer as large as a record of `len` bytes needs.
    pub(crate) fn fit_buffer(&mut self, len: u64) {
        let needs = (len as usize).max(BATCH);
        if needs.next_multiple_of(BLOCK as usize) != self.buffer.bytes().len() {
            self.buffer = Aligned::new(needs);
        }
    }

    /// Ends the segment: its records become durable, then its summary.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        self.write_batch()?;
        let store = Arc::clone(&self.store);
        let epoch = store.state.lock().epoch;
        let is_open = self.start > 0;
        if is_open {
            store.blocks.sync()?;
            let summary = std::mem::replace(&mut self.summary, Summary::new());
            let summary = Summary { tags: self.tags.take(), ..summary };
            write_summary(&store, epoch, &summary, Extent::Whole)?;
            self.is_dirty = true;
        }
        let mut state = store.state.lock();
        state.offset = store.layout.segment;
        self.start = 0;
        Ok(())
    }
}

impl Drop for Appender {
    /// Drops what is not written, and what waits to be written. The bodies of such objects may refer to the store, which
    /// would otherwise never end.
    fn drop(&mut self) {
        self.clear();
        self.store.drop_waiting();
    }
}

/// Writes the summary of a segment. Its records must be durable.
pub(crate) fn write_summary(store: &Store, epoch: u64, summary: &Summary, extent: Extent) -> io::Result<()> {
    let layout = &store.layout;
    let bytes = segment::encode(layout, epoch, summary, extent);
    let len = bytes.bytes().len() as u64;
    add(&store.health.stats.device_written_bytes, len);
    store.blocks.write(layout.segment_at(layout.slot(epoch)) + layout.segment - len, bytes.bytes())
}
