//! Storage: a memory arena over a file descriptor, and the data of objects in it.
//!
//! A [`Stevedore`] is a configured store. Its [`Arena`] maps a memfd (or a file) once and allocates spans. A
//! [`Stored`] is the head and body of an object: one span when it is small and complete, a growing list of spans
//! while it is fetched. A complete body may also be on a [`Device`], and only partly in memory. All memory is
//! reference counted, so a page is reused only after its last reader has released it, and never before the kernel
//! has: see `Span::mark_sent`.
//!
//! Lock order within the crate: the lock of a body or that of its loaded parts, then the locks of its arena. No lock is
//! held during a system call that can take long, nor while wakers or a device are called.

mod arena;
mod bits;
mod blocks;
mod body;
mod chunk;
mod copy;
mod delivery;
mod device;
#[cfg(all(test, not(loom)))]
mod device_tests;
mod dirty;
mod first;
mod full;
mod handover;
#[cfg(all(test, not(loom), not(miri)))]
mod handover_tests;
#[cfg(all(test, not(loom), not(miri)))]
mod hostile_tests;
mod kept;
mod kept_files;
#[cfg(all(test, not(loom), not(miri)))]
mod kept_tests;
mod load;
#[cfg(all(test, loom))]
mod loom_tests;
mod mapping;
mod part_memory;
mod piece;
mod pins;
mod record;
mod records;
mod residency;
mod runs;
mod slabs;
mod span;
mod stevedore;
mod stored;
mod sync;
#[cfg_attr(miri, path = "system_miri.rs")]
mod system;
#[cfg(test)]
mod test_reader;
#[cfg(all(test, not(loom)))]
mod tests;
mod transfer;
#[cfg(all(test, not(loom)))]
mod transfer_tests;
mod wait;
mod waiters;

pub use arena::{Arena, Counters, Full, KeptFiles};
pub use body::{BodyState, BodyWriter, ChunkSizes};
pub use chunk::Chunk;
pub use delivery::Delivery;
pub use device::{Committed, Device, Recovered, Writing};
pub use first::Parts;
pub use kept::{KeptNote, KeptObject, Note, Taken};
pub use kept_files::UnusedFiles;
pub use load::{Extent, Load};
pub use record::Record;
pub use span::FileRange;
pub use stevedore::{Kind, Layout, Stevedore};
pub use stored::{Read, Stored};
pub use transfer::Transfer;
pub use wait::Wait;
