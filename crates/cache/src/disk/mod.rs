//! Block stores behind the memory: complete objects are written to them, and lookups that find nothing in memory read
//! them.
//!
//! These rules exclude that an object comes back that was purged or replaced:
//!
//! - A purge removes the objects from the store, and collects those in memory, while it holds the lock of their shard.
//!   An object is passed to a store, and one from a store is published, under the same lock: a soft purge marks objects
//!   so that they are not passed to a store afterwards, and objects that left the index are not either. An object from a
//!   store is published only if the store still contains it.
//! - An object that is not stored removes the older ones of its key from all stores, and an object that is stored removes
//!   those that the same requests may match.
//! - A purge by tags is recorded by the stores, which test it when they read an object. From then until its end, no object
//!   with one of the tags is passed to a store. An object from a store is in the index of tags before the store states
//!   that it is not purged: the purge finds it there, or the store knows the purge.
//! - An object is passed to a store only if its head contains its tags.
//! - The parts of a body that is written while it is fetched are not found before the object is passed to the store, for
//!   which the same rules hold.
//!
//! Locks: a shard, then the ban list or the purges by tags in progress, then those of the store.

mod admission;
mod commit;
mod content;
mod extent;
mod lend;
mod lending;
mod load;
pub(crate) mod owner;
mod search;
mod spill;
mod stores;
mod tag_purges;
mod variant;

#[cfg(all(test, not(any(loom, miri))))]
pub(crate) use extent::MOST_BEGINNINGS;
pub use lacquer_disk::Ring;
pub use search::{DiskObject, DiskSearch, Predict, Reading};
pub use spill::Spill;
pub(crate) use stores::Disks;
pub use stores::{Disk, OpenDisks};
pub(crate) use tag_purges::TagPurge;
