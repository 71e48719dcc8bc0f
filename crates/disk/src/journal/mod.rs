//! The journal: purges and bans, which must not be forgotten once they were answered.
//!
//! The journal has two halves. Records are appended to one of them in groups of whole blocks. When it is full, the
//! records that still matter are written to the other half as a checkpoint, and appending continues there.
//!
//! ```text
//! group    u32 "LQjn" | u32 length of the records | u64 generation | u32 number | u32 flags | u64 tail | u32 last ban
//!          | u32 limit | u64 checksum of the preceding fields and the records | records
//! records  u8 1 | u64 fingerprint | u64 bound                                  objects up to the bound are purged
//!          u8 3 | u64 tag | u64 bound                             objects with this tag up to the bound are purged
//!          u8 2 | u32 number | f64 time | u32 length | words, each with u32 length         a ban  (little endian)
//! ```
//!
//! `generation` counts the halves that were begun, `number` the groups in a half. The checkpoint ends with the first
//! group that has the flag 1. The half with the higher generation is used, if its checkpoint is complete. Log positions
//! before `tail` are no longer in use, whatever their segments contain. No segment has an epoch above the `limit` of the
//! last group, so that a start finds the newest objects at once. It is 0 if that is not known: earlier programs write 0.
//!
//! A group is written twice, in one write: the first has the flag 2, and its copy, with the next number, the flag 4.
//! Earlier programs read both, which is the same as one. Only the groups of a large checkpoint are written once. The
//! write is durable before the next begins, and a checkpoint is followed by a group without records. So a damaged group
//! that was durable either has a copy, or is followed by a group that proves the loss (`read`). The mark, which is written
//! a second after the journal has grown, proves it, too (`mark`).

mod mark;
mod read;

use std::collections::HashMap;
use std::io;

use crate::blocks::{Aligned, BLOCK, Blocks, Gradual, Reader};
use crate::layout::{LAST_LOG, Layout};

pub(crate) use mark::Mark;
pub(crate) use read::{Found, read};

const MAGIC: u32 = u32::from_le_bytes(*b"LQjn");
const GROUP: usize = 4 + 4 + 8 + 4 + 4 + 8 + 4 + 4 + 8;
/// The flag of the last group of a checkpoint.
const COMPLETE: u32 = 1;
/// The flag of a group that the next one repeats, and the flag of that one.
const REPEATED: u32 = 2;
const REPEATS: u32 = 4;
/// A limit of generations.
const LAST_GENERATION: u64 = 1 << 62;
/// The maximum length of the records in a group of a checkpoint.
const CHECKPOINT_GROUP: usize = 1 << 20;

const PURGE: u8 = 1;
const BAN: u8 = 2;
const TAG_PURGE: u8 = 3;

/// A ban, as its number, the time of its request, and the words of its conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Ban {
    pub number: u32,
    pub time: f64,
    pub words: Vec<Vec<u8>>,
}

/// The last purge of a tag.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TagPurge {
    /// The log position below which objects with the tag are purged.
    pub bound: u64,
    /// The number of purges by tags that this process had recorded with it. 0 for those of previous processes.
    pub number: u64,
}

/// The records that still matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// By fingerprint, the log position below which objects are purged.
    pub purges: HashMap<u64, u64>,
    /// By the hash of the tag.
    pub tags: HashMap<u64, TagPurge>,
    /// Oldest first.
    pub bans: Vec<Ban>,
    /// The log position before which nothing is in use.
    pub tail: u64,
    /// The highest number that a ban ever had.
    pub last_ban: u32,
    /// The highest number of a ban that the next start is sure to know: it gives this number to no other ban.
    pub durable_ban: u32,
    /// The highest number of a ban that this process has dropped from the records. 0 if there is none.
    pub dropped_ban: u32,
    /// The highest epoch that a segment may have. 0 if it is not known.
    pub limit: u64,
}

impl Live {
    /// Returns whether the object at a log position is purged.
    pub fn is_purged(&self, fingerprint: u64, log: u64) -> bool {
        log < self.tail || self.purges.get(&fingerprint).is_some_and(|&bound| log < bound)
    }

