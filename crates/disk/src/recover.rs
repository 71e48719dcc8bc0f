//! Reads the index of a store at start: the summaries of its segments, the newest first, so that an object is found
//! before the older ones that it replaced. Objects are served as they become known.

use std::io;

use crate::append::write_summary;
use crate::health::{Event, Reason};
use crate::index::Entry;
use crate::journal::Live;
use crate::record::{Form, fingerprint};
use crate::segment::{self, Begun, InUse, Summary};
use crate::state::Phase;
use crate::stats::bump;
use crate::store::Store;

impl Store {
    /// Reads the index. Must be called once; lookups, purges and bans are allowed meanwhile, and objects wait to be
    /// written.
    pub fn recover(&self) {
        if self.try_recover().is_err() {
            let reason = if self.health.has_failed() { Reason::Reads } else { Reason::Write };
            self.fail(Vec::new(), reason);
        }
        self.check_health();
        self.has_objects.notify_all();
        self.has_records.notify_all();
    }

    fn try_recover(&self) -> io::Result<()> {
        let layout = self.layout;
        let tail = self.state.lock().live.tail;
        let InUse { epochs, newest, unreadable, outdated } = InUse::read(&layout, &*self.blocks, tail);
        for (slot, error) in unreadable {
            self.wipe(slot, error)?;
        }
        for slot in outdated {
            segment::wipe(&layout, &*self.blocks, slot)?;
        }
        {
            let mut state = self.state.lock();
            for &Begun { epoch, at } in &epochs {
                let slot = &mut state.slots[layout.slot(epoch) as usize];
                (slot.epoch, slot.begun) = (epoch, at);
            }
        }
        for Begun { epoch, .. } in epochs {
            // The tail may have moved meanwhile.
            let tail = self.state.lock().live.tail;
            if !segment::is_in_use(&layout, epoch, tail) {
                continue;
            }
            match self.contents(epoch)? {
                Ok(summary) => self.index_segment(epoch, &summary),
                Err(error) => {
                    let slot = layout.slot(epoch);
                    self.wipe(slot, error)?;
                    self.state.lock().slots[slot as usize].epoch = 0;
                }
            }
        }
        let mut state = self.state.lock();
        state.epoch = newest;
        state.offset = layout.segment;
        state.start = (newest + 1) * layout.segment;
        state.phase = Phase::Working;
        let start = state.start;
        let Live { purges, tags, .. } = &mut state.live;
        for bound in purges.values_mut().chain(tags.values_mut().map(|purge| &mut purge.bound)) {
            *bound = start.min(*bound);
        }
        state.pending.wants_checkpoint = true;
        Ok(())
    }

    /// Overwrites a segment that cannot be read. Purges do not concern its objects, which the index does not contain, so
    /// no later start may find them. Fails with the error of the read if the device has failed altogether.
    fn wipe(&self, slot: u64, error: io::Error) -> io::Result<()> {
        if self.health.has_failed() {
            return Err(error);
        }
        self.note_lost(slot, error.to_string());
        segment::wipe(&self.layout, &*self.blocks, slot)
    }

    /// Counts and reports a segment that cannot be read: its objects are misses.
    pub(crate) fn note_lost(&self, slot: u64, reason: String) {
        bump(&self.health.stats.lost);
        self.health.report(Event::Lost { at: self.layout.segment_at(slot), reason });
    }

    /// Returns the summary of a segment, or why it cannot be read. If it has none, reads its records and writes one.
    fn contents(&self, epoch: u64) -> io::Result<io::Result<Summary>> {
        let layout = &self.layout;
        let slot = layout.slot(epoch);
        match segment::read_summary(layout, &*self.blocks, slot, epoch) {
            Ok(Some(summary)) => return Ok(Ok(summary)),
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        let summary = match segment::scan(layout, &*self.blocks, slot, epoch) {
            Ok(summary) => summary,
            Err(error) => return Ok(Err(error)),
        };
        self.blocks.sync()?;
        write_summary(self, epoch, &summary)?;
        Ok(Ok(summary))
    }

    fn index_segment(&self, epoch: u64, summary: &Summary) {
        let layout = &self.layout;
        let slot = layout.slot(epoch);
        let bans = (self.tested_ban(summary.bans.0, true), self.tested_ban(summary.bans.1, true));
        // Later records replace earlier ones.
        for group in summary.records.chunks(256) {
            let mut state = self.state.lock();
            state.slots[slot as usize].bans = bans;
            for record in group {
                let fingerprint = fingerprint(&record.key);
                let log = epoch * layout.segment + record.offset;
                if record.form == Form::Part || state.live.is_purged(fingerprint, log) {
                    continue;
                }
                let place = layout.segment_at(slot) + record.offset;
                let entry = Entry::new(fingerprint, place, record.len, record.variant, record.expires);
                let is_older = |old: &Entry| state.log_of(layout, old).is_none_or(|old| old < log);
                self.index.insert(entry, is_older);
                bump(&self.health.stats.recovered);
            }
        }
    }
}
