//! The state of a store's log: segments, objects that wait to be written, and records for the journal. One lock
//! protects it; it is held for short computations only, never during a read or write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use crate::index::{Entry, Index, variants_of_same_names};
use crate::journal::{Ban, Live, TagPurge, put_ban, put_purge, put_tag_purge};
use crate::known_tags::KnownTags;
use crate::layout::Layout;
use crate::record::{Header, Meta, Parts, fingerprint, part_record_len};
use crate::stream::{QueuedPart, StreamedParts};

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
    /// A large object, and the log positions of its parts.
    Large(Box<dyn Content>, Vec<u64>),
    /// A large object whose parts were passed to the writer before.
    Streamed(Box<dyn Content>, Arc<StreamedParts>),
    /// A part of a large object that is not complete yet.
    Part(QueuedPart),
    /// A record from a segment that is reused.
    Moved {
        header: Header,
        bytes: Vec<u8>,
    },
}

pub(crate) struct Queued {
    pub(crate) meta: Meta,
    /// The hashes of its tags.
    pub(crate) tags: Box<[u64]>,
    /// The number of purges by tags that it was tested against.
    pub(crate) tag_purges: u64,
    pub(crate) len: u64,
    pub(crate) source: Source,
}

impl Queued {
    /// Returns a part of a large object that is not complete yet.
    pub(crate) fn part(part: QueuedPart) -> Self {
        let (meta, len) = (part.meta(), part_record_len(part.len));
        Self { meta, tags: Box::default(), tag_purges: 0, len, source: Source::Part(part) }
    }

    /// Returns whether it is an object. Otherwise, it is a part of one that is not complete yet.
    fn is_object(&self) -> bool {
        !matches!(self.source, Source::Part(_))
    }

    /// Returns whether it is written as a large object: its head after all parts.
    pub(crate) fn is_large(&self, layout: &Layout) -> bool {
        self.len > layout.largest_record() || matches!(self.source, Source::Streamed(..))
    }

    /// Returns the entry for the object at a place on the device.
    pub(crate) fn entry(&self, place: u64) -> Entry {
        let Meta { key, variant, expires, .. } = self.meta;
        Entry::new(fingerprint(&key), place, self.len, variant, expires)
    }
}

/// A large object of which parts are being written. Like one that waits, it can be purged or replaced.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Its place is not known yet.
    entry: Entry,
    ban: u32,
    tags: Box<[u64]>,
    /// The number of purges by tags that it was tested against.
    tag_purges: u64,
}

impl Unfinished {
    fn of(queued: &Queued) -> Self {
        Self {
            entry: queued.entry(0),
            ban: queued.meta.ban,
            tags: queued.tags.clone(),
            tag_purges: queued.tag_purges,
        }
    }
}

/// Objects that left the queue. They are dropped with no lock held.
#[derive(Default)]
#[must_use = "objects are dropped with no lock held"]
pub struct Dropped(pub(crate) Vec<Queued>);

impl Dropped {
    /// Returns the fingerprints of the keys of these objects.
    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter(|queued| queued.is_object()).map(|queued| fingerprint(&queued.meta.key))
    }
}

impl fmt::Debug for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dropped({} objects)", self.0.len())
    }
}

impl fmt::Debug for Queued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queued({} bytes)", self.len)
    }
}

/// A record that has a log position and is not in the index yet, because it is being written.
pub(crate) struct Flying {
    pub(crate) entry: Entry,
    pub(crate) log: u64,
    pub(crate) ban: u32,
    pub(crate) is_purged: bool,
    /// The object, which stays in memory until the index contains it.
    pub(crate) content: Option<Box<dyn Content>>,
}

impl fmt::Debug for Flying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flying({:?} at {})", self.entry, self.log)
    }
}

/// A segment.
#[derive(Debug)]
pub(crate) struct Slot {
    /// 0 if no object in it is in use.
    pub(crate) epoch: u64,
    /// The time at which it was begun. 0 if that is not known.
    pub(crate) begun: f64,
    /// The oldest and the newest of the bans that its objects were last tested against, as long as a start may find them:
    /// until the next header is durable.
    pub(crate) bans: (u32, u32),
    /// Each reader of an object in the segment has a clone.
    pub(crate) pin: Arc<()>,
}

