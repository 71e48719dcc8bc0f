//! The mark: the length that the journal had a moment ago, or at a clean end. A start that finds fewer groups knows that
//! some are lost, and that the last ones are not merely torn. Only what was written after the mark can be torn.
//!
//! Each block with a superblock contains it at byte 1024. Earlier programs write zeros there or leave it as it is. Both
//! are allowed: a journal only grows or gets a higher generation.
//!
//! ```text
//! u64 generation | u64 number of groups in the half | u64 checksum of the preceding bytes      (little endian)
//! ```

use std::io;

use crate::blocks::{Blocks, Reader};
use crate::layout::Layout;

const OFFSET: usize = 1024;
const LENGTH: usize = 3 * 8;
/// The place for the checksum, which no log position has.
const PLACE: u64 = u64::from_le_bytes(*b"journal\0");

/// A length of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) generation: u64,
    /// The number of groups in the half of this generation.
    pub(crate) number: u64,
}

impl Mark {
    /// Reads the mark of a store. Without one, returns that of an empty journal.
    pub(crate) fn read(layout: &Layout, blocks: &dyn Blocks) -> io::Result<Self> {
        let found = Layout::readable_superblocks(blocks)?;
        Ok(found.iter().map(|block| Self::decode(layout, block.bytes())).max().unwrap_or_default())
    }

    fn decode(layout: &Layout, block: &[u8]) -> Self {
        let bytes = &block[OFFSET..OFFSET + LENGTH];
        let mut reader = Reader::new(bytes);
        let [generation, number, checksum] = std::array::from_fn(|_| reader.u64());
        let is_sound = checksum == layout.checksum(PLACE, &bytes[..LENGTH - 8]);
        if is_sound { Self { generation, number } } else { Self::default() }
    }

    /// Writes the mark. When this returns without an error, it is durable.
    pub(crate) fn write(&self, layout: &Layout, blocks: &dyn Blocks) -> io::Result<()> {
        let mut out = Vec::with_capacity(LENGTH);
        for number in [self.generation, self.number] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&layout.checksum(PLACE, &out).to_le_bytes());
        layout.update_superblocks(blocks, &|block| block[OFFSET..OFFSET + LENGTH].copy_from_slice(&out))
    }
}