    pub(crate) fn purge(&mut self, fingerprint: u64, bound: u64) {
        let known = self.purges.entry(fingerprint).or_default();
        *known = bound.max(*known);
    }

    pub(crate) fn purge_tag(&mut self, tag: u64, purge: TagPurge) {
        let known = self.tags.entry(tag).or_default();
        known.bound = known.bound.max(purge.bound);
        known.number = known.number.max(purge.number);
    }

    /// Returns whether the object at a log position is purged by one of its tags.
    pub(crate) fn is_purged_by_tag(&self, tags: &[u64], log: u64) -> bool {
        tags.iter().any(|tag| self.tags.get(tag).is_some_and(|purge| log < purge.bound))
    }

    /// Returns whether an object without a log position was purged by one of its tags after this process had recorded
    /// this number of such purges.
    pub(crate) fn is_purged_by_tag_since(&self, tags: &[u64], number: u64) -> bool {
        tags.iter().any(|tag| self.tags.get(tag).is_some_and(|purge| number < purge.number))
    }

    pub(crate) fn ban(&mut self, ban: Ban) {
        self.last_ban = self.last_ban.max(ban.number);
        if self.bans.last().is_none_or(|last| last.number < ban.number) {
            self.bans.push(ban);
        } else if let Err(at) = self.bans.binary_search_by_key(&ban.number, |ban| ban.number) {
            self.bans.insert(at, ban);
        }
    }

    /// Drops records that concern no object any more. `oldest_ban` is the oldest ban that an object was last tested
    /// against. Objects without a log position were tested against `oldest_number` purges by tags or more.
    pub(crate) fn trim(&mut self, oldest_ban: u32, oldest_number: u64) {
        let tail = self.tail;
        self.purges.retain(|_, bound| *bound > tail);
        self.tags.retain(|_, purge| purge.bound > tail || purge.number > oldest_number);
        self.drop_bans(oldest_ban);
    }

    /// Drops the bans up to a number.
    fn drop_bans(&mut self, last: u32) {
        let dropped = self.bans.iter().map(|ban| ban.number).filter(|&number| number <= last);
        self.dropped_ban = dropped.fold(self.dropped_ban, u32::max);
        self.bans.retain(|ban| ban.number > last);
    }

    /// Drops all records.
    pub(crate) fn clear(&mut self) {
        self.purges.clear();
        self.tags.clear();
        self.drop_bans(u32::MAX);
    }

    fn apply(&mut self, records: &[u8]) -> Option<()> {
        let mut reader = Reader::new(records);
        while !reader.rest().is_empty() {
            match reader.u8() {
                PURGE => {
                    let (fingerprint, bound) = (reader.u64(), reader.u64());
                    self.purge(fingerprint, bound);
                }
                TAG_PURGE => {
                    let (tag, bound) = (reader.u64(), reader.u64());
                    self.purge_tag(tag, TagPurge { bound, number: 0 });
                }
                BAN => {
                    let (number, time) = (reader.u32(), f64::from_le_bytes(reader.array()));
                    let len = reader.u32();
                    let mut words = Reader::new(reader.bytes(len as usize));
                    let mut ban = Ban { number, time, words: Vec::new() };
                    while !words.rest().is_empty() {
                        let len = words.u32();
                        ban.words.push(words.bytes(len as usize).to_vec());
                    }
                    if words.is_short || !time.is_finite() {
                        return None;
                    }
                    self.ban(ban);
                }
                _ => return None,
            }
        }
        (!reader.is_short).then_some(())
    }
}

/// Appends the record of a purge.
pub(crate) fn put_purge(out: &mut Vec<u8>, fingerprint: u64, bound: u64) {
    out.push(PURGE);
    out.extend_from_slice(&fingerprint.to_le_bytes());
    out.extend_from_slice(&bound.to_le_bytes());
}

/// Appends the record of a purge by a tag.
pub(crate) fn put_tag_purge(out: &mut Vec<u8>, tag: u64, bound: u64) {
    out.push(TAG_PURGE);
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&bound.to_le_bytes());
}

