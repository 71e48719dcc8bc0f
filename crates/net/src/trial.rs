//! The trial: the first reuse of a connection to an origin. No other connection to this origin is reused until that
//! connection is back in the pool and the required silence has passed, or for a second. An origin that sends a second
//! response after each one thus misleads one client, not as many as it has connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;

use crate::waiters::Waiters;

/// The maximum time that other requests wait for the first reuse, in milliseconds.
const LONGEST: u64 = 1000;
/// Connections that an origin closes prove nothing. After this many there is no trial anymore.
const MOST_CLOSED: u32 = 2;
/// The same limit for reuses that are aborted by the origin or the client.
const MOST_RUNS: u32 = 16;
const NOT_BEGUN: u64 = 0;
const OVER: u64 = u64::MAX;

/// The progress of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    NotBegun,
    /// Ends after this many milliseconds at the latest.
    Running(u64),
    Over,
}

/// Times are milliseconds since the origin was first seen.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The end of the trial, or `NOT_BEGUN` or `OVER`.
    until: AtomicU64,
    runs: AtomicU32,
    closed: AtomicU32,
}

/// The reuse that is on trial. If this is dropped without an end, another connection is tried.
#[derive(Debug)]
pub(crate) struct TrialGuard {
    trial: Arc<Trial>,
    waiters: Arc<Waiters>,
    begun: Instant,
}

impl TrialGuard {
    pub(crate) fn new(trial: Arc<Trial>, waiters: Arc<Waiters>, begun: Instant) -> TrialGuard {
        TrialGuard { trial, waiters, begun }
    }

    /// Records that the connection is back in the pool. A silence of `silence` from now on is the proof.
    pub(crate) fn end(self, silence: Duration) {
        let at = (self.begun.elapsed() + silence).as_millis();
        self.trial.end(u64::try_from(at).unwrap_or(OVER - 1));
    }
}

impl Drop for TrialGuard {
    fn drop(&mut self) {
        self.trial.abandon();
        self.waiters.wake_all();
    }
}

impl Trial {
    pub(crate) fn stage(&self, now: impl FnOnce() -> u64) -> Stage {
        match self.until.load(Ordering::Relaxed) {
            OVER => Stage::Over,
            NOT_BEGUN => Stage::NotBegun,
            until => {
                let left = until.saturating_sub(now());
                if left > 0 {
                    return Stage::Running(left);
                }
                // The trial may have been reset concurrently.
                let _ = self.until.compare_exchange(until, OVER, Ordering::Relaxed, Ordering::Relaxed);
                Stage::Over
            }
        }
    }

    /// Begins the trial. Returns false if it has already begun.
    pub(crate) fn begin(&self, now: u64) -> bool {
        self.until.compare_exchange(NOT_BEGUN, now + LONGEST, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Ends the trial at `at`, or earlier if it ends earlier anyway.
    fn end(&self, at: u64) {
        self.runs.store(MOST_RUNS, Ordering::Relaxed);
        let sooner = |until| (until != NOT_BEGUN && until != OVER).then(|| at.min(until));
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sooner);
    }

    /// Records that the connection is not used anymore. Unless its reuse had ended, another connection is tried, up
    /// to `MOST_RUNS`.
    fn abandon(&self) {
        let runs = self.runs.load(Ordering::Relaxed);
        if runs < MOST_RUNS {
            self.runs.store(runs + 1, Ordering::Relaxed);
            self.until.store(if runs + 1 < MOST_RUNS { NOT_BEGUN } else { OVER }, Ordering::Relaxed);
        }
    }

    /// Records that the origin closed a connection, without a further byte, before a silence could prove anything.
    pub(crate) fn closed(&self) {
        if self.until.load(Ordering::Relaxed) == NOT_BEGUN
            && self.closed.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_CLOSED
        {
            self.until.store(OVER, Ordering::Relaxed);
        }
    }

    pub(crate) fn reset(&self) {
        self.runs.store(0, Ordering::Relaxed);
        self.closed.store(0, Ordering::Relaxed);
        self.until.store(NOT_BEGUN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_wait_while_one_connection_is_on_trial() {
        let trial = Trial::default();
        assert_eq!(trial.stage(|| 10), Stage::NotBegun);
        assert!(trial.begin(10) && !trial.begin(10));
        assert_eq!((trial.stage(|| 10), trial.stage(|| 60)), (Stage::Running(1000), Stage::Running(950)));
        trial.end(100);
        trial.abandon();
        assert_eq!((trial.stage(|| 60), trial.stage(|| 100)), (Stage::Running(40), Stage::Over));
        assert_eq!(trial.stage(|| 60), Stage::Over, "it does not begin anew");
        trial.reset();
        trial.end(200);
        assert_eq!(trial.stage(|| 300), Stage::NotBegun);
        trial.reset();
        assert!(trial.begin(300));
        assert_eq!(trial.stage(|| 1300), Stage::Over);
    }

    #[test]
    fn the_number_of_failed_trials_is_limited() {
        let trial = Trial::default();
        for _ in 0..MOST_RUNS {
            assert!(trial.begin(10));
            trial.abandon();
        }
        assert_eq!(trial.stage(|| 10), Stage::Over);
        trial.reset();
        trial.closed();
        assert_eq!(trial.stage(|| 10), Stage::NotBegun);
        trial.closed();
        assert_eq!(trial.stage(|| 10), Stage::Over);
    }
}
