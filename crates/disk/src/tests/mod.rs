//! Tests of the store over a simulated device.

mod device;
mod failure;
mod format;
mod health;
mod index;
mod reuse;
mod tags;
mod worlds;
