//! A large object that is being written: its body part by part, with other objects between them, and then its head.

use std::io;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::layout::Layout;
use crate::record::{Form, Meta, encode_part, fingerprint, large_record_len, part_len, part_record_len};
use crate::segment::Summarized;
use crate::state::{Queued, Source, State};
use crate::stats::add;
use crate::stream::QueuedPart;
use crate::writer::{Room, Step, Writer};

/// A large object that is being written.
pub(crate) struct LargeWrite {
    pub(crate) queued: Queued,
    /// The log positions of the parts that were written.
    pub(crate) places: Vec<u64>,
    /// Whether all parts are durable.
    pub(crate) is_durable: bool,
    /// The number of bytes of parts that are written before the next other object.
    pub(crate) turn: u64,
}

impl LargeWrite {
    pub(crate) fn new(queued: Queued) -> Self {
        Self { queued, places: Vec::new(), is_durable: false, turn: 0 }
    }

    /// Returns the log positions of the parts, which must be durable. `None` if they were not all written.
    fn take_places(&mut self) -> Option<Vec<u64>> {
        match &self.queued.source {
            Source::Streamed(content, stream) => stream.places(content.parts().body_len),
            _ => Some(std::mem::take(&mut self.places)),
        }
    }

    /// Returns whether the parts were passed to the writer before.
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.queued.source, Source::Streamed(..))
    }

    /// Records that `len` bytes of another object were written: it is the turn of as many bytes of parts.
    pub(crate) fn let_go_first(&mut self, len: u64) {
        self.turn += len;
    }

    /// Copies bytes of the body from an offset on. Returns their number.
    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        match &self.queued.source {
            Source::Content(content) => content.read(from, window),
            _ => 0,
        }
    }

    /// Returns the length of the body.
    pub(crate) fn body(&self) -> u64 {
        match &self.queued.source {
            Source::Content(content) | Source::Streamed(content, _) => content.parts().body_len,
            _ => 0,
        }
    }

    /// Returns the length of the record with the head.
    pub(crate) fn head_len(&self, layout: &Layout) -> u64 {
        match &self.queued.source {
            Source::Content(content) | Source::Streamed(content, _) => {
                large_record_len(layout, &content.parts())
            }
            _ => 0,
        }
    }
}

/// A part of a body that is in the buffer, at a log position whose segment has the pin.
pub(crate) struct PartInBatch {
    pub(crate) part: QueuedPart,
    pub(crate) log: u64,
    pub(crate) pin: Arc<()>,
}

/// The record of a part.
#[derive(Clone, Copy)]
struct PartRecord {
    meta: Meta,
    /// The number of bytes of the body in it, and the length of the record.
    body: u64,
    len: u64,
}

impl Writer {
    /// Returns whether the next record is a part of the large object, or its head.
    pub(crate) fn is_turn_of_part(&self, state: &State) -> bool {
        let Some(large) = &self.large else { return false };
        match state.queue.first() {
            None => true,
            Some(Queued { source: Source::Moved { .. }, .. }) => false,
            Some(next) => large.turn > 0 || next.is_large(&self.store.layout),
        }
    }

    /// Takes the next part of the large object, or its head, to the buffer, or writes the buffer.
    pub(crate) fn step_large(&mut self, mut state: MutexGuard<'_, State>) -> io::Result<Step> {
        let layout = self.store.layout;
        let Some(large) = &self.large else { return Ok(Step::More) };
        let is_of_use = state.queue.has_large()
            && !state.was_purged_by_tag(&layout, &large.queued)
            && large.places.first().is_none_or(|&log| state.has_epoch(&layout, log));
        if !is_of_use {
            self.give_up_large(state);
            return Ok(Step::More);
        }
        let (whole, part) = (large.body(), part_len(&layout));
        let from = large.places.len() as u64 * part;
        if large.is_streamed() || from >= whole {
            return self.step_head(state);
        }
        let body = part.min(whole - from);
        let record = PartRecord { meta: large.queued.meta, body, len: part_record_len(body) };
        match self.room(&state, record.len) {
            Room::Here => {}
            room => {
                drop(state);
                return self.make_room(room, record.len);
            }
        }
        let Some(mut large) = self.large.take() else { return Ok(Step::More) };
        let log = self.put_part(state, &record, &mut |at, window| large.read(from + at, window));
        if let Some(log) = log {
            large.places.push(log);
            large.turn = large.turn.saturating_sub(record.len);
            self.large = Some(large);
        } else {
            self.large = Some(large);
            let store = self.store.clone();
            self.give_up_large(store.state.lock());
        }
        Ok(Step::More)
    }

