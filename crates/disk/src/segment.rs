//! Segments: a header, records one after the other, and at the end a summary of the records, which start-up reads
//! instead of them.
//!
//! ```text
//! header   4 kB: u32 "LQsg" | u32 0 | u64 epoch | u64 checksum of the preceding bytes
//!          | f64 time at which the segment was begun | u64 checksum of the preceding bytes
//! records  each at a multiple of 64 bytes; after a write, at the next multiple of 4 kB
//! summary  24 bytes key | u32 offset and u32 length in units of 64 bytes | u32 variant | u32 expires, for each record;
//!          bit 31 of the length marks a part of a large object, bit 30 the record with its head
//! tags     before the summary: u32 of the hash of each tag that a record has
//! footer   last 4 kB: u32 "LQft" | u32 records | u64 epoch | u32 oldest and u32 newest ban tested
//!          | u64 checksum of the summary | u64 checksum of the preceding bytes
//!          | u32 "LQtg" | u32 tags | u64 checksum of the tags | u64 checksum of the preceding bytes (little endian)
//! ```
//!
//! The header is durable before the first record is written, and the records before the summary. While a segment is
//! written, the summary is that of the records so far, and the footer begins with "LQop". A segment without "LQft" was being
//! written: the records behind the last one of that summary, if there is one, are read one by one, up to the first that is
//! incomplete. Without "LQtg", the tags are not known: there was no room for the list, or an earlier program has written the
//! segment.

use std::convert::Infallible;
use std::io;

use crate::ahead::in_order;
use crate::blocks::{Aligned, BLOCK, Blocks, Gradual, Reader, read_around};
use crate::journal::Cursor;
use crate::known_tags::SegmentTags;
use crate::layout::{LAST_LOG, Layout, UNIT};
use crate::record::{FIXED, Form, Header, Key, Meta};

const HEADER: u32 = u32::from_le_bytes(*b"LQsg");
const FOOTER: u32 = u32::from_le_bytes(*b"LQft");
/// The footer of a segment that is being written, after the records so far.
const OPEN_FOOTER: u32 = u32::from_le_bytes(*b"LQop");
/// The offset of the first record.
pub(crate) const FIRST: u64 = BLOCK;
const TAGS: u32 = u32::from_le_bytes(*b"LQtg");
const SUMMARY_ENTRY: usize = 24 + 4 * 4;
/// The bits of a length in a summary that mark a part of a large object, and the record with its head.
const PART: u32 = 1 << 31;
const LARGE: u32 = 1 << 30;
/// The length of the end of a segment that is read first. It contains most summaries.
const TAIL_READ: u64 = 32 << 10;
/// The number of bytes that are overwritten at a time. The length of each segment is a multiple of it.
const WIPE: u64 = 256 << 10;

/// A record in a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summarized {
    pub form: Form,
    pub key: Key,
    /// The offset in the segment, in bytes.
    pub offset: u64,
    /// The length of the record, in bytes.
    pub len: u64,
    pub variant: u32,
    pub expires: u32,
}

/// Whether a summary contains all records of its segment, or those that were durable while it was being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    SoFar,
}

impl Extent {
    fn magic(self) -> u32 {
        match self {
            Self::Whole => FOOTER,
            Self::SoFar => OPEN_FOOTER,
        }
    }
}

/// The contents of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub records: Vec<Summarized>,
    /// The oldest and the newest of the bans that the records were last tested against. `u32::MAX` and 0 if there are
    /// no records.
    pub bans: (u32, u32),
    /// The parts of the hashes of all tags that the records have. `None` if they are not known.
    pub tags: Option<Vec<u32>>,
}

impl Summary {
    pub fn new() -> Self {
        Self { records: Vec::new(), bans: (u32::MAX, 0), tags: None }
    }

    pub(crate) fn add(&mut self, record: Summarized, ban: u32) {
        self.records.push(record);
        // Bans concern the head of a large object.
        if record.form != Form::Part {
            self.bans = (self.bans.0.min(ban), self.bans.1.max(ban));
        }
    }
}

/// Returns the offset at which records must end so that a summary of `count` records and a list of tags have room.
pub(crate) fn limit(layout: &Layout, count: usize, tags: usize) -> u64 {
    let len = (count * SUMMARY_ENTRY + tags * 4) as u64;
    layout.segment - BLOCK - len.next_multiple_of(BLOCK)
}

