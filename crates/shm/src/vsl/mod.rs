//! The log in Varnish's format ("VSL"): records in a ring of shared memory.
//!
//! A transaction collects its records in a `TxLog` and writes them as one batch. `Log` is what all threads
//! share: the ring, the mask of dropped tags, the limits and the counters.

pub mod layout;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod mask;
pub mod notices;
mod numbering;
mod record;
mod record_buffer;
mod ring;
mod tag;
mod tag_table;
pub mod text;
mod txlog;
mod vxid;

pub use log::{Limits, Log};
pub use mask::{Mask, MaskError};
pub use numbering::Numbering;
pub use record::Field;
pub use tag::Flags;
pub use tag_table::Tag;
pub use txlog::TxLog;
pub use vxid::Vxid;

use layout::RECORD_HEAD;

/// Returns the bytes that a text of this length occupies in the log.
pub(crate) const fn padded(len: usize) -> usize {
    (len + 3) & !3
}

/// Returns the head of a batch of records, which contains their length and no transaction number.
pub(crate) fn batch_head(len: usize) -> [u8; RECORD_HEAD] {
    let mut head = [0; RECORD_HEAD];
    head[..4].copy_from_slice(&((Tag::_Batch as u32) << 24).to_ne_bytes());
    head[4..8].copy_from_slice(&(len as u32).to_ne_bytes());
    head
}

/// Returns a record's head, in native byte order.
#[inline(always)]
pub(crate) fn record_head(tag: Tag, len: usize, vxid: Vxid) -> [u8; RECORD_HEAD] {
    const VERSION_3: u32 = 1 << 16;
    let mut head = [0; RECORD_HEAD];
    head[..4].copy_from_slice(&((tag as u32) << 24 | VERSION_3 | len as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&(vxid.raw() as u32).to_ne_bytes());
    head[8..].copy_from_slice(&((vxid.raw() >> 32) as u32).to_ne_bytes());
    head
}
