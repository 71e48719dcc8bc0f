//! Reads the log in shared memory, as Varnish's tools do.
//!
//! The ring consists of eight segments. A reader that is seven segments behind may read what is being overwritten, so
//! the number of the newest segment is compared after each read and before its bytes are used.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use lacquer_shm::vsl::layout;
use lacquer_shm::vsl::layout::{END_MARKER, MARKER, RECORD_HEAD, SEGMENTS, WRAP_MARKER};
use lacquer_shm::{Numbering, Tag, Vxid};

use crate::directory::{Block, Directory};
use crate::fault::Fault;

// The layout as positions in a file.
const SEGMENT_SIZE: u64 = layout::SEGMENT_SIZE as u64;
const SEGMENT_NUMBER: u64 = layout::SEGMENT_NUMBER as u64;
const OFFSETS: u64 = layout::OFFSETS as u64;
const HEAD: u64 = layout::HEAD as u64;
const WORD: u64 = layout::WORD as u64;

/// Bytes read at a time. More than a record has.
const PIECE: usize = 256 << 10;

/// One record of the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record<'a> {
    pub tag: Tag,
    pub vxid: u64,
    pub is_backend: bool,
    pub text: &'a [u8],
}

impl Record<'_> {
    /// Returns the text for printing, without control characters.
    pub fn shown(&self) -> String {
        crate::page::plain(self.text)
    }
}

/// The reader of a daemon's log.
#[derive(Debug)]
pub struct LogReader {
    file: File,
    block: Block,
    path: PathBuf,
    /// Words of a segment.
    segment_size: u64,
    /// The position of the next record, in words.
    at: u64,
    /// The number of the segment that contains it.
    segment: u32,
    /// The tags by their numbers. The first record that begins a transaction shows which numbers they have.
    tags: Box<[Option<Tag>; 256]>,
    /// The bytes that were read last.
    piece: Vec<u8>,
    /// How often records were overwritten before they were read.
    pub missed: u64,
}

impl LogReader {
    /// Opens the log at its end: only records that are written from now on are read.
    pub fn at_end(directory: &Directory) -> Result<LogReader, Fault> {
        let mut reader = LogReader::open(directory)?;
        reader.go_to(0).and_then(|()| reader.read(&mut |_| {})).map_err(|error| reader.fault(&error))?;
        Ok(reader)
    }

    /// Opens the log at its oldest record that is safe to read.
    pub fn at_start(directory: &Directory) -> Result<LogReader, Fault> {
        let mut reader = LogReader::open(directory)?;
        for behind in (0..SEGMENTS - 2).rev() {
            if reader.go_to(behind).map_err(|error| reader.fault(&error)).is_ok() {
                break;
            }
        }
        Ok(reader)
    }

    fn open(directory: &Directory) -> Result<LogReader, Fault> {
        let path = directory.path().to_owned();
        let damaged = |why: &str| {
            Fault::new(
                format_args!("the log of {} cannot be read: {why}", path.display()),
                "the daemon must be Lacquer, or Varnish 7.3 or later",
            )
        };
        let blocks = directory.worker_blocks("Log")?;
        let block = blocks.into_iter().next_back().ok_or_else(|| damaged("its worker has none"))?;
        let file = File::open(&block.file).map_err(|error| {
            Fault::new(
                format_args!("the log {} cannot be opened: {error}", block.file.display()),
                "run the command as root, as the daemon's user or in its group",
            )
        })?;
        let mut marker = [0; 8];
        file.read_exact_at(&mut marker, block.offset).map_err(|error| damaged(&error.to_string()))?;
        if marker != *MARKER {
            return Err(damaged("it has another format"));
        }
        let mut reader = LogReader {
            file,
            block,
            path,
            segment_size: 0,
            at: 0,
            segment: 0,
            tags: tags(Numbering::Varnish7),
            piece: Vec::new(),
            missed: 0,
        };
        reader.segment_size = reader.word(SEGMENT_SIZE).map_err(|error| reader.fault(&error))?.into();
        if reader.segment_size == 0 || reader.segment_size * u64::from(SEGMENTS) * WORD > reader.block.len {
            return Err(reader.fault(&io::Error::other("its size is wrong")));
        }
        Ok(reader)
    }

    fn fault(&self, error: &io::Error) -> Fault {
        Fault::new(
            format_args!("the log of {} cannot be read: {error}", self.path.display()),
            "the daemon may have ended or started again; repeat the command",
        )
    }

    fn word(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, self.block.offset + at)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Moves to the beginning of a segment, counted back from the newest one. Fails if it has none yet.
    fn go_to(&mut self, behind: u32) -> io::Result<()> {
        self.segment = self.word(SEGMENT_NUMBER)?.wrapping_sub(behind);
        let mut bytes = [0; 8];
        let place = OFFSETS + u64::from(self.segment % SEGMENTS) * 8;
        self.file.read_exact_at(&mut bytes, self.block.offset + place)?;
        let at = u64::from_ne_bytes(bytes);
        if at >= self.capacity() {
            return Err(io::Error::other("no such segment"));
        }
        self.at = at;
        Ok(())
    }

    fn capacity(&self) -> u64 {
        self.segment_size * u64::from(SEGMENTS)
    }

    /// Returns the bytes of records that the log holds.
    pub fn length(&self) -> u64 {
        self.capacity() * WORD
    }

