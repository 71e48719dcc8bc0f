//! The superblock and the arrangement of a store on its device.
//!
//! ```text
//! byte 0     superblock (4 kB)
//! byte 4096  copy of the superblock
//! byte 8192  journal: two halves of the same length
//! then       segments, all of the same length
//! ```
//!
//! The superblock is written when the store is created. Only its version changes, before the store first records a purge
//! by tags or a large object, which programs that know version 1 alone cannot read:
//!
//! ```text
//! 8 bytes "LACQDISK" | u32 version | u32 block size | u64 id | u64 journal half | u64 segment length | u64 segments
//! | f64 created | u64 checksum of the preceding bytes      (little endian)
//! ```
//!
//! Objects have a log position: `epoch * segment length + offset`. Each segment that is written gets the next epoch,
//! and epoch `e` is at segment `e % segments`. A log position is never used twice, so a record that contains its own
//! position cannot be mistaken for an older one in the same place.

use std::fmt;
use std::io;

use twox_hash::XxHash3_64;

use crate::blocks::{Aligned, BLOCK, Blocks, Reader};

const MAGIC: &[u8; 8] = b"LACQDISK";
/// The newest version of the format. No newer version is read.
pub const VERSION: u32 = 2;
/// The version of a new store. It becomes [`VERSION`] before it first contains purges by tags or large objects.
pub const FIRST_VERSION: u32 = 1;
const SUPERBLOCK: usize = 8 + 4 + 4 + 8 * 4 + 8 + 8;
const SUPERBLOCKS: u64 = 2 * BLOCK;

/// The least size of a store.
pub const LEAST_SIZE: u64 = 16 << 20;
/// The most bytes of a device that a store uses. The index has 40 bits for a place.
const LARGEST_SIZE: u64 = UNIT << 40;
/// A limit of log positions. A store that writes 10 GB/s reaches it after ten years.
pub(crate) const LAST_LOG: u64 = 1 << 62;
const SEGMENT_MAX: u64 = 32 << 20;
const SEGMENT_MIN: u64 = 256 << 10;
const JOURNAL_MIN: u64 = 64 << 10;
const JOURNAL_MAX: u64 = 256 << 20;
/// The granularity of records. Positions and lengths are multiples of it.
pub const UNIT: u64 = 64;

/// The arrangement of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// A random number that distinguishes stores. All checksums depend on it.
    pub id: u64,
    /// The length of one half of the journal.
    pub journal: u64,
    /// The length of a segment.
    pub segment: u64,
    pub segments: u64,
    /// The time of creation, in seconds since the epoch.
    pub created: f64,
    /// The version of the format.
    pub version: u32,
}

