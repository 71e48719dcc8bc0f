//! The table of records of an arena, in a second file: it grows in chunks, and records never move.
//!
//! The manager holds the file, as it holds the arena's. A table that was [kept](Records::is_kept) contains all that the
//! next process needs in order to find the objects again. Nothing in it is trusted then: `kept.rs` checks each field.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

#[cfg(not(miri))]
use parking_lot::Mutex;

use crate::full::Full;
use crate::mapping::Mapping;
use crate::record::{Kind, LINK_WORDS, Place, RECORD, Record, Sealed};
#[cfg(miri)]
use crate::sync::Mutex;
use crate::system;

/// The length of a chunk, in bytes. Chunks are mapped one by one, so that a table reserves no address space.
const CHUNK: usize = if cfg!(miri) { 64 << 10 } else { 1 << 20 };
const PER_CHUNK: u32 = (CHUNK / RECORD) as u32;
/// The maximum number of links of one object or note: a bound for lists that are damaged.
const MOST_LINKS: u32 = 1 << 20;
/// The number that a table of this layout begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"LQTABLE1");

/// A record in use. Its owner frees it with [`Records::give`].
pub(crate) struct RecordRef(NonNull<Record>);

// SAFETY: a record consists of atomics, which any thread may access.
unsafe impl Send for RecordRef {}
// SAFETY: as above.
unsafe impl Sync for RecordRef {}

impl RecordRef {
    /// Returns the record.
    ///
    /// # Safety
    /// The table must outlive the result.
    #[inline]
    pub(crate) unsafe fn get<'a>(&self) -> &'a Record {
        // SAFETY: the chunks of a table stay mapped as long as the table exists, which the caller promises.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for RecordRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({:#x})", self.0.addr())
    }
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<Mapping>,
    /// The first record that was never used.
    next: u32,
    free: Vec<RecordRef>,
}

/// All records of an arena.
#[derive(Debug)]
pub(crate) struct Records {
    fd: OwnedFd,
    is_kept: bool,
    /// Whether the file occupies blocks of a file system. They are reserved before they are mapped, because a write to a
    /// page without a block ends the process if the file system is full.
    has_blocks: bool,
    state: Mutex<State>,
}

impl Records {
    /// Creates a table in a file. It is empty, unless the file contains a table of this layout of at most `most` bytes.
    ///
    /// # Safety
    /// As long as the table lives, nothing else may write to the file, map it for writing or make it shorter.
    pub(crate) unsafe fn new(fd: OwnedFd, is_kept: bool, most: u64) -> io::Result<Self> {
        let found = system::length(fd.as_fd());
        // A longer file would occupy memory as soon as it is read, even where nothing was written.
        let length = if found <= most { found } else { 0 };
        if length == 0 {
            system::resize(fd.as_fd(), 0)?;
        }
        let has_blocks = system::has_blocks(fd.as_fd());
        let records = Self { fd, is_kept, has_blocks, state: Mutex::default() };
        let chunks = (length / CHUNK as u64).min(u64::from(u32::MAX / PER_CHUNK));
        {
            let mut state = records.state.lock();
            for _ in 0..chunks.max(1) {
                records.grow(&mut state)?;
            }
            state.next = 1;
        }
        Ok(records)
    }

    /// Creates a table in memory that ends with this process.
    pub(crate) fn anonymous() -> io::Result<Self> {
        // SAFETY: the file is new and known only to the table.
        unsafe { Self::new(system::memory_file()?, false, 0) }
    }

    /// Returns whether the next process may find the objects of this table.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether the table has this layout and was made for an arena of `bytes` bytes.
    pub(crate) fn belong_to(&self, bytes: u64) -> bool {
        let header = self.header();
        header.sealed().is_some_and(|sealed| sealed.kind == Kind::Header)
            && header.key() == header_key(bytes)
            && header.is_sound(0)
    }

    /// Discards all records, and begins a new table for an arena of `bytes` bytes.
    pub(crate) fn empty(&self, bytes: u64) {
        self.settle(&[]);
        let header = self.header();
        header.set_key(&header_key(bytes));
        header.begin(0, f64::from_bits(RandomState::new().hash_one(MAGIC) >> 2), [0.0; 3]);
        header.seal(Sealed { kind: Kind::Header, flags: 0, place: Place::default(), filled: 0, more: 0 }, 0);
    }

    /// Returns a random number that the table keeps.
    pub(crate) fn secret(&self) -> u64 {
        self.header().origin().to_bits()
    }