impl Slot {
    /// Returns whether the body of an object in the segment is in use, or belongs to an object in memory.
    pub(crate) fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.pin) > 1
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self { epoch: 0, begun: 0.0, bans: (u32::MAX, 0), pin: Arc::new(()) }
    }
}

/// The phase that a store is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The index is being read.
    Recovering,
    Working,
    /// The device has failed. Its contents are being made invalid for the next start; purges and bans wait for that.
    Failing,
    /// The device has failed, and is not used any more.
    Failed,
    /// Another process uses the device, and records purges and bans.
    Retired,
}

impl Phase {
    /// Returns whether the device is not used any more, or will not be soon.
    pub fn is_out(self) -> bool {
        matches!(self, Self::Failing | Self::Failed | Self::Retired)
    }
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

pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) queue: Queue,
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
    pub(crate) known_tags: KnownTags,
    pub(crate) pending: Pending,
    /// The holds of the records that are being written. `None` if none are.
    pub(crate) journaling: Option<Vec<Hold>>,
}

/// The number of bytes of a large object that count in the queue. The rest is written part by part.
const COUNTED: u64 = 32 << 20;

/// Returns the number of bytes that count in the queue, of an object whose records have `len` bytes.
pub(crate) fn counted(len: u64) -> u64 {
    len.min(COUNTED)
}

/// The objects of a key that a removal is for.
#[derive(Clone, Copy)]
pub(crate) enum Meant {
    All,
    /// Those that a request may match which matches this variant.
    Rivals(u32),
}

impl Meant {
    fn includes(self, entry: &Entry) -> bool {
        match self {
            Self::All => true,
            Self::Rivals(variant) => entry.rivals(variant),
        }
    }
}

/// The number of the first object of an empty queue. Lower ones follow it when objects are put before it.
const MIDDLE: u64 = 1 << 63;

/// The objects that wait to be written, by ascending numbers. Thousands of them may be variants of one key. Operations on a
/// key look only at the objects that they remove.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    objects: BTreeMap<u64, Queued>,
    bytes: u64,
    /// The fingerprint, variant and number of each object.
    known: BTreeSet<(u64, u32, u64)>,
    unfinished: Option<Unfinished>,
}

