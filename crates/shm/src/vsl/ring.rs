//! The ring of log records in shared memory.
//!
//! ```text
//! head  marker "VSLHEAD2" | words per segment | segment number | offset of each segment's first record
//! log   record, record, … ENDMARKER … old records … [WRAPMARKER]
//! ```
//!
//! What readers rely on: an ENDMARKER stands where the next record will begin, from before that place is
//! reachable; a record becomes visible by its first word, written last; the segment number is raised only
//! when the offsets it refers to are in place. A short lock covers the reservation of room; the copying
//! happens outside of it, so that reactors do not wait for each other's bytes. A writer that slept
//! through a whole turn of the ring would garble a batch; so would Varnish.

use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, PoisonError, TryLockError};

use super::{RECORD_HEAD, Tag, Vxid, batch_head, padded, record_head};
use crate::mapping::{Mapping, PAGE};
use crate::sync::{AtomicU32, AtomicU64, Mutex, fence};
use crate::vsc::{Main, Segment};
use crate::vsm::{Block, VsmDir, VsmError};

const SEGMENTS: u32 = 8;
const WORD: usize = 4;

// The head's layout.
const MARKER: usize = 0;
const SEGMENT_SIZE: usize = 8;
const SEGMENT_NUMBER: usize = 16;
const OFFSETS: usize = 24;
const HEAD: usize = OFFSETS + SEGMENTS as usize * 8;

const END_MARKER: u32 = (Tag::_Reserved as u32) << 24 | 0x45_4545;
const WRAP_MARKER: u32 = (Tag::_Reserved as u32) << 24 | 0x57_5757;

/// The least room a ring has: every record fits many times. Loom looks at each word of it.
const MIN_SPACE: usize = if cfg!(loom) { 1 << 10 } else { 1 << 20 };

#[derive(Debug)]
pub(super) struct Ring {
    mapping: Arc<Mapping>,
    base: usize,
    /// Words of log.
    capacity: usize,
    segment_size: usize,
    cursor: Mutex<Cursor>,
    /// How far the ring was given back, in words written since the beginning.
    released: Mutex<usize>,
    counters: Arc<Segment<Main>>,
    _block: Option<Block>,
}

#[derive(Debug)]
struct Cursor {
    /// Where the next record begins, in words.
    at: usize,
    segment: u32,
    /// Turns of the ring so far.
    turns: usize,
}

impl Ring {
    pub(super) fn create(dir: &VsmDir, space: usize, counters: Arc<Segment<Main>>) -> Result<Self, VsmError> {
        let space = space.max(MIN_SPACE);
        let block = dir.alloc("Log", "Log", space, |mapping, base| write_head(mapping, base, space))?;
        let (mapping, base) = block.place();
        Ok(Self::over(mapping, base, space, counters, Some(block)))
    }

