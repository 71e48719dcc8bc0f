//! The worker before the current one, while it serves its last requests.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::process::Worker;

/// The time between reports of the memory that the old worker still uses.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A worker that was replaced, and serves its last requests.
#[derive(Debug)]
pub struct Retiring {
    pub(super) worker: Worker,
    pub(super) panic_file: Option<std::fs::File>,
    pub(super) since: Instant,
    pub(super) next_report: Instant,
}

impl Retiring {
    /// Returns the descriptor to poll for output.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.worker.output()
    }

    /// Returns the worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Returns the time of the next report of its memory.
    pub fn deadline(&self) -> Instant {
        self.next_report
    }
}
