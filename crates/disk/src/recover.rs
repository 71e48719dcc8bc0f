//! Reads the index of a store at start: the summaries of its segments, the newest first, so that an object is found
//! before the older ones that it replaced. Objects are served as they become known.

use std::io;
use std::sync::atomic::Ordering;

use crate::ahead::in_order;
use crate::append::write_summary;
use crate::blocks::Blocks;
use crate::health::{Cause, Event, Reason};
use crate::index::{Entry, Placed, SHARDS, shard_of};
use crate::journal::Live;
use crate::layout::Layout;
use crate::record::{Form, fingerprint};
use crate::segment::{self, Beginning, Begun, Extent, InUse, Summary};
use crate::state::Phase;
use crate::stats::{add, bump};
use crate::store::{EPOCHS_AHEAD, Store};

/// The most segments whose objects enter the index together.
const MOST_TOGETHER: usize = 64;

/// The number of segments that are looked for before the others, with those that the journal allows in advance.
const SOON: u64 = 4 * EPOCHS_AHEAD;

impl Store {
    /// Reads the index. Must be called once; lookups, purges and bans are allowed meanwhile, and objects wait to be
    /// written.
    pub fn recover(&self) {
        self.recover_on(1);
    }

    /// As [`recover`](Self::recover), with several threads that read. Ends early, in the same phase, if the store is closed.
    pub(crate) fn recover_on(&self, threads: usize) {
        if self.try_recover(threads).is_err() && !self.is_ending() {
            let reason = if self.health.has_failed() { Reason::Reads } else { Reason::Write };
            self.fail(Vec::new(), reason);
        }
        self.check_health();
        self.has_objects.notify_all();
        self.has_records.notify_all();
    }

    fn try_recover(&self, threads: usize) -> io::Result<()> {
        let layout = self.layout;
        let mut known = Known::default();
        let soon = self.newest_segments(threads);
        self.read_segments(&mut known, &soon, threads)?;
        let Live { tail, limit, .. } = self.state.lock().live;
        let found = InUse::read(&layout, &UntilEnd(self), tail, threads);
        self.check_end()?;
        let lost_journal = self.lost_journal(&found);
        let InUse { mut epochs, newest, unreadable, outdated } = found;
        if let Some(at) = lost_journal {
            // Nothing was served yet, because a journal without a limit names no newest segments.
            self.health.note_cleared(Cause::JournalDamaged { at });
            self.state.lock().live.tail = (newest + 1) * layout.segment;
            epochs.clear();
        }
        if limit > 0 && epochs.first().is_some_and(|newest| newest.epoch > limit) {
            // The journal allowed this segment, and with that record others may be lost.
            self.fail(Vec::new(), Reason::Journal);
            return Ok(());
        }
        for (slot, error) in unreadable {
            self.wipe(slot, error)?;
        }
        for slot in outdated {
            self.forget_segment(slot);
        }
        epochs.retain(|begun| !soon.contains(begun));
        self.read_segments(&mut known, &epochs, threads)?;
        self.check_end()?;
        self.write_summaries(&known.without_summary)?;
        let mut state = self.state.lock();
        state.epoch = newest;
        state.offset = layout.segment;
        state.start = (newest + 1) * layout.segment;
        state.live.limit = newest + EPOCHS_AHEAD;
        state.phase = Phase::Working;
        self.health.is_known.store(true, Ordering::Relaxed);
        let start = state.start;
        // From now on, purges and bans are forgotten that concern only older segments. The next start must not find these in
        // use again, even if it can read segments that are unreadable now, or cannot read those that are newer.
        let Live { purges, tags, tail, .. } = &mut state.live;
        *tail = layout.oldest_log(newest).max(*tail);
        for bound in purges.values_mut().chain(tags.values_mut().map(|purge| &mut purge.bound)) {
            *bound = start.min(*bound);
        }
        state.pending.wants_checkpoint = true;
        Ok(())
    }