    /// Takes a part of a body that is still fetched to the buffer, or writes the buffer.
    pub(crate) fn step_part(
        &mut self,
        mut state: MutexGuard<'_, State>,
        len: u64,
        part: QueuedPart,
    ) -> io::Result<Step> {
        if part.stream.is_stopped() {
            drop(state);
            return Ok(Step::More);
        }
        let room = if self.is_raised { self.room(&state, len) } else { Room::Here };
        if !self.is_raised || !matches!(room, Room::Here) {
            state.queue.push_front(Queued::part(part));
            drop(state);
            if !std::mem::replace(&mut self.is_raised, true) {
                self.store.raise_for_large_objects()?;
            }
            return self.make_room(room, len);
        }
        let layout = self.store.layout;
        let pin = Arc::clone(&state.slots[layout.slot(state.epoch) as usize].pin);
        let record = PartRecord { meta: part.stream.meta, body: part.len, len };
        if let Some(log) = self.put_part(state, &record, &mut |at, window| part.read(at, window)) {
            self.parts.push(PartInBatch { part, log, pin });
            if let Some(large) = &mut self.large {
                large.let_go_first(len);
            }
        }
        Ok(Step::More)
    }

    /// Takes a part to the buffer, which has room. Returns its log position, or `None` if the body has ended early.
    fn put_part(
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

    /// Makes the parts durable, and then takes the head to the buffer.
    fn step_head(&mut self, mut state: MutexGuard<'_, State>) -> io::Result<Step> {
        let layout = self.store.layout;
        let Some(large) = &mut self.large else { return Ok(Step::More) };
        if !large.is_durable {
            large.is_durable = true;
            drop(state);
            self.write_batch()?;
            self.store.blocks.sync()?;
            self.is_dirty = false;
            return Ok(Step::More);
        }
        let len = large.head_len(&layout);
        match self.room(&state, len) {
            Room::Here => {}
            room => {
                drop(state);
                return self.make_room(room, len);
            }
        }
        let Some(places) = self.large.as_mut().and_then(LargeWrite::take_places) else {
            self.give_up_large(state);
            return Ok(Step::More);
        };
        if places.iter().any(|&log| !state.has_epoch(&layout, log)) {
            self.give_up_large(state);
            return Ok(Step::More);
        }
        state.queue.end_large();
        self.moves.end();
        let Some(LargeWrite { queued, .. }) = self.large.take() else { return Ok(Step::More) };
        let source = match queued.source {
            Source::Content(content) | Source::Streamed(content, _) => Source::Large(content, places),
            other => other,
        };
        let queued = Queued { len, source, ..queued };
        let log = self.register(&mut state, &queued);
        drop(state);
        self.take(queued, log);
        Ok(Step::More)
    }

    /// Ends the writing of a large object that is not stored. It has replaced older ones, which must not be found again.
    fn give_up_large(&mut self, mut state: MutexGuard<'_, State>) {
        let given_up = self.large.take();
        self.give_up_move();
        if let Some(large) = &given_up
            && state.queue.end_large()
        {
            let bound = state.next_log(&self.store.layout);
            state.record_purge(fingerprint(&large.queued.meta.key), bound, None);
        }
        drop(state);
        self.store.has_records.notify_one();
    }
}