/// Returns the length of a summary of a number of records without tags, with the footer.
pub(crate) fn summary_len(count: usize) -> u64 {
    ((count * SUMMARY_ENTRY) as u64).next_multiple_of(BLOCK) + BLOCK
}

fn seed(layout: &Layout, epoch: u64) -> u64 {
    epoch.wrapping_mul(layout.segment)
}

/// Returns the first block of a segment.
pub(crate) fn header(layout: &Layout, epoch: u64, begun: f64) -> Aligned {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&u64::from(HEADER).to_le_bytes());
    bytes.extend_from_slice(&epoch.to_le_bytes());
    let checksum = layout.checksum(seed(layout, epoch), &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&begun.to_le_bytes());
    let checksum = layout.checksum(seed(layout, epoch) + 2, &bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Aligned::copy_of(&bytes)
}

/// A segment that was begun.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Begun {
    pub epoch: u64,
    /// The time, in seconds since the epoch of the clock. 0 if it is not known.
    pub at: f64,
}

/// The beginning of a segment.
pub(crate) enum Beginning {
    /// The segment was never written.
    Unused,
    Begun(Begun),
    /// The header is damaged, but there are records, or a summary, of this epoch.
    Lost(u64),
}

/// Reads the header of a segment.
pub(crate) fn read_header(layout: &Layout, blocks: &dyn Blocks, slot: u64) -> io::Result<Beginning> {
    // With the first record.
    let (buffer, _) = read_around(blocks, layout.segment_at(slot), 2 * BLOCK)?;
    let mut reader = Reader::new(buffer.bytes());
    let (magic, epoch, checksum) = (reader.u64(), reader.u64(), reader.u64());
    let is_sound = magic == u64::from(HEADER)
        && epoch > 0
        && epoch < LAST_LOG / layout.segment
        && layout.slot(epoch) == slot
        && checksum == layout.checksum(seed(layout, epoch), &buffer.bytes()[..16]);
    if !is_sound {
        let lost = lost_epoch(layout, blocks, slot, buffer.bytes())?;
        return Ok(lost.map_or(Beginning::Unused, Beginning::Lost));
    }
    // The time was added later. The positions of the first bytes are those of the first programs.
    let (time, checksum) = (f64::from_bits(reader.u64()), reader.u64());
    let has_time = checksum == layout.checksum(seed(layout, epoch) + 2, &buffer.bytes()[..32]);
    Ok(Beginning::Begun(Begun { epoch, at: if has_time && time.is_finite() { time } else { 0.0 } }))
}

/// Returns the epoch of a segment whose header is damaged: that of its first record, or of its summary. A segment of
/// zeros was never written.
fn lost_epoch(layout: &Layout, blocks: &dyn Blocks, slot: u64, beginning: &[u8]) -> io::Result<Option<u64>> {
    let is_possible =
        |epoch: u64| epoch > 0 && epoch < LAST_LOG / layout.segment && layout.slot(epoch) == slot;
    let (header, record) = beginning.split_at(FIRST as usize);
    let mut reader = Reader::new(record);
    let (_, log) = (reader.u64(), reader.u64());
    if is_possible(log / layout.segment)
        && let Some(found) = Header::decode(layout, log, record)
    {
        let (buffer, from) = read_around(blocks, layout.place(log), found.body_at())?;
        if found.fields(layout, &buffer.bytes()[from..]).is_some() {
            return Ok(Some(log / layout.segment));
        }
    }
    if header.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let end = layout.segment_at(slot) + layout.segment;
    let (buffer, _) = read_around(blocks, end - BLOCK, BLOCK)?;
    let mut reader = Reader::new(buffer.bytes());
    let (_, epoch) = (reader.u64(), reader.u64());
    let is_footer = |extent| Footer::decode(layout, epoch, buffer.bytes(), extent).is_some();
    Ok((is_possible(epoch) && [Extent::Whole, Extent::SoFar].into_iter().any(is_footer)).then_some(epoch))
}

