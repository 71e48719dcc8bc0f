//! The state of a store's log: segments, objects that wait to be written, and records for the journal. One lock
//! protects it; it is held for short computations only, never during a read or write.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::index::{Entry, Index};
use crate::journal::{Ban, Live, put_ban, put_purge};
use crate::layout::Layout;
use crate::record::{Header, Meta, Parts, fingerprint};

/// An object to be written.
pub trait Content: Send + Sync {
    fn parts(&self) -> Parts<'_>;

    /// Copies bytes of the body from an offset on to the beginning of the window. Returns their number, at least one
    /// unless the body has ended.
    fn read(&self, from: u64, window: &mut [u8]) -> usize;
}

/// Something that is dropped when a purge or ban is durable.
pub type Hold = Box<dyn Send>;

pub(crate) enum Source {
    Content(Box<dyn Content>),
    /// A record from a segment that is reused.
    Moved {
        header: Header,
        bytes: Vec<u8>,
    },
}

pub(crate) struct Queued {
    pub(crate) meta: Meta,
    pub(crate) len: u64,
    pub(crate) source: Source,
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queued({} bytes)", self.len)
    }
}

/// A record that has a log position and is not in the index yet, because it is being written.
#[derive(Debug)]
pub(crate) struct Flying {
    pub(crate) entry: Entry,
    pub(crate) log: u64,
    pub(crate) ban: u32,
    pub(crate) is_purged: bool,
}

/// A segment.
#[derive(Debug)]
pub(crate) struct Slot {
    /// 0 if no object in it is in use.
    pub(crate) epoch: u64,
    pub(crate) bans: (u32, u32),
    /// Each reader of an object in the segment has a clone.
    pub(crate) pin: Arc<()>,
}

impl Default for Slot {
    fn default() -> Self {
        Self { epoch: 0, bans: (u32::MAX, 0), pin: Arc::new(()) }
    }
}

/// The phase that a store is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The index is being read.
    Recovering,
    Working,
    /// The device has failed, and is not used any more.
    Failed,
}

/// Records for the journal.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) records: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) holds: Vec<Hold>,
    pub(crate) wants_checkpoint: bool,
}

impl Pending {
    /// Adds older records.
    pub(crate) fn put_back(&mut self, older: Self) {
        let newer = std::mem::replace(self, older);
        self.records.extend_from_slice(&newer.records);
        self.count += newer.count;
        self.holds.extend(newer.holds);
        self.wants_checkpoint |= newer.wants_checkpoint;
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({} records)", self.count)
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) queued_bytes: u64,
    pub(crate) flying: Vec<Flying>,
    pub(crate) slots: Box<[Slot]>,
    /// The segment that is being written, and the offset of its free part.
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
    /// The objects of a segment leave the index, and would be found again if the process ended now.
    pub(crate) is_emptying: bool,
    /// The log position of the first record of this process.
    pub(crate) start: u64,
    pub(crate) live: Live,
    pub(crate) pending: Pending,
    /// Records are being written.
    pub(crate) is_journaling: bool,
}

impl State {
    pub(crate) fn new(layout: &Layout, live: Live) -> Self {
        Self {
            phase: Phase::Recovering,
            queue: VecDeque::new(),
            queued_bytes: 0,
            flying: Vec::new(),
            slots: (0..layout.segments).map(|_| Slot::default()).collect(),
            epoch: 0,
            offset: layout.segment,
            is_emptying: false,
            start: u64::MAX,
            live,
            pending: Pending::default(),
            is_journaling: false,
        }
    }

    /// Returns the log position of the next record. Existing records are before it.
    pub(crate) fn next_log(&self, layout: &Layout) -> u64 {
        match self.phase {
            Phase::Recovering => u64::MAX,
            _ => self.epoch * layout.segment + self.offset,
        }
    }

    /// Returns the log position of an object in the index.
    pub(crate) fn log_of(&self, layout: &Layout, entry: &Entry) -> Option<u64> {
        let slot = layout.slot_of(entry.place())?;
        let epoch = self.slots[slot as usize].epoch;
        (epoch > 0).then(|| epoch * layout.segment + (entry.place() - layout.segment_at(slot)))
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let next = self.queue.pop_front()?;
        self.queued_bytes -= next.len;
        Some(next)
    }

    pub(crate) fn push_front(&mut self, queued: Queued) {
        self.queued_bytes += queued.len;
        self.queue.push_front(queued);
    }

    pub(crate) fn push_back(&mut self, queued: Queued) {
        self.queued_bytes += queued.len;
        self.queue.push_back(queued);
    }

    /// Removes all objects with a fingerprint for which `is_meant` returns true for the variant. Returns whether there
    /// were any, or may be in the part of the store that is not known yet.
    pub(crate) fn drop_objects(
        &mut self,
        index: &Index,
        fingerprint_: u64,
        is_meant: &dyn Fn(u32) -> bool,
    ) -> bool {
        let mut found = self.phase == Phase::Recovering || self.is_emptying;
        let Self { queue, queued_bytes, flying, .. } = self;
        queue.retain(|queued| {
            let goes = fingerprint(&queued.meta.key) == fingerprint_ && is_meant(queued.meta.variant);
            if goes {
                *queued_bytes -= queued.len;
                found = true;
            }
            !goes
        });
        for record in flying.iter_mut().filter(|record| record.entry.fingerprint == fingerprint_) {
            if is_meant(record.entry.variant) && !record.is_purged {
                record.is_purged = true;
                found = true;
            }
        }
        index.remove_if(fingerprint_, |entry| is_meant(entry.variant)) > 0 || found
    }

    /// Records that the objects with a fingerprint are purged whose log positions are below `bound`.
    pub(crate) fn record_purge(&mut self, fingerprint: u64, bound: u64, hold: Option<Hold>) {
        self.live.purge(fingerprint, bound);
        put_purge(&mut self.pending.records, fingerprint, bound);
        self.pending.count += 1;
        self.pending.holds.extend(hold);
    }

    pub(crate) fn record_ban(&mut self, ban: Ban, hold: Option<Hold>) {
        put_ban(&mut self.pending.records, &ban);
        self.live.ban(ban);
        self.pending.count += 1;
        self.pending.holds.extend(hold);
    }

    /// Returns the oldest of the bans that the objects were last tested against. `u32::MAX` if there are no objects.
    pub(crate) fn oldest_ban(&self) -> u32 {
        if self.phase == Phase::Recovering {
            return 0;
        }
        let slots = self.slots.iter().filter(|slot| slot.epoch > 0).map(|slot| slot.bans.0);
        let queued = self.queue.iter().map(|queued| queued.meta.ban);
        let flying = self.flying.iter().map(|flying| flying.ban);
        slots.chain(queued).chain(flying).min().unwrap_or(u32::MAX)
    }
}