    /// Drops the objects that wait to be written, because the store is closed before its index was read, or while there is
    /// no segment for them. The next start does not find those that they have replaced.
    pub(crate) fn drop_waiting(&self) {
        let mut state = self.state.lock();
        if state.queue.is_empty() {
            return;
        }
        let (dropped, bound) = (state.queue.clear(), state.next_log(&self.layout));
        dropped.fingerprints().for_each(|fingerprint| state.record_purge(fingerprint, bound, None));
        drop(state);
        drop(dropped);
        self.has_records.notify_one();
    }

    /// Fails if the store is being closed.
    fn check_end(&self) -> io::Result<()> {
        if self.is_ending() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Returns the newest segments, the newest first, if the journal states which these are. A start then knows the objects
    /// that are requested most before it has read the headers of all segments.
    fn newest_segments(&self, threads: usize) -> Vec<Begun> {
        let layout = &self.layout;
        let Live { limit, tail, .. } = self.state.lock().live;
        let count = SOON.min(layout.segments / 2).min(limit);
        let epochs: Vec<u64> = (limit - count + 1..=limit).rev().collect();
        let mut found = Vec::new();
        let read = |&epoch: &u64| segment::read_header(layout, &UntilEnd(self), layout.slot(epoch));
        let is_certain = in_order(&epochs, threads, read, |&epoch, beginning| match beginning {
            Ok(Beginning::Unused) => Ok(()),
            Ok(Beginning::Begun(begun)) if begun.epoch == epoch => {
                found.extend(segment::is_in_use(layout, epoch, tail).then_some(begun));
                Ok(())
            }
            Ok(Beginning::Begun(begun)) if begun.epoch < epoch => Ok(()),
            // Nothing is certain if a header is damaged, or newer than the journal states.
            _ => Err(()),
        });
        if is_certain.is_ok() { found } else { Vec::new() }
    }

    /// Reads segments, and adds their objects to the index.
    fn read_segments(&self, known: &mut Known, segments: &[Begun], threads: usize) -> io::Result<()> {
        let layout = &self.layout;
        {
            let mut state = self.state.lock();
            for &Begun { epoch, at } in segments {
                let slot = &mut state.slots[layout.slot(epoch) as usize];
                (slot.epoch, slot.begun) = (epoch, at);
            }
        }
        let read = |begun: &Begun| {
            let (slot, epoch) = (layout.slot(begun.epoch), begun.epoch);
            segment::read_summary(layout, &UntilEnd(self), slot, epoch, Extent::Whole)
        };
        in_order(segments, threads, read, |&Begun { epoch, .. }, summary| {
            // The summary may be missing for that reason alone.
            self.check_end()?;
            self.take_segment(known, epoch, summary)?;
            if known.is_full() {
                known.pass_to(self);
            }
            Ok::<(), io::Error>(())
        })?;
        known.pass_to(self);
        Ok(())
    }

    /// Removes what is known of a segment.
    fn forget_segment(&self, slot: u64) {
        let mut state = self.state.lock();
        let found = &mut state.slots[slot as usize];
        if std::mem::take(&mut found.epoch) > 0 {
            self.sweep_segment(slot);
        }
    }

    /// Removes all objects of a segment from the index, without its summary.
    pub(crate) fn sweep_segment(&self, slot: u64) {
        self.index.sweep(|entry| self.layout.slot_of(entry.place()) == Some(slot));
    }

    /// Overwrites a segment that cannot be read. Purges do not concern its objects, which the index does not contain, so
    /// no later start may find them. Fails with the error of the read if the device has failed altogether.
    fn wipe(&self, slot: u64, error: io::Error) -> io::Result<()> {
        if self.health.has_failed() {
            return Err(error);
        }
        self.note_lost(slot, error.to_string());
        self.forget_segment(slot);
        segment::wipe(&self.layout, &*self.blocks, slot)
    }

    /// Counts and reports a segment that cannot be read: its objects are misses.
    pub(crate) fn note_lost(&self, slot: u64, reason: String) {
        bump(&self.health.stats.lost);
        self.health.report(Event::Lost { at: self.layout.segment_at(slot), reason });
    }

    /// Takes the objects of a segment: those of its summary, or if it has none, of its records. A segment that cannot be
    /// read is overwritten.
    fn take_segment(
        &self,
        known: &mut Known,
        epoch: u64,
        summary: io::Result<Option<Summary>>,
    ) -> io::Result<()> {
        let (layout, slot) = (&self.layout, self.layout.slot(epoch));
        // The tail may have moved meanwhile.
        let tail = self.state.lock().live.tail;
        if !segment::is_in_use(layout, epoch, tail) {
            return Ok(());
        }
        let scanned = || segment::scan(layout, &*self.blocks, slot, epoch, &|head| self.tags_of(head));
        let (is_new, contents) = match summary {
            Ok(Some(summary)) => (false, Ok(summary)),
            Ok(None) => (true, scanned()),
            Err(error) => (false, Err(error)),
        };
        match contents {
            Ok(mut summary) => {
                let bans = (self.tested_ban(summary.bans.0, true), self.tested_ban(summary.bans.1, true));
                if !summary.records.is_empty() {
                    summary.bans = bans;
                }
                {
                    let mut state = self.state.lock();
                    state.slots[slot as usize].bans = bans;
                    state.known_tags.add_segment(summary.tags.as_deref(), epoch);
                }
                known.add(layout, epoch, &summary);
                known.without_summary.extend(is_new.then_some((epoch, summary)));
            }
            Err(error) => self.wipe(slot, error)?,
        }
        Ok(())
    }

    /// Writes the summaries of segments that had none, so that the next start need not read their records. This comes
    /// last, because it waits for the device.
    fn write_summaries(&self, found: &[(u64, Summary)]) -> io::Result<()> {
        if !found.is_empty() {
            self.blocks.sync()?;
        }
        found.iter().try_for_each(|(epoch, summary)| write_summary(self, *epoch, summary, Extent::Whole))
    }
}

/// The device of a store whose index is read. Reads fail from the moment on when the store is closed.
struct UntilEnd<'a>(&'a Store);

