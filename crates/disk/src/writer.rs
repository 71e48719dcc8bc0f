//! Writes objects to segments, many at a time, and reuses the oldest segment when the store is full. One thread does
//! this.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::append::{Appender, PartRecord, Room};
use crate::health::Reason;
use crate::large_write::LargeWrite;
use crate::moves::Moves;
use crate::reclaim::{Emptying, empty, let_go};
use crate::record::{fingerprint, part_len, part_record_len};
use crate::segment::{self, FIRST};
use crate::state::{Phase, Queued, Slot, Source, State};
use crate::stats::bump;
use crate::store::Store;
use crate::stream::QueuedPart;

/// Writes the objects of a store.
pub struct Writer {
    store: Arc<Store>,
    log: Appender,
    /// The large object of which parts are being written.
    large: Option<LargeWrite>,
    /// Whether the store has the version that large objects need.
    is_raised: bool,
    pub(crate) moves: Moves,
    /// The epochs of the segments that were left because responses are being sent from them.
    left: BTreeSet<u64>,
    /// The time since which no segment could be begun.
    blocked_since: Option<f64>,
    /// The search for a segment when all are in use.
    look: Look,
}

/// The time in seconds after which large objects that wait are given up: they may occupy the segments that they need.
const LONGEST_BLOCKED: f64 = 30.0;
/// The time in seconds between attempts to find a segment that no response uses when all are in use.
const NEXT_LOOK: f64 = 1.0;
/// The number of segments that such an attempt looks at, each of which is read from.
const LOOKED_AT: u64 = 64;

/// The search for a segment that no response uses.
#[derive(Default)]
struct Look {
    /// The end of the last attempt that found none.
    failed_at: Option<f64>,
    /// The number of segments that were looked at in vain, from the oldest on.
    passed: u64,
}

/// The result of [`Writer::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There may be more to do.
    More,
    /// No object waits.
    Idle,
    /// There is no segment to write to, for now, or the device is not in use.
    NoRoom,
}

impl Writer {
    pub fn new(store: Arc<Store>) -> Self {
        let log = Appender::new(Arc::clone(&store));
        Self {
            store,
            log,
            large: None,
            is_raised: false,
            moves: Moves::default(),
            left: BTreeSet::new(),
            blocked_since: None,
            look: Look::default(),
        }
    }

    /// Takes the next object to the buffer, or writes the buffer. Failures take the store out of use.
    pub fn step(&mut self) -> Step {
        self.try_step().unwrap_or_else(|_| {
            self.store.fail(Vec::new(), Reason::Write);
            Step::NoRoom
        })
    }

    /// Writes the buffer, and makes everything durable.
    pub fn flush(&mut self) {
        if !self.store.works() {
            // The device is out of use, so the data that is not written yet is dropped.
            self.large = None;
            self.moves.clear();
            return self.log.clear();
        }
        if self.log.flush().is_err() {
            self.store.fail(Vec::new(), Reason::Write);
        }
    }

    /// Returns whether something would be lost.
    pub fn is_dirty(&self) -> bool {
        self.log.is_dirty()
    }