impl Queue {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.unfinished.is_none()
    }

    pub(crate) fn first(&self) -> Option<&Queued> {
        self.objects.first_key_value().map(|(_, queued)| queued)
    }

    /// Returns the numbers of the objects with a fingerprint.
    fn all(&self, fingerprint: u64) -> impl Iterator<Item = u64> {
        self.known.range((fingerprint, 0, 0)..=(fingerprint, u32::MAX, u64::MAX)).map(|known| known.2)
    }

    /// Returns the numbers of the objects with a fingerprint that a request may match which matches a variant.
    fn rivals(&self, fingerprint: u64, variant: u32) -> impl Iterator<Item = u64> {
        let at = |variant, number| (fingerprint, variant, number);
        let (first, last) = variants_of_same_names(variant).into_inner();
        let before = self.known.range(at(0, 0)..at(first, 0));
        let same = self.known.range(at(variant, 0)..=at(variant, u64::MAX));
        let after = (Excluded(at(last, u64::MAX)), Included(at(u32::MAX, u64::MAX)));
        before.chain(same).chain(self.known.range(after)).map(|known| known.2)
    }

    fn has(&self, fingerprint: u64) -> bool {
        let is_unfinished = |it: &Unfinished| it.entry.fingerprint == fingerprint;
        self.all(fingerprint).next().is_some() || self.unfinished.as_ref().is_some_and(is_unfinished)
    }

    /// Returns whether an object waits that has replaced those with a fingerprint and variant.
    pub(crate) fn has_rival(&self, fingerprint: u64, variant: u32) -> bool {
        self.rivals(fingerprint, variant).next().is_some()
    }

    /// Records that parts of a large object are being written, until [`end_large`](Self::end_large).
    pub(crate) fn begin_large(&mut self, queued: &Queued) {
        self.unfinished = Some(Unfinished::of(queued));
    }

    /// Ends the writing of a large object. Returns false if it was purged or replaced meanwhile.
    pub(crate) fn end_large(&mut self) -> bool {
        self.unfinished.take().is_some()
    }

    /// Returns whether the large object that is being written is still of use.
    pub(crate) fn has_large(&self) -> bool {
        self.unfinished.is_some()
    }

    fn bans(&self) -> impl Iterator<Item = u32> {
        let unfinished = self.unfinished.iter().map(|unfinished| unfinished.ban);
        let objects = self.objects.values().filter(|queued| queued.is_object());
        objects.map(|queued| queued.meta.ban).chain(unfinished)
    }

    /// Returns the least number of purges by tags that an object with tags was tested against.
    fn oldest_tag_purges(&self) -> Option<u64> {
        self.tags().filter(|(tags, _)| !tags.is_empty()).map(|(_, number)| number).min()
    }

    /// Returns the tags of each object, with the number of purges that it was tested against.
    fn tags(&self) -> impl Iterator<Item = (&[u64], u64)> {
        let objects = self.objects.values().map(|queued| (&*queued.tags, queued.tag_purges));
        objects.chain(self.unfinished.iter().map(|unfinished| (&*unfinished.tags, unfinished.tag_purges)))
    }

    fn add(&mut self, number: u64, queued: Queued) {
        if queued.is_object() {
            self.bytes += counted(queued.len);
            self.known.insert((fingerprint(&queued.meta.key), queued.meta.variant, number));
        }
        self.objects.insert(number, queued);
    }

    fn forget(&mut self, number: u64, queued: &Queued) {
        if queued.is_object() {
            self.bytes -= counted(queued.len);
            self.known.remove(&(fingerprint(&queued.meta.key), queued.meta.variant, number));
        }
    }

    fn remove(&mut self, number: u64) -> Option<Queued> {
        let queued = self.objects.remove(&number)?;
        self.forget(number, &queued);
        Some(queued)
    }

    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let (number, next) = self.objects.pop_first()?;
        self.forget(number, &next);
        Some(next)
    }

    pub(crate) fn push_front(&mut self, queued: Queued) {
        let number = self.objects.first_key_value().map_or(MIDDLE, |(first, _)| first - 1);
        self.add(number, queued);
    }

    pub(crate) fn push_back(&mut self, queued: Queued) {
        let number = self.objects.last_key_value().map_or(MIDDLE, |(last, _)| last + 1);
        self.add(number, queued);
    }

    /// Removes the queued objects that may occupy segments: large ones that are still fetched, with their parts.
    pub(crate) fn take_streamed(&mut self) -> Dropped {
        let is_streamed = |it: &Queued| matches!(it.source, Source::Part(_) | Source::Streamed(..));
        let found = self.objects.iter().filter(|(_, queued)| is_streamed(queued));
        let numbers: Vec<u64> = found.map(|(&number, _)| number).collect();
        Dropped(numbers.into_iter().filter_map(|number| self.remove(number)).collect())
    }

    /// Removes the objects with a fingerprint that are meant.
    pub(crate) fn take(&mut self, fingerprint: u64, meant: Meant) -> Vec<Queued> {
        self.unfinished.take_if(|it| it.entry.fingerprint == fingerprint && meant.includes(&it.entry));
        let numbers: Vec<u64> = match meant {
            Meant::All => self.all(fingerprint).collect(),
            Meant::Rivals(variant) => self.rivals(fingerprint, variant).collect(),
        };
        numbers.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    pub(crate) fn clear(&mut self) -> Dropped {
        Dropped(std::mem::take(self).objects.into_values().collect())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({:?}, epoch {}, {:?})", self.phase, self.epoch, self.pending)
    }
}

