//! Shared parts of tests and benchmarks: daemons, clients and origins on 127.0.0.1, and seeded random
//! numbers. No installed program depends on this crate.
#![forbid(unsafe_code)]

mod address;
pub mod admin;
pub mod client;
pub mod collector;
pub mod daemon;
pub mod dns;
mod effort;
mod folder;
pub mod h2;
pub mod machine;
pub mod management;
pub mod origin;
mod ran;
mod random;
pub mod raw;
pub mod recorder;
pub mod slots;
pub mod slow_store;
mod wait;

pub use address::free_address;
pub use effort::effort;
pub use folder::{Folder, copy_program, write_program};
pub use ran::Ran;
pub use random::{Random, key, rounds};
pub use wait::{LONGEST_HOLD, LONGEST_POLL, SOCKET_TIMEOUT, until, until_within};
