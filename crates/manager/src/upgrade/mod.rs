//! The upgrade: the daemon replaces itself by the program that is now in its file, without losing a request or an object.
//!
//! 1. The manager writes its state to a file in memory ([`state`]) and lets the new program check it: options,
//!    certificates, parameters and all VCL programs ([`begin`]). If it refuses, nothing has changed.
//! 2. The manager executes the new program in its place. The process id, the worker and all descriptors stay ([`adopt`]).
//! 3. The new manager starts a new worker, which takes over the objects and then the clients, as at
//!    `worker/handover.rs`. The old worker serves the requests that it has, and ends.

mod adopt;
mod begin;
mod outcome;
mod record;
mod state;

pub use adopt::Adopted;
pub use outcome::{Refusal, request};
pub use record::Upgrade;
pub use state::{ListenerState, StorageState, StoreState, WorkerState, take};

/// The hidden first arguments of the next program, before the number of the descriptor of the state.
pub const ARGUMENT: &str = "--upgrade-state=";
pub const CHECK_ARGUMENT: &str = "--check-upgrade-state=";
