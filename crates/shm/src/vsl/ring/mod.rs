//! The ring of log records in shared memory.
//!
//! ```text
//! head  marker "VSLHEAD2" | words per segment | segment number | offset of each segment's first record
//! log   record, record, … ENDMARKER … old records … [WRAPMARKER]
//! ```
//!
//! Readers rely on the following. An ENDMARKER is written at the position of the next record before readers can reach
//! that position. The first word of a record is written last and makes it visible. The segment number is raised only
//! when the offsets that it refers to are written. A short lock covers the reservation of space; bytes are copied
//! outside of it, so that reactors do not wait for each other's bytes. If a writer is suspended while the ring wraps
//! completely, its batch is garbled, as in Varnish.

use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, PoisonError, TryLockError};

use super::layout::{
    END_MARKER, HEAD, MARKER, OFFSETS, RECORD_HEAD, SEGMENT_NUMBER, SEGMENT_SIZE, SEGMENTS, WORD, WRAP_MARKER,
};
use super::{Numbering, Tag, Vxid, batch_head, padded, record_head};
use crate::mapping::{Mapping, PAGE};
use crate::sync::{AtomicU32, AtomicU64, Mutex, fence};
use crate::vsc::{Main, Segment};
use crate::vsm::{Block, VsmDir, VsmError};

/// Minimum size of a ring in bytes: every record fits many times. Loom examines each word, so its ring is smaller.
const MIN_SPACE: usize = if cfg!(loom) { 1 << 10 } else { 1 << 20 };

#[derive(Debug)]
pub(super) struct Ring {
    mapping: Arc<Mapping>,
    base: usize,
    /// Words of records.
    capacity: usize,
    segment_size: usize,
    cursor: Mutex<Cursor>,
    /// The position up to which memory was released, in words written since the beginning.
    released: Mutex<usize>,
    counters: Arc<Segment<Main>>,
    numbering: Numbering,
    _block: Option<Block>,
}

#[derive(Debug)]
struct Cursor {
    /// The start of the next record, in words.
    at: usize,
    segment: u32,
    /// Number of wraps so far.
    wraps: usize,
}

impl Ring {
    pub(super) fn create(
        dir: &VsmDir,
        space: usize,
        numbering: Numbering,
        counters: Arc<Segment<Main>>,
    ) -> Result<Self, VsmError> {
        let space = space.max(MIN_SPACE);
        let block = dir.alloc("Log", "Log", space, |mapping, base| write_head(mapping, base, space))?;
        let (mapping, base) = block.place();
        Ok(Self { numbering, ..Self::over(mapping, base, space, counters, Some(block)) })
    }

    #[inline]
    pub(super) fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Creates a ring that no reader sees.
    pub(super) fn detached(space: usize, counters: Arc<Segment<Main>>) -> io::Result<Self> {
        let space = space.max(MIN_SPACE);
        let mapping = Arc::new(Mapping::anonymous(space)?);
        write_head(&mapping, 0, space);
        Ok(Self::over(mapping, 0, space, counters, None))
    }

    fn over(
        mapping: Arc<Mapping>,
        base: usize,
        space: usize,
        counters: Arc<Segment<Main>>,
        block: Option<Block>,
    ) -> Self {
        let segment_size = segment_size(space);
        let capacity = segment_size * SEGMENTS as usize;
        let cursor = Mutex::new(Cursor { at: 0, segment: FIRST_SEGMENT, wraps: 0 });
        let released = Mutex::new(0);
        Self {
            mapping,
            base,
            capacity,
            segment_size,
            cursor,
            released,
            counters,
            numbering: Numbering::default(),
            _block: block,
        }
    }

    /// Releases the memory of written records, the oldest first and at most `most` bytes; readers have the
    /// file. Returns the number of released bytes.
    pub(super) fn release(&self, most: usize) -> usize {
        let written = {
            let cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            cursor.wraps * self.capacity + cursor.at
        };
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // Memory that was written more than one wrap ago is being overwritten.
        let from = (*released).max(written.saturating_sub(self.capacity));
        let (start, rest) = (self.byte(from % self.capacity), self.capacity - from % self.capacity);
        let mut end = start + written.saturating_sub(from).min(most / WORD).min(rest) * WORD;
        if end < start + rest * WORD {
            // The page that is being filled is released with the next ones.
            end = start.max(end / PAGE * PAGE);
        }
        self.mapping.release(start, end - start);
        *released = from + (end - start) / WORD;
        end - start
    }

    /// Writes finished records as one batch. `bytes` begins with a record of another transaction, or nothing, up to
    /// `before`. The space for the batch's head and the records follow. `early` means that the transaction continues.
    pub(super) fn write_batch(&self, bytes: &mut [u8], before: usize, count: u32, early: bool) {
        let fits = self.fits(bytes.len());
        let (other, batch) = bytes.split_at_mut(before);
        let Some((head, records)) = batch.split_first_chunk_mut() else {
            return self.write_one_by_one(other);
        };
        if !fits {
            self.write_one_by_one(other);
            return self.write_one_by_one(records);
        }
        *head = batch_head(records.len());
        self.numbering.apply(bytes);
        let at = self.reserve(bytes.len() / WORD, count + u32::from(before > 0), early);
        if let Some((first, rest)) = bytes.split_first_chunk() {
            self.mapping.write(self.byte(at + 1), rest);
            self.word(at).store(u32::from_ne_bytes(*first), Release);
        }
    }

    /// Writes a single record of text and a NUL. Both together must fit a record.
    pub(super) fn write_record(&self, tag: Tag, vxid: Vxid, text: &[u8]) {
        let len = text.len() + 1;
        self.write_raw(record_head(tag, len, vxid), text, b"\0");
    }