    /// A ring that no reader sees.
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
        let cursor = Mutex::new(Cursor { at: 0, segment: FIRST_SEGMENT, turns: 0 });
        let released = Mutex::new(0);
        Self { mapping, base, capacity, segment_size, cursor, released, counters, _block: block }
    }

    /// Lets go of memory behind the writers, the oldest first and at most so many bytes; readers have the
    /// file. Answers how many bytes those were.
    pub(super) fn release(&self, most: usize) -> usize {
        let written = {
            let cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
            cursor.turns * self.capacity + cursor.at
        };
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // What was passed over a turn ago is being written again.
        let from = (*released).max(written.saturating_sub(self.capacity));
        let (start, rest) = (self.byte(from % self.capacity), self.capacity - from % self.capacity);
        let mut end = start + written.saturating_sub(from).min(most / WORD).min(rest) * WORD;
        if end < start + rest * WORD {
            // The page that is being filled goes with the next ones.
            end = start.max(end / PAGE * PAGE);
        }
        self.mapping.release(start, end - start);
        *released = from + (end - start) / WORD;
        end - start
    }

    /// Writes finished records as one batch. The bytes begin with a record of another transaction or nothing,
    /// up to `before`; then comes the place of the batch's head, and the records. `early` says that the
    /// transaction goes on.
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
        let at = self.reserve(bytes.len() / WORD, count + u32::from(before > 0), early);
        if let Some((first, rest)) = bytes.split_first_chunk() {
            self.mapping.write(self.byte(at + 1), rest);
            self.word(at).store(u32::from_ne_bytes(*first), Release);
        }
    }

    /// Writes a single record of text, which with the NUL that it is given fits a record.
    pub(super) fn write_record(&self, tag: Tag, vxid: Vxid, text: &[u8]) {
        let len = text.len() + 1;
        self.write_raw(record_head(tag, len, vxid), text, b"\0");
    }

    /// Writes a single record of bytes, which end where they end.
    pub(super) fn write_binary(&self, tag: Tag, vxid: Vxid, bytes: &[u8]) {
        self.write_raw(record_head(tag, bytes.len(), vxid), bytes, b"");
    }

    /// Writes a single record of two parts.
    fn write_raw(&self, head: [u8; RECORD_HEAD], text: &[u8], end: &[u8]) {
        let at = self.reserve((RECORD_HEAD + padded(text.len() + end.len())) / WORD, 1, false);
        self.mapping.write(self.byte(at) + RECORD_HEAD, text);
        self.mapping.write(self.byte(at) + RECORD_HEAD + text.len(), end);
        let word = |i: usize| u32::from_ne_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        self.word(at + 2).store(word(8), Relaxed);
        self.word(at + 1).store(word(4), Relaxed);
        self.word(at).store(word(0), Release);
    }

    /// For a batch larger than the ring takes at once (a log buffer set larger than the log).
    fn write_one_by_one(&self, mut records: &[u8]) {
        while let Some((head, rest)) = records.split_first_chunk::<RECORD_HEAD>() {
            let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize & 0xffff;
            let Some(text) = rest.get(..len) else { return };
            self.write_raw(*head, text, b"");
            records = rest.get(padded(len)..).unwrap_or_default();
        }
    }

    /// Whether so many bytes may be written at once: at most a segment, so that readers never see two
    /// segments pass in one step.
    fn fits(&self, len: usize) -> bool {
        len / WORD < self.segment_size
    }

    /// Takes room for so many words of records; the answer is where it begins, in words.
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
        cursor.turns += 1;
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

    /// The text of the record at a word.
    pub(super) fn read_text(&self, at: usize, len: usize) -> Vec<u8> {
        self.mapping.read(self.byte(at) + RECORD_HEAD, len)
    }

    /// The number of the newest segment and where it begins, as readers look for them.
    pub(super) fn announced(&self) -> (u32, u64) {
        let segment = self.segment_number().load(std::sync::atomic::Ordering::Acquire);
        (segment, self.offset_of(segment).load(Relaxed))
    }
}

