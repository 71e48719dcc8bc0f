//! Writes objects to segments, many at a time, and reuses the oldest segment when the store is full. One thread does
//! this.

use std::io;
use std::sync::Arc;

use crate::blocks::{Aligned, BLOCK};
use crate::health::Reason;
use crate::index::Entry;
use crate::large_write::{LargeWrite, PartInBatch};
use crate::moves::Moves;
use crate::record::{Form, encode, encode_large, fingerprint, relocate};
use crate::segment::{self, FIRST, Summarized, Summary};
use crate::state::{Flying, Phase, Queued, Source, State};
use crate::stats::{add, bump};
use crate::store::Store;

/// The number of bytes that are written at a time. Longer records are written alone.
pub(crate) const BATCH: usize = 1 << 20;
/// The part of a segment's objects that may be written again when it is reused: one half.
pub(crate) const KEPT_DIVISOR: u64 = 2;

/// Writes the objects of a store.
pub struct Writer {
    pub(crate) store: Arc<Store>,
    pub(crate) buffer: Aligned,
    /// The number of bytes in the buffer.
    pub(crate) filled: usize,
    /// The offset in the segment at which the buffer is written.
    start: u64,
    pub(crate) summary: Summary,
    /// Whether there are writes that may be lost.
    pub(crate) is_dirty: bool,
    /// The large object of which parts are being written.
    pub(crate) large: Option<LargeWrite>,
    /// The parts in the buffer of bodies that are still fetched.
    pub(crate) parts: Vec<PartInBatch>,
    /// Whether the store has the version that large objects need.
    pub(crate) is_raised: bool,
    pub(crate) moves: Moves,
}

/// The result of [`Writer::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There may be more to do.
    More,
    /// No object waits.
    Idle,
}

/// The place of the next record.
#[derive(Clone, Copy)]
pub(crate) enum Room {
    Here,
    /// In the next batch.
    NextBatch,
    NextSegment,
}

