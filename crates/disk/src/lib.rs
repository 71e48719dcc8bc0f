//! The block store: objects on a disk, a raw device or in a file, that survive the end of all processes and cuts of
//! power.
//!
//! Objects are appended to segments. The index in memory has 24 bytes for each. A journal contains what must not be
//! forgotten. `layout`, `record`, `segment` and `journal` describe the format, and `docs/storage.md` draws it.
//!
//! The store keeps these rules:
//!
//! - Bytes are passed on only after their checksum was verified. It depends on the store, the log position and the
//!   place in the object, so that a block in a wrong place is detected.
//! - A purge or ban whose hold was dropped is in the journal. No later start finds an object that it concerns.
//! - A log position is used once. The index contains a position only after its record was written.
//! - A segment is not reused while a response is sent from it.
//!
//! Locks: the journal's cursor, then the state, then a shard of the index. Only the cursor is held during a read or
//! write.

#![forbid(unsafe_code)]

mod ahead;
mod append;
mod bans;
mod blocks;
mod buffers;
mod candidates;
mod commit;
mod file;
mod health;
mod index;
mod journal;
mod known_tags;
mod large;
mod large_write;
mod layout;
mod load;
mod membership;
mod moves;
mod part_stream;
mod read;
mod readers;
mod reclaim;
mod record;
mod recover;
mod report;
mod retire;
mod running;
mod segment;
mod state;
mod stats;
mod store;
mod stream;
mod tag_purges;
mod writer;

#[cfg(test)]
mod tests;

pub use blocks::{Aligned, BLOCK, Blocks};
pub use commit::Committed;
pub use file::{FileDevice, enlarge, open_file, path_of};
pub use health::{Cause, Event, Operation, Reason};
pub use index::{Entry, Index, are_rivals, have_same_names, variant};
pub use journal::Ban;
pub use lacquer_rings::Ring;
pub use layout::{FIRST_VERSION, LEAST_SIZE, Layout, OpenError, VERSION};
pub use load::Receiver;
pub use membership::{Joined, Membership};
pub use part_stream::PartStream;
pub use read::{Loaded, StoredBody};
pub use record::{Fields, Key, Meta, Parts, fingerprint, record_len};
pub use report::{CLASSES, JournalReport, Report, UsedSegments, class_limit, report};
pub use running::Running;
pub use state::{Content, Dropped, Hold, Phase};
pub use stats::Stats;
pub use store::{Candidate, Figures, Options, Owner, Past, Store};
pub use stream::PartSource;
pub use writer::{Step, Writer};