    /// Writes a single record of bytes, without a NUL.
    pub(super) fn write_binary(&self, tag: Tag, vxid: Vxid, bytes: &[u8]) {
        self.write_raw(record_head(tag, bytes.len(), vxid), bytes, b"");
    }

    /// Writes a single record from two parts.
    fn write_raw(&self, mut head: [u8; RECORD_HEAD], text: &[u8], end: &[u8]) {
        self.numbering.apply(&mut head);
        let at = self.reserve((RECORD_HEAD + padded(text.len() + end.len())) / WORD, 1, false);
        self.mapping.write(self.byte(at) + RECORD_HEAD, text);
        self.mapping.write(self.byte(at) + RECORD_HEAD + text.len(), end);
        let word = |i: usize| u32::from_ne_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        self.word(at + 2).store(word(8), Relaxed);
        self.word(at + 1).store(word(4), Relaxed);
        self.word(at).store(word(0), Release);
    }

    /// Writes records singly, for a batch that exceeds a segment (if vsl_buffer is larger than that).
    fn write_one_by_one(&self, mut records: &[u8]) {
        while let Some((head, rest)) = records.split_first_chunk::<RECORD_HEAD>() {
            let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize & 0xffff;
            let Some(text) = rest.get(..len) else { return };
            self.write_raw(*head, text, b"");
            records = rest.get(padded(len)..).unwrap_or_default();
        }
    }

    /// Returns whether this many bytes may be written at once: at most a segment, so that readers never see two
    /// segments pass in one step.
    fn fits(&self, len: usize) -> bool {
        len / WORD < self.segment_size
    }

    /// Reserves space for `words` words of records. Returns its start, in words.
    fn reserve(&self, words: usize, records: u32, early: bool) -> usize {
        let stats: &Main = &self.counters;
        let mut cursor = match self.cursor.try_lock() {
            Ok(cursor) => cursor,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
                stats.shm_cont.add_as_only_writer(1);
                cursor
            }
        };
        stats.shm_writes.add_as_only_writer(1);
        stats.shm_flushes.add_as_only_writer(u64::from(early));
        stats.shm_records.add_as_only_writer(u64::from(records));
        stats.shm_bytes.add_as_only_writer((words * WORD) as u64);

        if cursor.at + words >= self.capacity {
            self.wrap(&mut cursor);
        }
        let at = cursor.at;
        cursor.at += words;
        self.word(cursor.at).store(END_MARKER, Relaxed);
        let before = cursor.segment;
        while cursor.at >= ((cursor.segment % SEGMENTS) as usize + 1) * self.segment_size {
            cursor.segment = cursor.segment.wrapping_add(1);
            self.offset_of(cursor.segment).store(cursor.at as u64, Relaxed);
        }
        if cursor.segment != before {
            self.segment_number().store(cursor.segment, Release);
        }
        at
    }

    fn wrap(&self, cursor: &mut Cursor) {
        cursor.segment = cursor.segment.wrapping_add(SEGMENTS - cursor.segment % SEGMENTS);
        self.offset_of(cursor.segment).store(0, Relaxed);
        self.word(0).store(END_MARKER, Relaxed);
        fence(Release);
        if cursor.at != 0 {
            self.word(cursor.at).store(WRAP_MARKER, Relaxed);
            cursor.at = 0;
        }
        cursor.wraps += 1;
        self.segment_number().store(cursor.segment, Release);
        self.counters.shm_cycles.add_as_only_writer(1);
    }

    fn byte(&self, word: usize) -> usize {
        self.base + HEAD + word * WORD
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        self.mapping.u32_at(self.byte(at))
    }

    fn offset_of(&self, segment: u32) -> &AtomicU64 {
        self.mapping.u64_at(self.base + OFFSETS + (segment % SEGMENTS) as usize * 8)
    }

    fn segment_number(&self) -> &AtomicU32 {
        self.mapping.u32_at(self.base + SEGMENT_NUMBER)
    }
}

#[cfg(all(test, loom))]
impl Ring {
    pub(super) fn counters(&self) -> &Main {
        &self.counters
    }

    /// Returns the text of the record at a word.
    pub(super) fn read_text(&self, at: usize, len: usize) -> Vec<u8> {
        self.mapping.read(self.byte(at) + RECORD_HEAD, len)
    }

    /// Returns the number and start of the newest segment, as readers look them up.
    pub(super) fn announced(&self) -> (u32, u64) {
        let segment = self.segment_number().load(std::sync::atomic::Ordering::Acquire);
        (segment, self.offset_of(segment).load(Relaxed))
    }
}

/// The first segment number. The counter overflows at the first wrap, so that readers that mishandle the overflow are
/// found early.
const FIRST_SEGMENT: u32 = u32::MAX - (SEGMENTS - 1);

fn segment_size(space: usize) -> usize {
    (space - HEAD) / WORD / SEGMENTS as usize
}

fn write_head(mapping: &Mapping, base: usize, space: usize) {
    mapping.u32_at(base + HEAD).store(END_MARKER, Relaxed);
    mapping.u64_at(base + SEGMENT_SIZE).store(segment_size(space) as u64, Relaxed);
    mapping.u32_at(base + SEGMENT_NUMBER).store(FIRST_SEGMENT, Relaxed);
    mapping.u64_at(base + OFFSETS).store(0, Relaxed);
    for segment in 1..SEGMENTS as usize {
        mapping.u64_at(base + OFFSETS + segment * 8).store(u64::MAX, Relaxed);
    }
    fence(Release);
    mapping.write(base, MARKER);
}

#[cfg(all(test, not(loom)))]
mod tests;