impl Writer {
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            buffer: Aligned::new(BATCH),
            filled: 0,
            start: 0,
            summary: Summary::new(),
            is_dirty: false,
            large: None,
            parts: Vec::new(),
            is_raised: false,
            moves: Moves::default(),
        }
    }

    /// Takes the next object to the buffer, or writes the buffer. Failures take the store out of use.
    pub fn step(&mut self) -> Step {
        self.try_step().unwrap_or_else(|_| {
            self.store.fail(Vec::new(), Reason::Write);
            Step::Idle
        })
    }

    /// Writes the buffer, and makes everything durable.
    pub fn flush(&mut self) {
        if !self.store.works() {
            return self.give_up();
        }
        let flushed = self.write_batch().and_then(|()| {
            if std::mem::take(&mut self.is_dirty) { self.store.blocks.sync() } else { Ok(()) }
        });
        if flushed.is_err() {
            self.store.fail(Vec::new(), Reason::Write);
        }
    }

    /// Drops what is not written: the device is out of use.
    fn give_up(&mut self) {
        (self.filled, self.is_dirty, self.large) = (0, false, None);
        self.parts.clear();
        self.moves.clear();
        let flying = std::mem::take(&mut self.store.state.lock().flying);
        drop(flying);
    }

    /// Returns whether something would be lost.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty || self.filled > 0
    }

    fn try_step(&mut self) -> io::Result<Step> {
        let store = Arc::clone(&self.store);
        let mut state = store.state.lock();
        if state.phase != Phase::Working {
            drop(state);
            self.large = None;
            self.parts.clear();
            self.moves.clear();
            return Ok(Step::Idle);
        }
        if self.is_turn_of_part(&state) {
            return self.step_large(state);
        }
        if self.large.is_none() && self.start_move(&mut state) {
            drop(state);
            store.raise_for_large_objects()?;
            return Ok(Step::More);
        }
        let Some(queued) = state.queue.pop() else {
            drop(state);
            if self.parts.is_empty() {
                return Ok(Step::Idle);
            }
            // A fetch may wait for its parts.
            self.write_batch()?;
            return Ok(Step::More);
        };
        let queued = match queued {
            Queued { len, source: Source::Part(part), .. } => return self.step_part(state, len, part),
            object => object,
        };
        if state.was_purged_by_tag(&store.layout, &queued) {
            drop(state);
            store.has_records.notify_one();
            return Ok(Step::More);
        }
        if queued.is_large(&store.layout) {
            state.queue.begin_large(&queued);
            drop(state);
            self.large = Some(LargeWrite::new(queued));
            store.raise_for_large_objects()?;
            return Ok(Step::More);
        }
        match self.room(&state, queued.len) {
            Room::Here => {
                let log = self.register(&mut state, &queued);
                drop(state);
                self.take(queued, log);
                Ok(Step::More)
            }
            room => {
                let len = queued.len;
                state.queue.push_front(queued);
                drop(state);
                self.make_room(room, len)
            }
        }
    }

    /// Continues in the next batch or segment, for a record of `len` bytes.
    pub(crate) fn make_room(&mut self, room: Room, len: u64) -> io::Result<Step> {
        match room {
            Room::Here => {}
            Room::NextBatch => {
                self.write_batch()?;
                self.fit_buffer(len);
            }
            Room::NextSegment => {
                self.seal()?;
                if !self.open_next(len)? {
                    return Ok(Step::Idle);
                }
            }
        }
        Ok(Step::More)
    }

    pub(crate) fn room(&self, state: &State, len: u64) -> Room {
        let limit = segment::limit(&self.store.layout, self.summary.records.len() + 1);
        if state.epoch == 0 || state.offset + len > limit {
            Room::NextSegment
        } else if self.filled as u64 + len > self.buffer.bytes().len() as u64 {
            Room::NextBatch
        } else {
            Room::Here
        }
    }

    /// Gives an object its place.
    pub(crate) fn register(&mut self, state: &mut State, queued: &Queued) -> u64 {
        let layout = &self.store.layout;
        let log = state.epoch * layout.segment + state.offset;
        let meta = queued.meta;
        let entry = queued.entry(layout.place(log));
        state.flying.push(Flying { entry, log, ban: meta.ban, is_purged: false, content: None });
        state.offset += queued.len;
        let slot = layout.slot(state.epoch) as usize;
        let bans = &mut state.slots[slot].bans;
        *bans = (bans.0.min(meta.ban), bans.1.max(meta.ban));
        log
    }

    pub(crate) fn take(&mut self, queued: Queued, log: u64) {
        let layout = &self.store.layout;
        let len = queued.len as usize;
        let form = if matches!(queued.source, Source::Large(..)) { Form::Large } else { Form::Object };
        let out = &mut self.buffer.bytes_mut()[self.filled..self.filled + len];
        let encoded = match &queued.source {
            Source::Content(content) => {
                encode(layout, log, &content.parts(), out, &mut |from, window| content.read(from, window))
            }
            Source::Large(content, places) => {
                encode_large(layout, log, &content.parts(), places, out);
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
            return;
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
        bump(&self.store.health.stats.written);
        add(&self.store.health.stats.written_bytes, queued.len);
        if let Some(large) = &mut self.large {
            large.let_go_first(queued.len);
        }
        if let Source::Content(content) | Source::Large(content, _) = queued.source {
            let mut state = self.store.state.lock();
            if let Some(flying) = state.flying.last_mut().filter(|flying| flying.log == log) {
                flying.content = Some(content);
            }
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
    fn fit_buffer(&mut self, len: u64) {
        let needs = (len as usize).max(BATCH);
        if needs.next_multiple_of(BLOCK as usize) != self.buffer.bytes().len() {
            self.buffer = Aligned::new(needs);
        }
    }

    /// Ends the segment: its records become durable, then its summary.
    fn seal(&mut self) -> io::Result<()> {
        self.write_batch()?;
        let store = Arc::clone(&self.store);
        let epoch = store.state.lock().epoch;
        let is_open = self.start > 0;
        if is_open {
            store.blocks.sync()?;
            let summary = std::mem::replace(&mut self.summary, Summary::new());
            write_summary(&store, epoch, &summary)?;
            self.is_dirty = true;
        }
        let mut state = store.state.lock();
        state.offset = store.layout.segment;
        self.start = 0;
        Ok(())
    }

    /// Ends the segment before the store is closed, so that the next start need not read its records.
    pub fn close(&mut self) {
        // The objects that wait to be moved would delay the end.
        self.moves.clear();
        while self.step() == Step::More {}
        if self.store.phase() == Phase::Working && self.seal().is_err() {
            self.store.fail(Vec::new(), Reason::Write);
        }
        self.flush();
    }

    /// Begins the next segment, for a record of `next` bytes. Its old objects leave the store, except for those that are in
    /// use. Returns false if responses are being sent from all segments.
    fn open_next(&mut self, next: u64) -> io::Result<bool> {
        let store = Arc::clone(&self.store);
        let layout = &store.layout;
        self.release_moved();
        for _ in 0..layout.segments {
            let (epoch, old) = {
                let mut state = store.state.lock();
                state.is_emptying = true;
                let epoch = state.epoch + 1;
                (epoch, state.slots[layout.slot(epoch) as usize].epoch)
            };
            let slot = layout.slot(epoch);
            if old > 0 {
                self.empty(slot, old, next);
            } else {
                self.add_credit(0);
            }
            let is_needed = old > 0 && self.moves.needs(old);
            let held = self.moves.oldest_epoch().map_or(u64::MAX, |oldest| oldest * layout.segment);
            let mut state = store.state.lock();
            state.epoch = epoch;
            state.offset = layout.segment;
            let oldest = (epoch + 1).saturating_sub(layout.segments) * layout.segment;
            state.live.tail = state.live.tail.max(oldest.min(held));
            if is_needed {
                self.moves.retain(slot);
                continue;
            }
            let found = &mut state.slots[slot as usize];
            found.epoch = 0;
            found.bans = (u32::MAX, 0);
            if Arc::strong_count(&found.pin) > 1 {
                bump(&store.health.stats.pinned);
                continue;
            }
            drop(state);
            let begun = store.now();
            let header = segment::header(layout, epoch, begun);
            store.blocks.write(layout.segment_at(slot), header.bytes())?;
            store.blocks.sync()?;
            let mut state = store.state.lock();
            let found = &mut state.slots[slot as usize];
            (found.epoch, found.begun) = (epoch, begun);
            state.offset = FIRST;
            state.is_emptying = false;
            self.start = FIRST;
            return Ok(true);
        }
        Ok(false)
    }
}

/// Writes the summary of a segment. Its records must be durable.
pub(crate) fn write_summary(store: &Store, epoch: u64, summary: &Summary) -> io::Result<()> {
    let layout = &store.layout;
    let bytes = segment::encode(layout, epoch, summary);
    let len = bytes.bytes().len() as u64;
    add(&store.health.stats.device_written_bytes, len);
    store.blocks.write(layout.segment_at(layout.slot(epoch)) + layout.segment - len, bytes.bytes())
}