impl State {
    pub(crate) fn new(layout: &Layout, live: Live) -> Self {
        Self {
            phase: Phase::Recovering,
            queue: Queue::default(),
            flying: Vec::new(),
            slots: (0..layout.segments).map(|_| Slot::default()).collect(),
            epoch: 0,
            offset: layout.segment,
            is_emptying: false,
            start: u64::MAX,
            live: Live { durable_ban: live.last_ban, ..live },
            known_tags: KnownTags::new(layout),
            pending: Pending::default(),
            journaling: None,
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

    /// Returns whether a log position is in a segment that is in use.
    pub(crate) fn has_epoch(&self, layout: &Layout, log: u64) -> bool {
        let epoch = log / layout.segment;
        epoch > 0 && self.slots[layout.slot(epoch) as usize].epoch == epoch
    }

    /// Returns whether there are objects with a fingerprint, or may be in the part of the store that is not known yet.
    pub(crate) fn may_have(&self, index: &Index, fingerprint: u64) -> bool {
        self.phase == Phase::Recovering
            || self.is_emptying
            || self.queue.has(fingerprint)
            || self.flying.iter().any(|record| record.entry.fingerprint == fingerprint && !record.is_purged)
            || index.has(fingerprint)
    }

    /// Removes the objects with a fingerprint that are meant. Returns those that waited to be written.
    pub(crate) fn drop_objects(&mut self, index: &Index, fingerprint: u64, meant: Meant) -> Dropped {
        let dropped = self.queue.take(fingerprint, meant);
        for record in self.flying.iter_mut().filter(|record| record.entry.fingerprint == fingerprint) {
            record.is_purged |= meant.includes(&record.entry);
        }
        index.remove_if(fingerprint, |entry| meant.includes(entry));
        Dropped(dropped)
    }

    /// Records that the objects with a fingerprint are purged whose log positions are below `bound`.
    pub(crate) fn record_purge(&mut self, fingerprint: u64, bound: u64, hold: Option<Hold>) {
        self.live.purge(fingerprint, bound);
        put_purge(&mut self.pending.records, fingerprint, bound);
        self.pending.count += 1;
        self.pending.holds.extend(hold);
    }

    /// Records that the objects with a tag are purged: those with a log position below `bound`, and those that wait for
    /// one.
    pub(crate) fn record_tag_purge(&mut self, tag: u64, bound: u64) {
        let number = self.known_tags.count_purge();
        self.live.purge_tag(tag, TagPurge { bound, number });
        put_tag_purge(&mut self.pending.records, tag, bound);
        self.pending.count += 1;
    }

    /// Returns whether an object that waited to be written was purged meanwhile by one of its tags. Records then that
    /// the older objects, which it has replaced, are not found again.
    pub(crate) fn was_purged_by_tag(&mut self, layout: &Layout, queued: &Queued) -> bool {
        let is_purged = self.live.is_purged_by_tag_since(&queued.tags, queued.tag_purges);
        if is_purged {
            let bound = self.next_log(layout);
            self.record_purge(fingerprint(&queued.meta.key), bound, None);
        }
        is_purged
    }

    /// Forgets the tags that no object has any more. Must be called when the header of the newest segment is durable, and no
    /// start can find the objects that were in its place.
    pub(crate) fn sweep_tags(&mut self) {
        let epochs = self.slots.iter().map(|slot| slot.epoch).filter(|&epoch| epoch > 0);
        let oldest = epochs.min().unwrap_or(self.epoch);
        self.queue.tags().for_each(|(tags, _)| self.known_tags.add(tags, self.epoch));
        self.known_tags.sweep(oldest);
    }

    /// Drops records that concern no object any more.
    pub(crate) fn trim(&mut self) {
        let oldest_number = self.queue.oldest_tag_purges().unwrap_or(u64::MAX);
        let oldest_ban = self.oldest_ban();
        self.live.trim(oldest_ban, oldest_number);
        if self.phase == Phase::Working {
            self.live.tags.retain(|&tag, _| self.known_tags.may_have(tag));
        }
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
        let slots = self.slots.iter().map(|slot| slot.bans.0);
        let queued = self.queue.bans();
        let flying = self.flying.iter().map(|flying| flying.ban);
        slots.chain(queued).chain(flying).min().unwrap_or(u32::MAX)
    }
}
