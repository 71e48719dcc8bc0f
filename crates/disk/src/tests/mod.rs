//! Tests of the store over a simulated device.

mod buffers;
mod device;
mod failure;
mod fetch;
mod format;
mod health;
mod in_memory;
mod index;
mod journal;
mod large;
mod ledger;
mod moves;
mod open_segment;
mod owner;
mod page;
mod queue;
mod restart;
mod reuse;
mod ring;
mod stream;
mod tags;
mod worlds;