/// The segments that may contain objects.
pub(crate) struct InUse {
    /// The newest first.
    pub epochs: Vec<Begun>,
    /// The newest epoch that may have been begun. Its log positions are not used again.
    pub newest: u64,
    /// The segments that cannot be read or whose headers are damaged, with the reason. They contain nothing.
    pub unreadable: Vec<(u64, io::Error)>,
    /// The segments that are not in use only because those that cannot be read may be newer.
    pub outdated: Vec<u64>,
}

impl InUse {
    /// Reads the epochs of all segments, on several threads. Log positions before `tail` are not in use.
    pub fn read(layout: &Layout, blocks: &dyn Blocks, tail: u64, threads: usize) -> Self {
        let (newest, unreadable, outdated) = (tail / layout.segment, Vec::new(), Vec::new());
        let mut found = Self { epochs: Vec::new(), newest, unreadable, outdated };
        let mut lost = 0;
        let slots: Vec<u64> = (0..layout.segments).collect();
        let read = |&slot: &u64| read_header(layout, blocks, slot);
        let Ok(()) = in_order(&slots, threads, read, |&slot, beginning| -> Result<(), Infallible> {
            match beginning {
                Ok(Beginning::Unused) => {}
                Ok(Beginning::Begun(begun)) => found.epochs.push(begun),
                Ok(Beginning::Lost(epoch)) => {
                    lost = lost.max(epoch);
                    let reason = io::Error::new(io::ErrorKind::InvalidData, "its header is damaged");
                    found.unreadable.push((slot, reason));
                }
                Err(error) => found.unreadable.push((slot, error)),
            }
            Ok(())
        });
        found.epochs.sort_unstable_by_key(|begun| std::cmp::Reverse(begun.epoch));
        found.newest = found.epochs.first().map_or(0, |first| first.epoch).max(found.newest).max(lost);
        // Each segment that cannot be read may have a newer epoch.
        let known = found.newest;
        found.newest += found.unreadable.len() as u64;
        found.epochs.retain(|&Begun { epoch, .. }| {
            let is_old = epoch + layout.segments <= found.newest;
            if is_old && epoch + layout.segments > known {
                found.outdated.push(layout.slot(epoch));
            }
            !is_old && is_in_use(layout, epoch, tail)
        });
        found
    }

    /// Returns the position of the journal if it has no groups though segments are in use: a segment is begun only after the
    /// journal has allowed it, so its records are lost.
    pub fn lost_journal(&self, layout: &Layout, cursor: &Cursor) -> Option<u64> {
        (cursor.is_empty() && !self.epochs.is_empty()).then(|| layout.journal_half(0))
    }
}

/// Overwrites a segment with zeros, so that no start finds a record in it. The header is the last to be overwritten.
pub(crate) fn wipe(layout: &Layout, blocks: &dyn Blocks, slot: u64) -> io::Result<()> {
    let zeros = Aligned::new(WIPE as usize);
    let at = layout.segment_at(slot);
    for offset in (0..layout.segment / WIPE).rev() {
        blocks.write(at + offset * WIPE, zeros.bytes())?;
    }
    blocks.sync()
}

/// Returns whether a segment contains log positions from `tail` on.
pub(crate) fn is_in_use(layout: &Layout, epoch: u64, tail: u64) -> bool {
    epoch * layout.segment + layout.segment - BLOCK > tail
}

