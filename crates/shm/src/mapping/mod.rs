//! Memory shared with readers in other processes.
//!
//! This crate-wide rule makes it sound: a range of plain bytes is written only by the thread that owns it (the range of
//! a new segment belongs to the thread that creates it, that of a batch to the thread that reserved it in the ring).
//! Everything that two threads access is an atomic word. Readers map the files read-only and tolerate torn data.
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

/// The unit in which memory is released.
pub(crate) const PAGE: usize = 4096;