/// The reason why a device cannot be opened as a store.
#[derive(Debug)]
pub enum OpenError {
    /// The device begins with zeros, or is empty.
    Empty,
    /// The device contains something else.
    Foreign,
    UnknownVersion(u32),
    /// The superblock and its copy are damaged.
    Damaged,
    /// The device is shorter than the superblock records.
    Shrunk {
        needs: u64,
        has: u64,
    },
    TooSmall(u64),
    Io(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no store; create one with `lacquer storage create`"),
            Self::Foreign => f.write_str(
                "it contains data that is not a Lacquer store; if the data may be lost, run \
                 `lacquer storage create --force`",
            ),
            Self::UnknownVersion(found) => write!(
                f,
                "the store has format version {found}, and this program reads versions up to {VERSION}; run the \
                 program that wrote it, or create a new store with `lacquer storage create --force`"
            ),
            Self::Damaged => f.write_str(
                "the superblock and its copy are damaged; create a new store with `lacquer storage create --force`",
            ),
            Self::Shrunk { needs, has } => write!(
                f,
                "the device has {has} bytes and the store on it needs {needs}; restore the size, or create a new \
                 store with `lacquer storage create --force`"
            ),
            Self::TooSmall(size) => {
                write!(f, "{size} bytes are too small for a store; the least size is {LEAST_SIZE} bytes")
            }
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Layout {
    /// Plans a store for a device of `size` bytes.
    pub fn plan(size: u64, id: u64, created: f64) -> Result<Self, OpenError> {
        if size < LEAST_SIZE {
            return Err(OpenError::TooSmall(size));
        }
        let size = size.min(LARGEST_SIZE);
        let segment = (size / 64).next_power_of_two().clamp(SEGMENT_MIN, SEGMENT_MAX);
        let journal = (size / 256 / BLOCK * BLOCK).clamp(JOURNAL_MIN, JOURNAL_MAX);
        let segments = (size - SUPERBLOCKS - 2 * journal) / segment;
        Ok(Self { id, journal, segment, segments, created, version: FIRST_VERSION })
    }

    /// Returns the size that the store needs.
    pub fn size(&self) -> u64 {
        self.data() + self.segments * self.segment
    }

    /// Returns the position of the first segment.
    pub fn data(&self) -> u64 {
        SUPERBLOCKS + 2 * self.journal
    }

    /// Returns the position of a half of the journal.
    pub(crate) fn journal_half(&self, generation: u64) -> u64 {
        SUPERBLOCKS + generation % 2 * self.journal
    }

    /// Returns the oldest log position that is in use when an epoch is the newest.
    pub(crate) fn oldest_log(&self, newest: u64) -> u64 {
        (newest + 1).saturating_sub(self.segments) * self.segment
    }

    /// Returns the number of the segment that an epoch is in.
    pub(crate) fn slot(&self, epoch: u64) -> u64 {
        epoch % self.segments
    }

    /// Returns the position of a segment on the device.
    pub(crate) fn segment_at(&self, slot: u64) -> u64 {
        self.data() + slot * self.segment
    }

    /// Returns the position on the device of a log position.
    pub(crate) fn place(&self, log: u64) -> u64 {
        self.segment_at(self.slot(log / self.segment)) + log % self.segment
    }

    /// Returns the segment that contains a position on the device.
    pub(crate) fn slot_of(&self, place: u64) -> Option<u64> {
        let slot = place.checked_sub(self.data())? / self.segment;
        (slot < self.segments).then_some(slot)
    }

    /// Returns the length of the largest record.
    pub fn largest_record(&self) -> u64 {
        self.segment - 4 * BLOCK
    }

    /// Returns the length of the largest body.
    pub fn largest_body(&self) -> u64 {
        self.segments * self.segment / 4
    }

    pub(crate) fn superblock(&self) -> Aligned {
        let mut out = Vec::with_capacity(SUPERBLOCK);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&(BLOCK as u32).to_le_bytes());
        for number in [self.id, self.journal, self.segment, self.segments] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.created.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        Aligned::copy_of(&out)
    }

    fn decode(bytes: &[u8]) -> Result<Self, OpenError> {
        let mut reader = Reader::new(bytes);
        let magic: [u8; 8] = reader.array();
        if magic != *MAGIC {
            let is_empty = bytes.iter().all(|&byte| byte == 0);
            let rest = [MAGIC, &bytes[8..SUPERBLOCK - 8]].concat();
            let is_ours = bytes[SUPERBLOCK - 8..SUPERBLOCK] == XxHash3_64::oneshot(&rest).to_le_bytes();
            return Err(match (is_empty, is_ours) {
                (true, _) => OpenError::Empty,
                (false, true) => OpenError::Damaged,
                (false, false) => OpenError::Foreign,
            });
        }
        let version = reader.u32();
        let block = reader.u32();
        let [id, journal, segment, segments] = std::array::from_fn(|_| reader.u64());
        let created = f64::from_le_bytes(reader.array());
        let checksum = reader.u64();
        if !(FIRST_VERSION..=VERSION).contains(&version) {
            return Err(OpenError::UnknownVersion(version));
        }
        let is_sound = checksum == XxHash3_64::oneshot(&bytes[..SUPERBLOCK - 8])
            && u64::from(block) == BLOCK
            && (SEGMENT_MIN..=SEGMENT_MAX).contains(&segment)
            && segment.is_multiple_of(BLOCK)
            && (JOURNAL_MIN..=JOURNAL_MAX).contains(&journal)
            && journal.is_multiple_of(BLOCK)
            && (4..=LARGEST_SIZE / SEGMENT_MIN).contains(&segments)
            && created.is_finite();
        let layout = Self { id, journal, segment, segments, created, version };
        if is_sound && layout.size() <= LARGEST_SIZE { Ok(layout) } else { Err(OpenError::Damaged) }
    }

    /// Writes an empty store: both superblocks, and a journal without records. Segments of an earlier store are ignored,
    /// because their checksums depend on another id.
    pub fn create(&self, blocks: &dyn Blocks) -> io::Result<()> {
        let empty = Aligned::new(BLOCK as usize);
        for generation in 0..2 {
            blocks.write(self.journal_half(generation), empty.bytes())?;
        }
        blocks.sync()?;
        let superblock = self.superblock();
        blocks.write(BLOCK, superblock.bytes())?;
        blocks.write(0, superblock.bytes())?;
        blocks.sync()
    }

    /// Changes the version to the newest. When this returns without an error, no program that knows older versions alone
    /// reads the store. At any time, one of the superblocks is sound.
    pub(crate) fn raise_version(&self, blocks: &dyn Blocks) -> io::Result<()> {
        Self { version: VERSION, ..*self }.update_superblocks(blocks, &|_| {})
    }

    /// Writes both superblocks, first the copy, after `change` has changed the rest of their blocks. At any time, one of
    /// the superblocks is sound. When this returns without an error, the change is durable.
    pub(crate) fn update_superblocks(
        &self,
        blocks: &dyn Blocks,
        change: &dyn Fn(&mut [u8]),
    ) -> io::Result<()> {
        let superblock = self.superblock();
        for at in [BLOCK, 0] {
            let mut block = Aligned::new(BLOCK as usize);
            if blocks.read(at, block.bytes_mut()).is_err() {
                // The other one has the same contents.
                blocks.read(BLOCK - at, block.bytes_mut())?;
            }
            block.bytes_mut()[..SUPERBLOCK].copy_from_slice(&superblock.bytes()[..SUPERBLOCK]);
            change(block.bytes_mut());
            blocks.write(at, block.bytes())?;
            blocks.sync()?;
        }
        Ok(())
    }

    /// Returns the layout of the store without its contents: it has another id.
    pub(crate) fn renewed(&self, now: f64) -> Self {
        let id = XxHash3_64::oneshot_with_seed(self.id, &now.to_le_bytes()) ^ 1;
        Self { id: if id == self.id { !id } else { id }, created: now, ..*self }
    }

    /// Reads the blocks with the superblock and its copy apart, so that one is found if the other cannot be read.
    fn superblocks(blocks: &dyn Blocks) -> [io::Result<Aligned>; 2] {
        [0, BLOCK].map(|at| {
            let mut block = Aligned::new(BLOCK as usize);
            blocks.read(at, block.bytes_mut()).map(|()| block)
        })
    }

    /// Reads the blocks with the superblock and its copy. One of them may be missing, because it cannot be read. Fails if
    /// both cannot.
    pub(crate) fn readable_superblocks(blocks: &dyn Blocks) -> io::Result<Vec<Aligned>> {
        match Self::superblocks(blocks) {
            [Err(error), Err(_)] => Err(error),
            found => Ok(found.into_iter().flatten().collect()),
        }
    }

    /// Reads the superblock, or its copy if the first is damaged or cannot be read. If the first contains something else,
    /// that may be the newer owner of the device.
    pub fn open(blocks: &dyn Blocks) -> Result<Self, OpenError> {
        let has = blocks.size();
        if has < SUPERBLOCKS {
            return Err(if has == 0 { OpenError::Empty } else { OpenError::TooSmall(has) });
        }
        let [first, copy] = Self::superblocks(blocks)
            .map(|block| block.map_err(OpenError::Io).and_then(|block| Self::decode(block.bytes())));
        let layout = match first {
            Err(error) if !matches!(error, OpenError::Foreign) => copy.map_err(|_| error)?,
            first => first?,
        };
        if layout.size() > has {
            return Err(OpenError::Shrunk { needs: layout.size(), has });
        }
        Ok(layout)
    }

    /// Returns the checksum of bytes that belong at a log position (or another number that identifies the place).
    pub(crate) fn checksum(&self, place: u64, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.id ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
    }
}
