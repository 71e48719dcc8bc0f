//! Tests for a user's VCL: requests in, expectations out. The real engine runs them, with simulated clients and origins
//! and a simulated clock.
//!
//! [`mod@format`] is the format of test files, [`check`] runs them, and [`report`] shows the results. It is a program of its
//! own, because the parts of the engine that a simulation needs must not be in the daemon.
#![forbid(unsafe_code)]

mod claim;
mod evidence;
mod folder;
pub mod format;
mod judge;
mod message;
mod origin;
mod panics;
mod program;
pub mod report;
mod run;
mod runner;
mod suggest;
mod world;

pub use judge::Mismatch;
pub use runner::{File, Results, Settings, TestResult, check};
