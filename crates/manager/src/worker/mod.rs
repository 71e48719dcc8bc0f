//! The worker from the manager's side: a process, the link to it, and its output on stdout and stderr.

mod addresses;
mod child;
mod departure;
mod end;
mod handover;
pub mod inheritance;
mod lines;
mod process;
mod relaunch;
mod requests;
mod retiring;
mod state;
mod supervise;
mod survival;

pub use addresses::Addresses;
pub use process::Worker;
pub use relaunch::Relaunch;
pub use retiring::Retiring;
pub use state::State;
