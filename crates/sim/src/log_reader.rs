//! Reads the engine's log in the same way as Varnish's tools: follows the ring buffer in the shared-memory file, and
//! tracks the transactions that have begun and not ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lacquer_shm::vsl::Tag;

// The positions and sizes of the fields of the log's head and of a record, in bytes.
const SEGMENT_SIZE: u64 = 8;
const SEGMENT_NUMBER: u64 = 16;
const SEGMENTS: u64 = 8;
const HEAD: u64 = 24 + SEGMENTS * 8;
const RECORD_HEAD: usize = 12;
const WORD: usize = 4;

const END_MARKER: u32 = 0xfe45_4545;
const WRAP_MARKER: u32 = 0xfe57_5757;

/// The number of bytes read at a time. It exceeds the length of a record.
const PIECE: usize = 128 << 10;

pub struct LogReader {
    file: File,
    /// The size of the ring buffer in bytes.
    capacity: u64,
    /// The position of the next record, in bytes after the log's head.
    at: u64,
    /// The segment that was current at the last call of [`LogReader::follow`].
    segment: u32,
    /// The log has overwritten records before they were read.
    is_late: bool,
    open: BTreeSet<u64>,
}

impl LogReader {
    /// Opens the log in the engine's directory. Must be called before anything is written to the log.
    pub fn open(folder: &Path) -> io::Result<LogReader> {
        let mut files = std::fs::read_dir(folder)?.filter_map(Result::ok);
        let log = files.find(|file| file.file_name().to_string_lossy().starts_with("_.Log"));
        let file = File::open(log.ok_or_else(|| io::Error::other("the engine has no log"))?.path())?;
        let words = u64::from(word(&file, SEGMENT_SIZE)?) * SEGMENTS;
        let segment = word(&file, SEGMENT_NUMBER)?;
        let open = BTreeSet::new();
        Ok(LogReader { file, capacity: words * WORD as u64, at: 0, segment, is_late: false, open })
    }

    /// Reads the records that were written since the last call.
    pub fn follow(&mut self) -> io::Result<()> {
        let segment = word(&self.file, SEGMENT_NUMBER)?;
        self.is_late |= u64::from(segment.wrapping_sub(self.segment)) >= SEGMENTS - 1;
        self.segment = segment;
        let mut piece = vec![0; PIECE];
        while !self.is_late {
            let length = piece.len().min((self.capacity - self.at) as usize);
            let length = self.file.read_at(&mut piece[..length], HEAD + self.at)?;
            if !self.take(&piece[..length]) {
                break;
            }
        }
        Ok(())
    }

    /// Reads the complete records at the beginning of `piece`. Returns whether more records may follow.
    fn take(&mut self, piece: &[u8]) -> bool {
        let mut rest = piece;
        while let Some(&first) = rest.first_chunk() {
            match u32::from_ne_bytes(first) {
                END_MARKER => return false,
                WRAP_MARKER => {
                    self.at = 0;
                    return true;
                }
                _ => {}
            }
            let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEAD>() else { return true };
            let word = |n: usize| u32::from_ne_bytes([head[n], head[n + 1], head[n + 2], head[n + 3]]);
            let tag = word(0) >> 24;
            let text = if tag == Tag::_Batch as u32 { 0 } else { (word(0) & 0xffff) as usize };
            let Some(next) = behind.get(text.next_multiple_of(WORD)..) else { return true };
            self.see(tag, u64::from(word(8)) << 32 | u64::from(word(4)));
            self.at += (rest.len() - next.len()) as u64;
            rest = next;
        }
        !piece.is_empty()
    }

    fn see(&mut self, tag: u32, transaction: u64) {
        if tag == Tag::Begin as u32 {
            self.open.insert(transaction);
        } else if tag == Tag::End as u32 {
            self.open.remove(&transaction);
        }
    }

    /// Returns the ids of the transactions that have not ended; `None` if records were missed.
    pub fn open_transactions(&self) -> Option<Vec<u64>> {
        /// The two bits that mark a transaction as a client's or a backend's.
        const SIDES: u64 = 3 << 62;
        (!self.is_late).then(|| self.open.iter().map(|vxid| vxid & !SIDES).collect())
    }
}

fn word(file: &File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; WORD];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u32::from_ne_bytes(bytes))
}