impl Blocks for UntilEnd<'_> {
    fn size(&self) -> u64 {
        self.0.blocks.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.check_end()?;
        self.0.blocks.read(at, buffer)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.blocks.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.blocks.sync()
    }
}

/// The objects of some segments, which enter the index together: one shard after the other, because memory responds
/// faster to several accesses at a time.
struct Known {
    shards: [Vec<Placed>; SHARDS],
    segments: usize,
    /// The number of segments that are taken together. The first objects are soon known.
    limit: usize,
    /// The segments whose records were read, with their contents.
    without_summary: Vec<(u64, Summary)>,
}

impl Default for Known {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| Vec::new());
        Self { shards, segments: 0, limit: 1, without_summary: Vec::new() }
    }
}

impl Known {
    fn add(&mut self, layout: &Layout, epoch: u64, summary: &Summary) {
        for record in summary.records.iter().filter(|record| record.form != Form::Part) {
            let fingerprint = fingerprint(&record.key);
            let log = epoch * layout.segment + record.offset;
            let entry =
                Entry::new(fingerprint, layout.place(log), record.len, record.variant, record.expires);
            self.shards[shard_of(fingerprint)].push(Placed { entry, log });
        }
        self.segments += 1;
    }

    fn is_full(&self) -> bool {
        self.segments >= self.limit
    }

    /// Adds the objects to the index, but for those that were purged, or replaced by one that waits to be written. Newer
    /// objects replace older ones.
    fn pass_to(&mut self, store: &Store) {
        for shard in &mut self.shards {
            let state = store.state.lock();
            let is_replaced = |entry: &Entry| state.queue.has_rival(entry.fingerprint, entry.variant);
            shard.retain(|Placed { entry, log }| {
                !state.live.is_purged(entry.fingerprint, *log) && !is_replaced(entry)
            });
            let is_older = |old: &Entry, log| state.log_of(&store.layout, old).is_none_or(|old| old < log);
            store.index.insert_all(shard, is_older);
            add(&store.health.stats.recovered, shard.len() as u64);
            shard.clear();
        }
        self.segments = 0;
        self.limit = (self.limit * 2).min(MOST_TOGETHER);
    }
}