/// Such that the number overflows on the first turn: whoever mishandles that shall be seen early.
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
    mapping.write(base + MARKER, b"VSLHEAD2");
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::vsl::{Field, Limits, Log, TxLog};

    /// The records from the log's beginning to its end, as readers walk it: tag, transaction, text.
    fn walk(ring: &Ring) -> Vec<(u32, u64, Vec<u8>)> {
        let (mut at, mut records) = (0, Vec::new());
        loop {
            let first = ring.word(at).load(Relaxed);
            if first == END_MARKER || first == WRAP_MARKER {
                return records;
            }
            let len = (first & 0xffff) as usize;
            if first >> 24 != Tag::_Batch as u32 {
                let (low, high) = (ring.word(at + 1).load(Relaxed), ring.word(at + 2).load(Relaxed));
                let vxid = u64::from(high) << 32 | u64::from(low);
                records.push((first >> 24, vxid, ring.mapping.read(ring.byte(at) + RECORD_HEAD, len)));
            }
            at += (RECORD_HEAD + padded(len)) / WORD;
        }
    }

    fn texts(log: &Log) -> Vec<String> {
        walk(log.ring()).iter().map(|(.., text)| String::from_utf8_lossy(text).into_owned()).collect()
    }

    fn transaction(log: &Arc<Log>) -> TxLog {
        let mut tx = log.transaction();
        tx.begin(Vxid::backend(9));
        tx
    }

    #[test]
    fn a_batch_holds_the_records_of_a_transaction() {
        let log = Log::detached().expect("memory");
        let mut tx = transaction(&log);
        tx.put(Tag::BereqURL, b"/");
        tx.put(Tag::Debug, b"masked");
        tx.put_fields(Tag::Debug, &[Field::Text(b"masked"), Field::Number(1)]);
        assert!(walk(log.ring()).is_empty(), "nothing before the end");
        tx.end();
        let vxid = 9 | 1 << 63;
        let expected = [(30, b"/\0".to_vec()), (75, vec![0])].map(|(tag, text)| (tag, vxid, text));
        assert_eq!(walk(log.ring()), expected);
        assert_eq!(log.ring().word(0).load(Relaxed), 0xff00_0000);
        assert_eq!(log.ring().word(1).load(Relaxed), 32, "two records of 16 bytes");
    }

    #[test]
    fn a_link_goes_with_the_batch_of_what_it_names() {
        let log = Log::detached().expect("memory");
        let (session, own) = (Vxid::client(8), Vxid::client(9));
        let mut tx = log.transaction();
        tx.begin(own);
        tx.link_from(session, "req", "rxreq");
        assert!(walk(log.ring()).is_empty(), "nothing before the transaction's own records");
        tx.put(Tag::ReqURL, b"/");
        tx.end();
        let record = |tag: Tag, vxid: Vxid, text: &[u8]| (tag as u32, vxid.raw(), text.to_vec());
        let link = record(Tag::Link, session, b"req 9 rxreq\0");
        let mut expected = vec![link.clone(), record(Tag::ReqURL, own, b"/\0"), record(Tag::End, own, b"\0")];
        assert_eq!(walk(log.ring()), expected);
        let counted: &Main = &log.ring().counters;
        assert_eq!((counted.shm_writes.get(), counted.shm_records.get()), (1, 3));

        tx.begin(own);
        tx.link_from(session, "req", "rxreq");
        tx.flush();
        expected.push(link);
        assert_eq!(walk(log.ring()), expected, "no batch without records");
    }

    #[test]
    fn long_texts_are_cut_and_keep_their_nul() {
        let log = Log::detached().expect("memory");
        log.set_limits(Limits { buffer: 0, reclen: 20 });
        let long = [b'x'; 100];
        log.write(Tag::Error, Vxid::NONE, &long);
        let mut tx = transaction(&log);
        tx.put(Tag::Error, &long);
        tx.put_fields(Tag::Error, &[Field::Text(&long), Field::Number(7)]);
        tx.put_fmt(Tag::Error, format_args!("{:x<100}", 'x'));
        tx.put(Tag::Error, &long[..19]);
        tx.flush();
        assert!(texts(&log).iter().all(|text| *text == format!("{}\0", "x".repeat(19))));
        assert_eq!(texts(&log).len(), 5);
    }

    #[test]
    fn a_full_buffer_is_written_early_and_loses_nothing() {
        let log = Log::detached().expect("memory");
        log.set_limits(Limits { buffer: 128, reclen: 80 });
        let mut tx = transaction(&log);
        for i in 0..20_u32 {
            let text = "y".repeat(i as usize);
            tx.put(Tag::VCL_Log, text.as_bytes());
            // Outgrows the buffer halfway through the record.
            tx.put_fields(
                Tag::VCL_Log,
                &[Field::Text(text.as_bytes()), Field::Number(7), Field::Text(text.as_bytes())],
            );
        }
        tx.flush();
        let expected: Vec<String> =
            (0..20).flat_map(|i| ["y".repeat(i), format!("{0} 7 {0}", "y".repeat(i))]).collect();
        let seen: Vec<String> = texts(&log).iter().map(|text| text.trim_end_matches('\0').into()).collect();
        assert_eq!(seen, expected);
        let stats = &log.ring().counters;
        assert_eq!(stats.shm_records.get(), 40);
        assert_eq!(stats.shm_flushes.get() + 1, stats.shm_writes.get());
    }

    #[test]
    fn a_batch_larger_than_a_segment_goes_in_record_by_record() {
        let log = Log::detached().expect("memory");
        log.set_limits(Limits { buffer: MIN_SPACE, reclen: 255 });
        let mut tx = transaction(&log);
        for i in 0..1000 {
            tx.put_fmt(Tag::VCL_Log, format_args!("{i:0200}"));
        }
        tx.end();
        assert_eq!(walk(log.ring()).len(), 1001);
    }

    #[test]
    fn writers_do_not_disturb_each_other() {
        let log = Log::detached().expect("memory");
        std::thread::scope(|scope| {
            for writer in 1..=4_u64 {
                let mut tx = log.transaction();
                scope.spawn(move || {
                    for i in 0..200 {
                        tx.begin(Vxid::client(writer));
                        tx.put_fields(Tag::VCL_Log, &[Field::Number(writer), Field::Number(i)]);
                        tx.end();
                    }
                });
            }
        });
        let records = walk(log.ring());
        assert_eq!(records.len(), 4 * 200 * 2);
        for writer in 1..=4_u64 {
            let own = records.iter().filter(|(tag, vxid, _)| *tag == 70 && *vxid == writer | 1 << 62);
            let expected = (0..200).map(|i| format!("{writer} {i}\0").into_bytes());
            assert!(own.map(|(.., text)| text.clone()).eq(expected), "writer {writer}");
        }
        assert_eq!(log.ring().counters.shm_writes.get(), 800);
    }

    #[test]
    fn segment_offsets_follow_the_writing_and_the_turn() {
        let log = Log::detached().expect("memory");
        let ring = log.ring();
        let offset = |segment: u32| ring.offset_of(segment).load(Relaxed);
        assert_eq!((offset(0), offset(1), ring.segment_number().load(Relaxed)), (0, u64::MAX, FIRST_SEGMENT));
        let text = [b'z'; 200];
        while ring.counters.shm_cycles.get() == 0 {
            log.write(Tag::VCL_Log, Vxid::NONE, &text);
            let segment = ring.segment_number().load(Relaxed);
            let start = offset(segment) as usize;
            assert!(start / ring.segment_size >= (segment % SEGMENTS) as usize, "in its segment");
        }
        assert_eq!(ring.segment_number().load(Relaxed), 0, "overflows on the first turn");
        assert_eq!(walk(ring).len(), 1);
    }

    #[test]
    fn memory_behind_the_writer_goes_once_a_turn_and_its_contents_stay() {
        let log = Log::detached().expect("memory");
        let ring = log.ring();
        assert_eq!(log.release(usize::MAX), 0, "nothing was written");
        let text = [b'r'; 200];
        while ring.counters.shm_bytes.get() < MIN_SPACE as u64 / 2 {
            log.write(Tag::VCL_Log, Vxid::NONE, &text);
        }
        let seen = walk(ring);
        let at_once = log.release(10 * PAGE);
        assert!(at_once > 9 * PAGE && at_once <= 10 * PAGE, "{at_once}");
        let rest = log.release(usize::MAX);
        assert!(rest + at_once > MIN_SPACE / 2 - 2 * PAGE && rest + at_once <= MIN_SPACE / 2 + PAGE);
        assert_eq!((log.release(usize::MAX), walk(ring)), (0, seen));
        while ring.counters.shm_cycles.get() < 3 {
            log.write(Tag::VCL_Log, Vxid::NONE, &text);
        }
        let (end, beginning) = (log.release(usize::MAX), log.release(usize::MAX));
        assert!(end + beginning > MIN_SPACE - 3 * PAGE && end + beginning <= MIN_SPACE);
    }
}