    /// Returns the largest number that [`raise_serial`](Self::raise_serial) was called with.
    pub(crate) fn serial(&self) -> u32 {
        self.header().hits()
    }

    /// Records a number for the next process, unless a larger one is recorded. It has no checksum.
    pub(crate) fn raise_serial(&self, serial: u32) {
        self.header().raise_hits(serial);
    }

    /// Records that the next process must not use this table, because a note could not be written.
    pub(crate) fn spoil(&self) {
        self.header().clear();
    }

    fn header(&self) -> &Record {
        let state = self.state.lock();
        let header = at(&state.chunks, 0);
        // SAFETY: chunks stay mapped as long as the table exists.
        unsafe { NonNull::from(header).as_ref() }
    }

    fn grow(&self, state: &mut State) -> io::Result<()> {
        let from = state.chunks.len() as u64 * CHUNK as u64;
        if from / RECORD as u64 + u64::from(PER_CHUNK) > u64::from(u32::MAX) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if self.has_blocks {
            system::reserve(self.fd.as_fd(), from, CHUNK as u64)?;
        }
        system::extend(self.fd.as_fd(), from + CHUNK as u64)?;
        state.chunks.push(Mapping::part(self.fd.try_clone()?, from, CHUNK)?);
        Ok(())
    }

    /// Takes a free record.
    pub(crate) fn take(&self) -> Result<RecordRef, Full> {
        let mut state = self.state.lock();
        if let Some(record) = state.free.pop() {
            return Ok(record);
        }
        if state.next >= state.chunks.len() as u32 * PER_CHUNK {
            self.grow(&mut state).map_err(|_| Full)?;
        }
        let record = NonNull::from(at(&state.chunks, state.next));
        state.next += 1;
        Ok(RecordRef(record))
    }

    /// Frees a record, which the next process does not find anymore, with its links. Called once, by the owner, which
    /// does not use the record afterwards.
    pub(crate) fn give(&self, record: &RecordRef) {
        // SAFETY: the table exists.
        self.forget(unsafe { record.get() });
        self.state.lock().free.push(RecordRef(record.0));
    }

    /// Makes a record invalid for the next process, and frees its links.
    pub(crate) fn forget(&self, record: &Record) {
        let Some(sealed) = record.sealed() else { return };
        record.clear();
        if matches!(sealed.kind, Kind::Listed | Kind::Note) {
            self.free_links(sealed.more);
        }
    }

    /// Writes a list of words as links. `identity` is a checksum that identifies their root. Returns the number of the
    /// first link.
    pub(crate) fn write_list(&self, words: &[u64], identity: u32) -> Result<u32, Full> {
        let mut next = 0;
        // From the end, so that each link has the number of the next one.
        for group in words.chunks(LINK_WORDS).rev() {
            let taken = self.take().and_then(|record| {
                let mut full = [0; LINK_WORDS];
                full[..group.len()].copy_from_slice(group);
                let index = self.index(&record)?;
                // SAFETY: the table exists.
                unsafe { record.get() }.set_link(full, next, identity);
                Ok(index)
            });
            match taken {
                Ok(index) => next = index,
                Err(full) => {
                    self.free_links(next);
                    return Err(full);
                }
            }
        }
        Ok(next)
    }

    /// Reads a list. The number of each link that was read is added to `links`. Returns `None` if a link is damaged or
    /// belongs to another root, or if `visit` returns false for its number.
    pub(crate) fn read_list(
        &self,
        first: u32,
        identity: u32,
        links: &mut Vec<u32>,
        visit: &mut dyn FnMut(u32) -> bool,
    ) -> Option<Vec<u64>> {
        let state = self.state.lock();
        let mut words = Vec::new();
        let mut next = first;
        while next != 0 {
            let is_within = next < state.chunks.len() as u32 * PER_CHUNK && links.len() < MOST_LINKS as usize;
            if !is_within || !visit(next) {
                return None;
            }
            let (group, after) = at(&state.chunks, next).link(identity)?;
            words.extend_from_slice(&group);
            links.push(next);
            next = after;
        }
        Some(words)
    }

    /// Returns the checksum of the body of an object in one span. In a list, it is the upper half of the second word.
    pub(crate) fn body_check(&self, record: &Record) -> Option<u32> {
        let sealed = record.sealed()?;
        match sealed.kind {
            Kind::Whole => Some(sealed.more),
            Kind::Listed => {
                let list = self.read_list(sealed.more, record.identity(), &mut Vec::new(), &mut |_| true)?;
                list.get(1).map(|word| (word >> 32) as u32)
            }
            _ => None,
        }
    }