/// Appends the record of a ban.
pub(crate) fn put_ban(out: &mut Vec<u8>, ban: &Ban) {
    out.push(BAN);
    out.extend_from_slice(&ban.number.to_le_bytes());
    out.extend_from_slice(&ban.time.to_le_bytes());
    let len: usize = ban.words.iter().map(|word| 4 + word.len()).sum();
    out.extend_from_slice(&(len as u32).to_le_bytes());
    for word in &ban.words {
        out.extend_from_slice(&(word.len() as u32).to_le_bytes());
        out.extend_from_slice(word);
    }
}

/// The place at which the next group is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cursor {
    generation: u64,
    /// The highest generation of which a group was found: possibly that of a checkpoint that is not complete.
    newest: u64,
    /// The offset in the half.
    at: u64,
    number: u32,
    /// Whether the version of the store is the newest.
    pub(crate) is_raised: bool,
    /// The limit of the epochs in the last group that was written.
    pub(crate) limit: u64,
    /// The newest mark that is durable.
    pub(crate) marked: Mark,
}

struct Group<'a> {
    generation: u64,
    number: u32,
    flags: u32,
    tail: u64,
    last_ban: u32,
    limit: u32,
    records: &'a [u8],
}

impl<'a> Group<'a> {
    fn encode(&self, layout: &Layout) -> Vec<u8> {
        let mut out = Vec::with_capacity(GROUP + self.records.len());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.tail.to_le_bytes());
        out.extend_from_slice(&self.last_ban.to_le_bytes());
        out.extend_from_slice(&self.limit.to_le_bytes());
        let checksum = Self::checksum(layout, &out, self.records);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(self.records);
        out
    }

    fn checksum(layout: &Layout, fixed: &[u8], records: &[u8]) -> u64 {
        layout.checksum(layout.checksum(u64::from(MAGIC), fixed), records)
    }

    /// Reads the group at an offset of a half. Returns `None` if it is incomplete or damaged.
    fn read(layout: &Layout, half: &'a mut Gradual<'_>, at: u64) -> io::Result<Option<Self>> {
        let Some(len) = Self::claimed_length(half, at)? else { return Ok(None) };
        let whole = half.bytes(at, GROUP as u64 + len)?;
        Ok(whole.and_then(|bytes| Self::decode(layout, bytes)))
    }

    /// Returns the length of the records of the group at an offset according to its beginning, which may be damaged.
    fn claimed_length(half: &mut Gradual<'_>, at: u64) -> io::Result<Option<u64>> {
        let Some(fixed) = half.bytes(at, GROUP as u64)? else { return Ok(None) };
        let mut reader = Reader::new(fixed);
        let (magic, len) = (reader.u32(), reader.u32());
        Ok((magic == MAGIC).then_some(u64::from(len)))
    }

    fn decode(layout: &Layout, bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (magic, len, generation) = (reader.u32(), reader.u32(), reader.u64());
        let (number, flags, tail) = (reader.u32(), reader.u32(), reader.u64());
        let (last_ban, limit, checksum) = (reader.u32(), reader.u32(), reader.u64());
        let records = reader.bytes(len as usize);
        let is_sound = !reader.is_short
            && magic == MAGIC
            && tail < LAST_LOG
            && (1..LAST_GENERATION).contains(&generation)
            && u64::from(number) < layout.journal / BLOCK
            && checksum == Self::checksum(layout, &bytes[..GROUP - 8], records);
        is_sound.then_some(Self { generation, number, flags, tail, last_ban, limit, records })
    }
}

/// The journal does not have room for the records.
#[derive(Debug)]
pub(crate) struct NoRoom;

impl Cursor {
    /// Returns whether the journal has no groups.
    pub(crate) fn is_empty(&self) -> bool {
        self.generation == 0
    }

    /// Returns the length of the journal.
    pub(crate) fn mark(&self) -> Mark {
        Mark { generation: self.generation, number: self.number.into() }
    }

    /// Returns the generation of the next checkpoint, which is in the other half. No group has it: those of a checkpoint
    /// that a cut of power has interrupted cannot be taken for groups of the next one.
    fn next_generation(&self) -> u64 {
        let next = self.newest.max(self.generation) + 1;
        next + u64::from(next % 2 == self.generation % 2)
    }