/// Returns the list of tags if there is room for it, the summary and the footer, to be written at the end of the segment.
pub(crate) fn encode(layout: &Layout, epoch: u64, summary: &Summary, extent: Extent) -> Aligned {
    let entries = summary.records.len() * SUMMARY_ENTRY;
    let end = summary.records.last().map_or(FIRST, |last| last.offset + last.len);
    let has_room = |tags: &&[u32]| end <= limit(layout, summary.records.len(), tags.len());
    let tags = summary.tags.as_deref().filter(has_room);
    let listed = 4 * tags.map_or(0, <[u32]>::len);
    let rounded = (entries + listed).next_multiple_of(BLOCK as usize);
    let mut out = Aligned::new(rounded + BLOCK as usize);
    let bytes = out.bytes_mut();
    let mut at = rounded - entries - listed;
    for tag in tags.into_iter().flatten() {
        bytes[at..at + 4].copy_from_slice(&tag.to_le_bytes());
        at += 4;
    }
    for record in &summary.records {
        bytes[at..at + 24].copy_from_slice(&record.key);
        let mark = match record.form {
            Form::Object => 0,
            Form::Part => PART,
            Form::Large => LARGE,
        };
        let (offset, len) = ((record.offset / UNIT) as u32, (record.len / UNIT) as u32 | mark);
        for (i, number) in [offset, len, record.variant, record.expires].into_iter().enumerate() {
            bytes[at + 24 + 4 * i..at + 28 + 4 * i].copy_from_slice(&number.to_le_bytes());
        }
        at += SUMMARY_ENTRY;
    }
    let (before, footer) = bytes.split_at_mut(rounded);
    let (before, entries) = before.split_at(rounded - entries);
    let mut fixed = Vec::new();
    fixed.extend_from_slice(&extent.magic().to_le_bytes());
    fixed.extend_from_slice(&(summary.records.len() as u32).to_le_bytes());
    fixed.extend_from_slice(&epoch.to_le_bytes());
    fixed.extend_from_slice(&summary.bans.0.to_le_bytes());
    fixed.extend_from_slice(&summary.bans.1.to_le_bytes());
    fixed.extend_from_slice(&layout.checksum(seed(layout, epoch), entries).to_le_bytes());
    let checksum = layout.checksum(seed(layout, epoch) + 1, &fixed);
    fixed.extend_from_slice(&checksum.to_le_bytes());
    if let Some(tags) = tags {
        fixed.extend_from_slice(&TAGS.to_le_bytes());
        fixed.extend_from_slice(&(tags.len() as u32).to_le_bytes());
        let list = &before[before.len() - listed..];
        fixed.extend_from_slice(&layout.checksum(seed(layout, epoch) + 3, list).to_le_bytes());
        let checksum = layout.checksum(seed(layout, epoch) + 4, &fixed);
        fixed.extend_from_slice(&checksum.to_le_bytes());
    }
    footer[..fixed.len()].copy_from_slice(&fixed);
    out
}

/// Reads the summary of a segment. Returns `None` if there is no valid one for this epoch.
pub(crate) fn read_summary(
    layout: &Layout,
    blocks: &dyn Blocks,
    slot: u64,
    epoch: u64,
    extent: Extent,
) -> io::Result<Option<Summary>> {
    let end = layout.segment_at(slot) + layout.segment;
    let (mut buffer, _) = read_around(blocks, end - TAIL_READ, TAIL_READ)?;
    let Some(footer) = Footer::decode(layout, epoch, buffer.bytes(), extent) else { return Ok(None) };
    let len = footer.count as u64 * SUMMARY_ENTRY as u64;
    if len + 2 * BLOCK > layout.segment {
        return Ok(None);
    }
    let listed = |list: &ListOfTags| 4 * list.count as u64;
    let list = footer.tags.filter(|list| len + listed(list) + 2 * BLOCK <= layout.segment);
    let whole = len + list.as_ref().map_or(0, listed) + BLOCK;
    if whole > TAIL_READ {
        (buffer, _) = read_around(blocks, end - whole.next_multiple_of(BLOCK), whole)?;
    }
    let bytes = buffer.bytes();
    let to = bytes.len() - BLOCK as usize;
    let (before, entries) = bytes[..to].split_at(to - len as usize);
    if layout.checksum(seed(layout, epoch), entries) != footer.entries {
        return Ok(None);
    }
    let tags = list.and_then(|list| list.read(layout, epoch, before));
    let mut summary = Summary { records: Vec::with_capacity(footer.count), bans: footer.bans, tags };
    for entry in entries.chunks_exact(SUMMARY_ENTRY) {
        let mut reader = Reader::new(entry);
        let key = reader.array();
        let [offset, len, variant, expires] = std::array::from_fn(|_| reader.u32());
        let form = match len & (PART | LARGE) {
            0 => Form::Object,
            PART => Form::Part,
            LARGE => Form::Large,
            _ => return Ok(None),
        };
        let (offset, len) = (u64::from(offset) * UNIT, u64::from(len & !(PART | LARGE)) * UNIT);
        if offset < FIRST || len < FIXED as u64 || offset + len > layout.segment {
            return Ok(None);
        }
        summary.records.push(Summarized { form, key, offset, len, variant, expires });
    }
    Ok(Some(summary))
}