    /// Calls `f` with a record.
    pub(crate) fn with(&self, index: u32, f: impl FnOnce(&Record)) {
        let state = self.state.lock();
        if index < state.chunks.len() as u32 * PER_CHUNK {
            f(at(&state.chunks, index));
        }
    }

    /// Frees a record by its number.
    pub(crate) fn remove(&self, index: u32) {
        let mut found = None;
        self.with(index, |record| found = Some(RecordRef(NonNull::from(record))));
        if let Some(record) = found {
            self.give(&record);
        }
    }

    fn free_links(&self, mut next: u32) {
        if next == 0 {
            return;
        }
        let mut state = self.state.lock();
        for _ in 0..MOST_LINKS {
            if next == 0 || next >= state.chunks.len() as u32 * PER_CHUNK {
                return;
            }
            let link = at(&state.chunks, next);
            let Some(sealed) = link.sealed().filter(|sealed| sealed.kind == Kind::Link) else { return };
            link.clear();
            let free = RecordRef(NonNull::from(link));
            next = sealed.more;
            state.free.push(free);
        }
    }

    /// Returns the number of a record.
    pub(crate) fn index(&self, record: &RecordRef) -> Result<u32, Full> {
        let state = self.state.lock();
        let address = record.0.addr().get();
        let offset = |chunk: &Mapping| address.checked_sub(chunk.at(0, CHUNK).addr().get());
        let found =
            state.chunks.iter().rposition(|chunk| offset(chunk).is_some_and(|n| n < CHUNK)).ok_or(Full)?;
        let within = offset(&state.chunks[found]).ok_or(Full)? / RECORD;
        Ok(found as u32 * PER_CHUNK + within as u32)
    }

    /// Returns all records of the table as another process left them, with their numbers. For recovery, before any
    /// record is taken.
    pub(crate) fn left(&self) -> Left<'_> {
        let state = self.state.lock();
        let bases = state.chunks.iter().map(|chunk| chunk.at(0, CHUNK).cast::<Record>()).collect();
        Left { bases, table: PhantomData }
    }

    /// Frees all records except those that are in use according to `is_used`, by number.
    pub(crate) fn settle(&self, is_used: &[bool]) {
        let mut state = self.state.lock();
        let end = state.chunks.len() as u32 * PER_CHUNK;
        let used = is_used.iter().rposition(|&used| used).map_or(1, |last| last as u32 + 1);
        state.free.clear();
        state.next = used;
        for index in used..end {
            let record = at(&state.chunks, index);
            if record.is_sealed() {
                record.clear();
            }
        }
        // The first records are taken first.
        for index in (1..used).rev().filter(|&index| !is_used.get(index as usize).is_some_and(|&used| used)) {
            let record = at(&state.chunks, index);
            if record.is_sealed() {
                record.clear();
            }
            let free = RecordRef(NonNull::from(record));
            state.free.push(free);
        }
    }
}

fn header_key(bytes: u64) -> [u8; 24] {
    let mut key = [0; 24];
    for (part, word) in key.as_chunks_mut().0.iter_mut().zip([MAGIC, bytes]) {
        *part = u64::to_le_bytes(word);
    }
    key
}

/// Returns a record by its number, which must be within the chunks.
fn at(chunks: &[Mapping], index: u32) -> &Record {
    let chunk = &chunks[(index / PER_CHUNK) as usize];
    let record = chunk.at(u64::from(index % PER_CHUNK) * RECORD as u64, RECORD).cast::<Record>();
    // SAFETY: the record is within the chunk, which is mapped as long as it is borrowed, and aligned, because chunks
    // begin at pages. It consists of atomics, for which all contents are valid.
    unsafe { record.as_ref() }
}

/// The records that another process left.
pub(crate) struct Left<'a> {
    bases: Vec<NonNull<Record>>,
    table: PhantomData<&'a Records>,
}

impl<'a> Left<'a> {
    /// Returns the number of records, used or not.
    pub(crate) fn len(&self) -> u32 {
        self.bases.len() as u32 * PER_CHUNK
    }

    pub(crate) fn get(&self, index: u32) -> Option<&'a Record> {
        let base = self.bases.get((index / PER_CHUNK) as usize)?;
        // SAFETY: as in `at`; the borrowed table keeps the chunk mapped.
        Some(unsafe { base.add((index % PER_CHUNK) as usize).as_ref() })
    }

    /// Returns the record as one in use.
    pub(crate) fn claim(&self, index: u32) -> Option<RecordRef> {
        self.get(index).map(|record| RecordRef(NonNull::from(record)))
    }
}
