//! Reads the index of a store at start: the summaries of its segments, the newest first, so that an object is found
//! before the older ones that it replaced. Objects are served as they become known.

use std::io;

use crate::index::Entry;
use crate::record::fingerprint;
use crate::segment::{self, InUse, Summary};
use crate::state::Phase;
use crate::stats::bump;
use crate::store::Store;
use crate::writer::write_summary;

impl Store {
    /// Reads the index. Must be called once; lookups, purges and bans are allowed meanwhile, and objects wait to be
    /// written.
    pub fn recover(&self) {
        if self.try_recover().is_err() {
            self.fail(Vec::new());
        }
        self.has_objects.notify_all();
        self.has_records.notify_all();
    }

    fn try_recover(&self) -> io::Result<()> {
        let layout = self.layout;
        let tail = self.state.lock().live.tail;
        let InUse { epochs, newest, .. } = InUse::read(&layout, &*self.blocks, tail);
        {
            let mut state = self.state.lock();
            for &epoch in &epochs {
                state.slots[layout.slot(epoch) as usize].epoch = epoch;
            }
        }
        for epoch in epochs {
            // The tail may have moved meanwhile.
            let tail = self.state.lock().live.tail;
            if segment::is_in_use(&layout, epoch, tail)
                && let Ok(summary) = self.contents(epoch)
            {
                self.index_segment(epoch, &summary);
            }
        }
        let mut state = self.state.lock();
        state.epoch = newest;
        state.offset = layout.segment;
        state.start = (newest + 1) * layout.segment;
        state.phase = Phase::Working;
        let start = state.start;
        for bound in state.live.purges.values_mut() {
            *bound = start.min(*bound);
        }
        state.pending.wants_checkpoint = true;
        Ok(())
    }

    /// Returns the summary of a segment. If it has none, reads its records and writes one.
    fn contents(&self, epoch: u64) -> io::Result<Summary> {
        let layout = &self.layout;
        let slot = layout.slot(epoch);
        if let Some(summary) = segment::read_summary(layout, &*self.blocks, slot, epoch)? {
            return Ok(summary);
        }
        let summary = segment::scan(layout, &*self.blocks, slot, epoch)?;
        self.blocks.sync()?;
        write_summary(self, epoch, &summary)?;
        Ok(summary)
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
                if state.live.is_purged(fingerprint, log) {
                    continue;
                }
                let place = layout.segment_at(slot) + record.offset;
                let entry = Entry::new(fingerprint, place, record.len, record.variant, record.expires);
                let is_older = |old: &Entry| state.log_of(layout, old).is_none_or(|old| old < log);
                self.index.insert(entry, is_older);
                bump(&self.stats.recovered);
            }
        }
    }
}