struct Footer {
    count: usize,
    bans: (u32, u32),
    entries: u64,
    tags: Option<ListOfTags>,
}

/// The list of the tags of a segment.
struct ListOfTags {
    count: usize,
    checksum: u64,
}

impl ListOfTags {
    /// Reads the list at the end of bytes.
    fn read(&self, layout: &Layout, epoch: u64, bytes: &[u8]) -> Option<Vec<u32>> {
        let list = &bytes[bytes.len().checked_sub(4 * self.count)?..];
        let is_sound = layout.checksum(seed(layout, epoch) + 3, list) == self.checksum;
        is_sound.then(|| list.as_chunks().0.iter().map(|&tag| u32::from_le_bytes(tag)).collect())
    }
}

impl Footer {
    fn decode(layout: &Layout, epoch: u64, tail: &[u8], extent: Extent) -> Option<Self> {
        let footer = &tail[tail.len() - BLOCK as usize..];
        let mut reader = Reader::new(footer);
        let (magic, count, at) = (reader.u32(), reader.u32(), reader.u64());
        let bans = (reader.u32(), reader.u32());
        let (entries, checksum) = (reader.u64(), reader.u64());
        let is_sound = magic == extent.magic()
            && at == epoch
            && checksum == layout.checksum(seed(layout, epoch) + 1, &footer[..32]);
        let (tags_magic, tags, list) = (reader.u32(), reader.u32(), reader.u64());
        let has_tags =
            tags_magic == TAGS && reader.u64() == layout.checksum(seed(layout, epoch) + 4, &footer[..56]);
        let tags = has_tags.then_some(ListOfTags { count: tags as usize, checksum: list });
        is_sound.then_some(Self { count: count as usize, bans, entries, tags })
    }
}

/// Reads the records of a segment that was being written: those of its summary so far, and the later ones themselves, which
/// are verified. Ends at the first that is missing or damaged, and reads little beyond it. `tags_of` returns the hashes of
/// the tags of an object with a head, if they are known.
pub(crate) fn scan(
    layout: &Layout,
    blocks: &dyn Blocks,
    slot: u64,
    epoch: u64,
    tags_of: &dyn Fn(&[u8]) -> Option<Box<[u64]>>,
) -> io::Result<Summary> {
    let so_far = read_summary(layout, blocks, slot, epoch, Extent::SoFar)?;
    let mut tags =
        so_far.as_ref().map_or_else(SegmentTags::default, |found| SegmentTags::of(found.tags.as_deref()));
    let mut summary = so_far.unwrap_or_else(Summary::new);
    let mut offset = summary.records.last().map_or(FIRST, |last| last.offset + last.len);
    let mut segment = Gradual::new(blocks, layout.segment_at(slot), layout.segment).behind(offset);
    while offset < layout.segment {
        let mut found = None;
        for at in [offset, offset.next_multiple_of(BLOCK)] {
            if let Some(header) = sound_record(layout, epoch, &mut segment, at)? {
                found = Some((at, header));
                break;
            }
        }
        let Some((at, header)) = found else { break };
        let Header { form, meta: Meta { key, variant, expires, .. }, len, .. } = header;
        let record = Summarized { form, key, offset: at, len, variant, expires };
        summary.add(record, header.meta.ban);
        offset = at + len;
        if form != Form::Part {
            let bytes = segment.bytes(at, len)?;
            let fields = bytes.and_then(|bytes| header.fields(layout, bytes));
            tags.add_all(layout, fields.and_then(|fields| tags_of(fields.head)).as_deref());
        }
    }
    summary.tags = tags.take();
    Ok(summary)
}

/// Returns the header of the record at an offset of a segment, if the record is complete and not damaged.
fn sound_record(
    layout: &Layout,
    epoch: u64,
    segment: &mut Gradual<'_>,
    at: u64,
) -> io::Result<Option<Header>> {
    let log = epoch * layout.segment + at;
    let fixed = segment.bytes(at, FIXED as u64)?;
    let Some(header) = fixed.and_then(|bytes| Header::decode(layout, log, bytes)) else { return Ok(None) };
    let record = segment.bytes(at, header.len)?;
    Ok(record.is_some_and(|record| header.is_sound(layout, record)).then_some(header))
}
