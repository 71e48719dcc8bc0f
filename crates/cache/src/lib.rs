//! The cache: the index of objects, the decision which of them serves a request, and their expiry and removal.
//!
//! All reactors share one [`Cache`]. [`Cache::lookup`] decides as Varnish does; a [`Busy`] token is the right and the
//! duty to fetch. A [`FrontTable`] lets one thread serve hits without locks. This crate uses no sockets and no clock:
//! times are passed in as seconds since the epoch, and waiting is a future.
//!
//! Lock order: a shard, then the ban list or a part of the tags, then (in `lacquer-storage`) a body, then its arena.
//! Objects are dropped and wakers are called with no lock held.

#![forbid(unsafe_code)]

mod ages;
mod alloc;
pub mod bans;
mod busy;
mod cache;
mod config;
mod descriptor;
pub mod disk;
mod durable;
mod evict;
mod evicted;
mod expiry;
mod expiry_events;
mod front;
mod heap;
pub mod invalidation;
mod key_purges;
mod locks;
mod lookup;
mod object;
mod object_ref;
mod parts;
mod purge;
mod reading;
mod recheck;
mod shard;
mod slab;
mod stats;
mod tags;
mod take_over;
mod waiter;
mod waiting;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use ages::{AGE_LIMITS, Ages};
pub use alloc::Nuke;
pub use busy::{Awaited, Busy};
pub use cache::Cache;
pub use config::{Config, Hooks};
pub use evicted::Evicted;
pub use front::FrontTable;
pub use lookup::{Lookup, LookupArgs};
pub use object::{Object, ObjectSpec, Timers, flag};
pub use object_ref::ObjRef;
pub use parts::PartCopy;
pub use purge::Purging;
pub use slab::Digest;
pub use stats::CacheStats;
pub use tags::{Tag, TagStats};
pub use take_over::Recovery;
pub use waiting::{Resumed, Wait};

pub use lacquer_storage::{BodyState, BodyWriter, Chunk, ChunkSizes, Full, Read, Stevedore, Stored};
