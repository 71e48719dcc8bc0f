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
//! - Objects with tags are not stored, because a purge by tags would not find them.
//!
//! Locks: a shard, then the ban list, then those of the store.

mod admission;
mod commit;
mod content;
mod extent;
mod load;
mod owner;
mod search;
mod stores;
mod variant;

pub use lacquer_disk::Ring;
pub use search::{DiskObject, DiskSearch, Reading};
pub(crate) use stores::Disks;
pub use stores::{Disk, OpenDisks};