    fn try_step(&mut self) -> io::Result<Step> {
        let store = Arc::clone(&self.store);
        let mut state = store.state.lock();
        if state.phase != Phase::Working {
            drop(state);
            self.large = None;
            self.log.drop_parts();
            self.moves.clear();
            return Ok(Step::NoRoom);
        }
        if self.is_turn_of_part(&state) {
            return self.step_large(state);
        }
        if self.large.is_none() && self.moves.is_waiting() {
            self.large = self.moves.start(&store, &mut state);
            drop(state);
            store.raise_for_large_objects()?;
            return Ok(Step::More);
        }
        let Some(queued) = state.queue.pop() else {
            drop(state);
            if !self.log.has_parts() {
                return Ok(Step::Idle);
            }
            // A fetch may wait for its parts.
            self.log.write_batch()?;
            return Ok(Step::More);
        };
        let mut queued = match queued {
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
        match self.log.room(&state, queued.len, queued.tags.len()) {
            Room::Here => {
                let log = self.log.register(&mut state, &mut queued);
                drop(state);
                let len = queued.len;
                if self.log.take(queued, log)
                    && let Some(large) = &mut self.large
                {
                    large.let_go_first(len);
                }
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

    /// Returns whether the next record is a part of the large object, or its head.
    fn is_turn_of_part(&self, state: &State) -> bool {
        let Some(large) = &self.large else { return false };
        match state.queue.first() {
            None => true,
            Some(Queued { source: Source::Moved { .. }, .. }) => false,
            Some(next) => large.turn > 0 || next.is_large(&self.store.layout),
        }
    }

    /// Takes the next part of the large object, or its head, to the buffer, or writes the buffer.
    fn step_large(&mut self, mut state: MutexGuard<'_, State>) -> io::Result<Step> {
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
        match self.log.room(&state, record.len, 0) {
            Room::Here => {}
            room => {
                drop(state);
                return self.make_room(room, record.len);
            }
        }
        let Some(mut large) = self.large.take() else { return Ok(Step::More) };
        let log = self.log.put_part(state, &record, &mut |at, window| large.read(from + at, window));
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
    fn step_part(
        &mut self,
        mut state: MutexGuard<'_, State>,
        len: u64,
        part: QueuedPart,
    ) -> io::Result<Step> {
        if part.is_stopped() {
            drop(state);
            return Ok(Step::More);
        }
        let room = if self.is_raised { self.log.room(&state, len, 0) } else { Room::Here };
        if !self.is_raised || !matches!(room, Room::Here) {
            state.queue.push_front(Queued::part(part));
            drop(state);
            if !std::mem::replace(&mut self.is_raised, true) {
                self.store.raise_for_large_objects()?;
            }
            return self.make_room(room, len);
        }
        self.log.take_part(state, len, part);
        if let Some(large) = &mut self.large {
            large.let_go_first(len);
        }
        Ok(Step::More)
    }

    /// Makes the parts durable, and then takes the head to the buffer.
    fn step_head(&mut self, mut state: MutexGuard<'_, State>) -> io::Result<Step> {
        let layout = self.store.layout;
        let Some(large) = &mut self.large else { return Ok(Step::More) };
        if !large.is_durable {
            large.is_durable = true;
            drop(state);
            self.log.flush()?;
            return Ok(Step::More);
        }
        let (len, tags) = (large.head_len(&layout), large.queued.tags.len());
        match self.log.room(&state, len, tags) {
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
        let mut queued = Queued { len, source, ..queued };
        let log = self.log.register(&mut state, &mut queued);
        drop(state);
        self.log.take(queued, log);
        Ok(Step::More)
    }

    /// Ends the writing of a large object that is not stored. It has replaced older ones, which must not be found again.
    fn give_up_large(&mut self, mut state: MutexGuard<'_, State>) {
        let given_up = self.large.take();
        self.moves.give_up(&self.store);
        if let Some(large) = &given_up
            && state.queue.end_large()
        {
            let bound = state.next_log(&self.store.layout);
            state.record_purge(fingerprint(&large.queued.meta.key), bound, None);
        }
        drop(state);
        self.store.has_records.notify_one();
    }

    /// Continues in the next batch or segment, for a record of `len` bytes.
    fn make_room(&mut self, room: Room, len: u64) -> io::Result<Step> {
        match room {
            Room::Here => {}
            Room::NextBatch => {
                self.log.write_batch()?;
                self.log.fit_buffer(len);
            }
            Room::NextSegment => {
                self.log.seal()?;
                if !self.open_next(len)? {
                    let now = self.store.now();
                    if now - *self.blocked_since.get_or_insert(now) >= LONGEST_BLOCKED {
                        self.give_up_waiting();
                    }
                    return Ok(Step::NoRoom);
                }
                self.blocked_since = None;
            }
        }
        Ok(Step::More)
    }

    /// Gives up the large objects that are moved, or if there are none, those that wait for their ends: their parts may be
    /// in the very segments that they need.
    fn give_up_waiting(&mut self) {
        self.blocked_since = None;
        let store = Arc::clone(&self.store);
        let had_moves = self.moves.has_any();
        self.give_up_large(store.state.lock());
        if had_moves {
            return self.moves.give_up_all(&store);
        }
        let mut state = store.state.lock();
        let bound = state.next_log(&store.layout);
        let dropped = state.queue.take_streamed();
        for key in dropped.fingerprints() {
            // Older objects, which these replace, must not be found again.
            state.record_purge(key, bound, None);
            bump(&store.health.stats.refused);
        }
        drop(state);
        drop(dropped);
        store.has_records.notify_one();
    }

    /// Ends the segment before the store is closed, so that the next start need not read its records.
    pub fn close(&mut self) {
        // The objects that wait to be moved would delay the end.
        self.moves.clear();
        while self.step() == Step::More {}
        match self.store.phase() {
            Phase::Working => self.end_log(),
            Phase::Recovering => self.store.drop_waiting(),
            _ => {}
        }
        self.flush();
    }

    /// Drops what still waits, because there is no segment for it, and ends the segment.
    fn end_log(&mut self) {
        let store = Arc::clone(&self.store);
        self.give_up_large(store.state.lock());
        store.drop_waiting();
        if self.log.seal().is_err() {
            store.fail(Vec::new(), Reason::Write);
        }
    }

    /// Begins the next segment, for a record of `next` bytes. Its old objects leave the store, except for those that are in
    /// use. Returns false if responses are being sent from all segments.
    fn open_next(&mut self, next: u64) -> io::Result<bool> {
        let store = Arc::clone(&self.store);
        let layout = &store.layout;
        self.moves.release(&store);
        if !self.has_free_segment() {
            // The objects stay.
            return Ok(false);
        }
        let mut emptying = Emptying { next, kept: 0 };
        for _ in 0..layout.segments {
            let (epoch, slot, old) = {
                let mut state = store.state.lock();
                state.is_emptying = true;
                let epoch = state.epoch + 1;
                let slot = layout.slot(epoch);
                (epoch, slot, state.slots[slot as usize].epoch)
            };
            let is_left = self.leaves(slot, old, epoch);
            self.left.remove(&old);
            if is_left {
                self.left.insert(old);
            } else if old > 0 {
                empty(&store, &mut self.moves, slot, old, &mut emptying);
            } else {
                self.moves.add_credit(layout, 0);
            }
            let is_needed = old > 0 && self.moves.needs(old);
            let held = self.moves.oldest_epoch().into_iter().chain(self.left.first().copied()).min();
            let held = held.map_or(u64::MAX, |oldest| oldest * layout.segment);
            let mut state = store.state.lock();
            state.epoch = epoch;
            state.offset = layout.segment;
            state.live.tail = state.live.tail.max(layout.oldest_log(epoch).min(held));
            if is_needed {
                self.moves.retain(slot);
                continue;
            }
            if is_left {
                bump(&store.health.stats.pinned);
                continue;
            }
            let found = &mut state.slots[slot as usize];
            found.epoch = 0;
            if found.is_pinned() {
                bump(&store.health.stats.pinned);
                continue;
            }
            drop(state);
            return self.begin_segment(epoch);
        }
        Ok(false)
    }

    /// Returns whether not all segments are in use by responses. If objects in memory keep all of them, those that no response
    /// uses are dropped until a segment is free, in several attempts if there are many segments.
    fn has_free_segment(&mut self) -> bool {
        let now = self.store.now();
        let may_look = self.look.failed_at.is_none_or(|at| (now - at).abs() >= NEXT_LOOK);
        // Mostly, the oldest one is in use by nothing, or only by objects in memory.
        let has_found = (may_look && self.is_free(0))
            || !self.store.state.lock().slots.iter().all(Slot::is_pinned)
            || (may_look && self.finds_free());
        if has_found {
            self.look = Look::default();
        }
        has_found
    }

    /// Looks at the next segments. Returns whether one is free.
    fn finds_free(&mut self) -> bool {
        let (segments, first) = (self.store.layout.segments, self.look.passed);
        let count = segments.min(LOOKED_AT);
        let has_found = (0..count).any(|n| self.is_free((first + n) % segments));
        self.look = Look { failed_at: Some(self.store.now()), passed: (first + count) % segments };
        has_found
    }

    /// Returns whether a segment is free that is this far from the oldest one.
    fn is_free(&self, distance: u64) -> bool {
        let oldest = self.store.state.lock().epoch + 1;
        !self.is_sent_from(self.store.layout.slot(oldest + distance))
    }

    /// Returns whether a segment is left as it is, because responses are being sent from it. It is found until it is needed
    /// the next time. The tail of the log stays before it meanwhile, so that purges of its objects are remembered. The next
    /// start does not use it: its epoch is too old.
    fn leaves(&self, slot: u64, old: u64, epoch: u64) -> bool {
        let is_first_time = old > 0 && old + self.store.layout.segments == epoch;
        is_first_time && !self.moves.needs(old) && self.is_sent_from(slot)
    }

    /// Returns whether responses are being sent from a segment. Objects in memory that no response uses let it go.
    fn is_sent_from(&self, slot: u64) -> bool {
        let Some(epoch) = self.pinned_epoch(slot) else { return false };
        if epoch > 0 {
            let_go(&self.store, slot, epoch);
        }
        self.pinned_epoch(slot).is_some()
    }

    /// Returns the epoch of a segment that is in use by responses or objects in memory.
    fn pinned_epoch(&self, slot: u64) -> Option<u64> {
        let state = self.store.state.lock();
        let found = &state.slots[slot as usize];
        found.is_pinned().then_some(found.epoch)
    }

    /// Begins a segment that contains nothing. Returns false if the device has failed.
    fn begin_segment(&mut self, epoch: u64) -> io::Result<bool> {
        let store = Arc::clone(&self.store);
        let layout = &store.layout;
        let slot = layout.slot(epoch);
        if !store.allow_epoch(epoch) {
            return Ok(false);
        }
        let begun = store.now();
        let header = segment::header(layout, epoch, begun);
        store.blocks.write(layout.segment_at(slot), header.bytes())?;
        store.blocks.sync()?;
        let mut state = store.state.lock();
        let found = &mut state.slots[slot as usize];
        (found.epoch, found.begun) = (epoch, begun);
        // Until now, a start could have found the old objects.
        found.bans = (u32::MAX, 0);
        state.offset = FIRST;
        state.is_emptying = false;
        state.sweep_tags();
        self.log.begin_segment();
        Ok(true)
    }
}