    /// Appends a group of records and makes it durable. Fails with `NoRoom` if this half is full.
    pub(crate) fn append(
        &mut self,
        layout: &Layout,
        blocks: &dyn Blocks,
        live: &Live,
        records: &[u8],
    ) -> io::Result<Result<(), NoRoom>> {
        if self.generation == 0 {
            return Ok(Err(NoRoom));
        }
        let written = self.write_twice(layout, blocks, live, records, 0)?;
        if written.is_ok() {
            blocks.sync()?;
        }
        Ok(written)
    }

    /// Writes all live records to the other half, and continues there.
    pub(crate) fn checkpoint(
        &mut self,
        layout: &Layout,
        blocks: &dyn Blocks,
        live: &Live,
    ) -> io::Result<Result<(), NoRoom>> {
        let mut groups = vec![Vec::new()];
        let mut put = |record: &dyn Fn(&mut Vec<u8>)| {
            if groups.last().is_none_or(|group| group.len() >= CHECKPOINT_GROUP) {
                groups.push(Vec::new());
            }
            groups.last_mut().into_iter().for_each(record);
        };
        for (&fingerprint, &bound) in &live.purges {
            put(&|out| put_purge(out, fingerprint, bound));
        }
        for (&tag, purge) in &live.tags {
            put(&|out| put_tag_purge(out, tag, purge.bound));
        }
        for ban in &live.bans {
            put(&|out| put_ban(out, ban));
        }
        let needs: u64 = groups.iter().map(|group| room_of(group)).sum();
        // Half of the room is for the records that follow.
        if needs > layout.journal / 2 {
            return Ok(Err(NoRoom));
        }
        let is_small = 2 * needs <= layout.journal / 2;
        let mut next = Self { generation: self.next_generation(), at: 0, number: 0, ..*self };
        next.newest = next.generation;
        let last = groups.len() - 1;
        for (i, group) in groups.iter().enumerate() {
            let flags = if i == last { COMPLETE } else { 0 };
            let written = if is_small {
                next.write_twice(layout, blocks, live, group, flags)?
            } else {
                next.write(layout, blocks, live, &[(group, flags)])?
            };
            debug_assert!(written.is_ok(), "the room was computed");
        }
        blocks.sync()?;
        // The proof that the checkpoint was durable.
        let sealed = next.append(layout, blocks, live, &[])?;
        debug_assert!(sealed.is_ok(), "half of the room is free");
        *self = next;
        Ok(Ok(()))
    }

    /// Writes a group and its copy.
    fn write_twice(
        &mut self,
        layout: &Layout,
        blocks: &dyn Blocks,
        live: &Live,
        records: &[u8],
        flags: u32,
    ) -> io::Result<Result<(), NoRoom>> {
        self.write(layout, blocks, live, &[(records, flags | REPEATED), (records, flags | REPEATS)])
    }

    /// Writes groups, as their records and flags, in one write.
    fn write(
        &mut self,
        layout: &Layout,
        blocks: &dyn Blocks,
        live: &Live,
        groups: &[(&[u8], u32)],
    ) -> io::Result<Result<(), NoRoom>> {
        let Self { generation, at, .. } = *self;
        let len: u64 = groups.iter().map(|(records, _)| room_of(records)).sum();
        if at + len > layout.journal {
            return Ok(Err(NoRoom));
        }
        let limit = u32::try_from(live.limit).unwrap_or(0);
        let mut bytes = Aligned::new(len as usize);
        let mut from = 0;
        for (number, &(records, flags)) in (self.number..).zip(groups) {
            let Live { tail, last_ban, .. } = *live;
            let group = Group { generation, number, flags, tail, last_ban, limit, records }.encode(layout);
            bytes.bytes_mut()[from..from + group.len()].copy_from_slice(&group);
            from += room_of(records) as usize;
        }
        blocks.write(layout.journal_half(generation) + at, bytes.bytes())?;
        self.at += len;
        self.number += groups.len() as u32;
        self.limit = live.limit;
        Ok(Ok(()))
    }
}

/// Returns the number of bytes that a group with these records occupies.
fn room_of(records: &[u8]) -> u64 {
    ((GROUP + records.len()) as u64).next_multiple_of(BLOCK)
}
