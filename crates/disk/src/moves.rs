//! Large objects that are written again, because they were hit since they were written and the segment of their first part
//! is needed.
//!
//! The object stays where it is until it was written again: its segments are not reused meanwhile, and it is found there.
//! At most one half of what is written is spent for that, with small objects, so that a store full of large objects that
//! are hit does not write them all the time: a segment that is reused adds to the credit, and an object takes its length.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::large_write::LargeWrite;
use crate::layout::Layout;
use crate::read::{Loaded, StoredBody};
use crate::record::{Key, Meta, Parts, record_len, stored_body};
use crate::state::{Content, Queued, Source, State};
use crate::stats::bump;
use crate::store::{Candidate, Store};

/// The part of what is written that may be written again: one half.
pub(crate) const KEPT_DIVISOR: u64 = 2;

/// The number of objects that wait to be written again. More are dropped, because the head of each is in memory.
const MOST_WAITING: usize = 16;

/// The large objects that are written again.
#[derive(Default)]
pub(crate) struct Moves {
    /// The number of bytes that may be written again.
    pub(crate) credit: u64,
    waiting: VecDeque<Move>,
    current: Option<Moving>,
    /// Objects that were written again. The cache still refers to their old places.
    finished: Vec<Key>,
    /// The segments that were not reused because of these objects.
    retained: Vec<u64>,
}

/// A large object that will be written again.
struct Move {
    moving: Moving,
    content: MovedContent,
}

/// The old place of a large object.
struct Moving {
    candidate: Candidate,
    key: Key,
    epochs: BTreeSet<u64>,
}

/// A large object that is read from its old place.
struct MovedContent {
    meta: Meta,
    loaded: Loaded,
    body: StoredBody,
}

impl Content for MovedContent {
    fn parts(&self) -> Parts<'_> {
        let fields = self.loaded.fields();
        Parts {
            meta: self.meta,
            descriptor: fields.descriptor,
            head: fields.head,
            extra: fields.extra,
            body_len: self.loaded.body_len(),
        }
    }

    fn read(&self, from: u64, window: &mut [u8]) -> usize {
        self.body.read(from, window).unwrap_or(0)
    }
}

impl Moves {
    fn all(&self) -> impl Iterator<Item = &Moving> {
        self.waiting.iter().map(|waiting| &waiting.moving).chain(&self.current)
    }

    /// Returns whether an object with this key is moved.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.all().any(|moving| moving.key == *key)
    }

    /// Returns whether the head of an object that is moved is at a place.
    pub(crate) fn has_head_at(&self, place: u64) -> bool {
        self.all().any(|moving| moving.candidate.entry.place() == place)
    }

    /// Returns whether an object that is moved has parts in the segment of an epoch.
    pub(crate) fn needs(&self, epoch: u64) -> bool {
        self.all().any(|moving| moving.epochs.contains(&epoch))
    }

    /// Returns the oldest epoch with a part of an object that is moved.
    pub(crate) fn oldest_epoch(&self) -> Option<u64> {
        self.all().filter_map(|moving| moving.epochs.first().copied()).min()
    }

    pub(crate) fn retain(&mut self, slot: u64) {
        if !self.retained.contains(&slot) {
            self.retained.push(slot);
        }
    }

    /// Gives up all moves, when the store is closed or fails.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.current = None;
    }

    /// Records the end of the current move.
    pub(crate) fn end(&mut self) -> Option<Candidate> {
        let Moving { candidate, key, .. } = self.current.take()?;
        self.finished.push(key);
        Some(candidate)
    }

    /// Decides whether an object with a part in the segment of an epoch is written again, and prepares that. Returns whether
    /// it is.
    pub(crate) fn begin(&mut self, store: &Arc<Store>, key: &Key, epoch: u64) -> bool {
        let is_used = store.owner().is_some_and(|owner| owner.is_used(key));
        let now = store.now();
        let found = store.candidates(key, now).into_iter().find_map(|candidate| {
            if !is_used && !candidate.entry.is_hit() {
                return None;
            }
            let loaded = store.load(&candidate, key)?;
            loaded.epochs().filter(|epochs| epochs.contains(&epoch)).map(|epochs| (candidate, loaded, epochs))
        });
        let Some((candidate, loaded, epochs)) = found else { return false };
        let cost = stored_body(loaded.body_len());
        if cost > self.credit || self.waiting.len() >= MOST_WAITING {
            return false;
        }
        self.credit -= cost;
        let meta = Meta {
            key: *key,
            variant: loaded.variant(),
            expires: candidate.entry.expires,
            ban: loaded.ban(),
        };
        let moving = Moving { candidate, key: *key, epochs };
        let content = MovedContent { meta, body: loaded.body(), loaded };
        self.waiting.push_back(Move { moving, content });
        true
    }

    /// Adds the credit of a segment that is reused, of which `kept` bytes are written again.
    pub(crate) fn add_credit(&mut self, layout: &Layout, kept: u64) {
        let more = (layout.segment / KEPT_DIVISOR).saturating_sub(kept);
        self.credit = (self.credit + more).min(layout.largest_body());
    }

    /// Returns whether an object waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Begins to write the next object again. Returns `None` if it is not in the store any more.
    pub(crate) fn start(&mut self, store: &Store, state: &mut State) -> Option<LargeWrite> {
        let Move { moving, content } = self.waiting.pop_front()?;
        let entry = &moving.candidate.entry;
        let tags = content.loaded.tags();
        let is_alive = store.index.at(entry.fingerprint, entry.place()).is_some()
            && (tags.is_empty() || !state.live.is_purged_by_tag(tags, moving.candidate.log));
        if !is_alive {
            return None;
        }
        let queued = Queued {
            meta: content.meta,
            tags: tags.into(),
            tag_purges: state.known_tags.purges(),
            len: record_len(&content.parts()),
            source: Source::Content(Box::new(content)),
        };
        state.queue.begin_large(&queued);
        self.current = Some(moving);
        bump(&store.health.stats.moved);
        Some(LargeWrite::new(queued))
    }

    /// Removes the object from its old place, if it could not be written again.
    pub(crate) fn give_up(&mut self, store: &Store) {
        if let Some(candidate) = self.end() {
            let entry = candidate.entry;
            if store.index.remove(entry.fingerprint, entry.place()) {
                bump(&store.health.stats.evicted);
            }
        }
    }

    /// Returns whether an object is being written again, or waits for that.
    pub(crate) fn has_any(&self) -> bool {
        self.all().next().is_some()
    }

    /// Gives up all moves. The objects leave the store.
    pub(crate) fn give_up_all(&mut self, store: &Store) {
        self.give_up(store);
        while let Some(Move { moving, .. }) = self.waiting.pop_front() {
            self.current = Some(moving);
            self.give_up(store);
        }
    }

    /// Lets the segments go that no object needs any more which is written again. The index contains the new places.
    pub(crate) fn release(&mut self, store: &Store) {
        let layout = &store.layout;
        if let Some(owner) = store.owner() {
            self.finished.drain(..).for_each(|key| owner.forget(&key));
        }
        self.finished.clear();
        let retained = std::mem::take(&mut self.retained);
        let mut state = store.state.lock();
        for slot in retained {
            let found = &mut state.slots[slot as usize];
            if self.needs(found.epoch) {
                self.retained.push(slot);
                continue;
            }
            // It may have been begun again.
            if found.epoch + layout.segments <= state.epoch {
                state.slots[slot as usize].epoch = 0;
            }
        }
    }
}