    /// Returns whether the bytes at the position may have been overwritten.
    fn is_late(&self) -> io::Result<bool> {
        Ok(self.word(SEGMENT_NUMBER)?.wrapping_sub(self.segment) >= SEGMENTS - 1)
    }

    /// Reads the records that were written since the last call. A call reads at most as much as the ring holds, so that it
    /// ends even if the log is damaged or is written faster than it is read.
    pub fn read(&mut self, each: &mut impl FnMut(Record<'_>)) -> io::Result<()> {
        self.read_some(self.length(), each).map(drop)
    }

    /// Reads like [`LogReader::read`], but at most about so many bytes. Returns whether more may follow.
    pub fn read_some(&mut self, bytes: u64, each: &mut impl FnMut(Record<'_>)) -> io::Result<bool> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(PIECE, 0);
        let read = self.read_pieces(&mut piece, bytes, each);
        self.piece = piece;
        read
    }

    fn read_pieces(
        &mut self,
        piece: &mut [u8],
        bytes: u64,
        each: &mut impl FnMut(Record<'_>),
    ) -> io::Result<bool> {
        let mut budget = bytes;
        while budget > 0 {
            budget = budget.saturating_sub(PIECE as u64);
            let left = (self.capacity() - self.at) * WORD;
            let wanted = piece.len().min(usize::try_from(left).unwrap_or(piece.len()));
            let from = self.block.offset + HEAD + self.at * WORD;
            let length = self.file.read_at(&mut piece[..wanted], from)?;
            if self.is_late()? {
                self.missed += 1;
                self.go_to(0)?;
                continue;
            }
            if !self.take(&piece[..length], each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the complete records at the beginning of a piece. Returns whether more records may follow.
    fn take(&mut self, piece: &[u8], each: &mut impl FnMut(Record<'_>)) -> io::Result<bool> {
        let mut rest = piece;
        let begin = self.at;
        while let Some(&first) = rest.first_chunk() {
            match u32::from_ne_bytes(first) {
                END_MARKER => return Ok(false),
                WRAP_MARKER => {
                    self.segment = self.segment.wrapping_add(SEGMENTS - self.segment % SEGMENTS);
                    self.at = 0;
                    return Ok(true);
                }
                _ => {}
            }
            let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEAD>() else { break };
            let word = |n: usize| u32::from_ne_bytes([head[n], head[n + 1], head[n + 2], head[n + 3]]);
            let number = (word(0) >> 24) as u8;
            let is_batch = number == Tag::_Batch as u8;
            if number == 0 || !is_batch && (word(0) >> 16) as u8 == 0 {
                return Err(io::Error::other("a record has an unknown format"));
            }
            let length = if is_batch { 0 } else { (word(0) & 0xffff) as usize };
            let padded = length.next_multiple_of(WORD as usize);
            let Some(next) = behind.get(padded..) else { break };
            let raw = u64::from(word(8)) << 32 | u64::from(word(4));
            if let Some(record) = self.record(number, raw, &behind[..length]) {
                each(record);
            }
            self.at += ((rest.len() - next.len()) as u64) / WORD;
            self.enter_segment();
            rest = next;
        }
        Ok(self.at != begin)
    }

    fn enter_segment(&mut self) {
        while self.at >= (u64::from(self.segment % SEGMENTS) + 1) * self.segment_size {
            if self.segment % SEGMENTS == SEGMENTS - 1 {
                return;
            }
            self.segment = self.segment.wrapping_add(1);
        }
    }

    #[inline]
    fn record<'a>(&mut self, number: u8, raw: u64, text: &'a [u8]) -> Option<Record<'a>> {
        // Varnish 7 to 8 and Lacquer never write this number.
        if number == Tag::Begin as u8 + 2 && begins_transaction(text) {
            self.tags = tags(Numbering::Varnish9);
        }
        let tag = self.tags[usize::from(number)]?;
        let vxid = Vxid::from_raw(raw);
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        Some(Record { tag, vxid: vxid.number(), is_backend: vxid.is_backend(), text })
    }

    /// Follows a worker that was started again, whose log is another file. Returns whether there is a new log.
    pub fn reopen(&mut self, directory: &Directory) -> bool {
        let Ok(blocks) = directory.worker_blocks("Log") else { return false };
        if blocks.last().is_none_or(|block| block.file == self.block.file) {
            return false;
        }
        match LogReader::at_start(directory) {
            Ok(new) => {
                *self = LogReader { missed: self.missed, ..new };
                true
            }
            Err(_) => false,
        }
    }
}

/// Returns the tags by their numbers.
fn tags(numbering: Numbering) -> Box<[Option<Tag>; 256]> {
    let mut number = 0..=u8::MAX;
    Box::new(std::array::from_fn(|_| numbering.tag_of(number.next()?)))
}

fn begins_transaction(text: &[u8]) -> bool {
    [&b"sess "[..], b"req ", b"bereq "].iter().any(|kind| text.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_varnish_9_have_the_same_names() {
        let first = Tag::BackendClose as u8 + 1;
        assert_eq!(Numbering::Varnish9.tag_of(first), Some(Tag::BackendSSL));
        assert_eq!(Numbering::Varnish9.tag_of(first + 2), Numbering::Varnish7.tag_of(first));
        assert_eq!(Numbering::Varnish9.tag_of(Tag::Begin as u8 + 2), Some(Tag::Begin));
        assert_eq!(Numbering::Varnish9.tag_of(Tag::SessOpen as u8), Some(Tag::SessOpen));
        assert_eq!(Numbering::Varnish7.tag_of(200), None);
    }
}
