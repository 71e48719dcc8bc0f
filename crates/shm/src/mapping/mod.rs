//! Memory shared with readers in other processes.
//!
//! The crate-wide rule that makes it sound: plain bytes are written only by the thread that was given the
//! range (by the directory when a segment is made, by the ring when a batch is reserved); everything that
//! is touched from two threads is an atomic word. Readers map the files read-only and tolerate torn data.
#![allow(unsafe_code)]

mod counters;
#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod system;

pub(crate) use counters::counter_set;
pub use counters::{Counter, CounterSet, LocalCounter, LocalSet};
#[cfg(loom)]
pub(crate) use modelled::{Mapping, View};
#[cfg(not(loom))]
pub(crate) use system::{Mapping, View};

/// The unit in which memory is given back.
pub(crate) const PAGE: usize = 4096;
