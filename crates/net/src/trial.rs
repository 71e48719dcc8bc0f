//! The first reuse of a connection to an origin. No other connection to this origin is reused until it came back and a
//! while after, or for a second: an origin that sends a second response after each one deceives one client, not as many
//! as it has connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use lacquer_sources::clock::Instant;

use crate::waiters::Waiters;

/// The longest time that others wait for the first reuse, in milliseconds.
const LONGEST: u64 = 1000;
/// Connections that an origin closes prove nothing. After so many there is no further trial.
const MOST_CLOSED: u32 = 2;
/// The same for reuses that do not end in order, because of the origin or of the client.
const MOST_RUNS: u32 = 16;
const NOT_BEGUN: u64 = 0;
const OVER: u64 = u64::MAX;

/// The progress of the first reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    NotBegun,
    /// For so many milliseconds more, at most.
    Runs(u64),
    Over,
}

/// Times are milliseconds since an origin was first seen.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The end of the trial, or one of the numbers above.
    until: AtomicU64,
    runs: AtomicU32,
    closed: AtomicU32,
}

/// The reuse that is on trial. If it is dropped, another connection is tried.
#[derive(Debug)]
pub(crate) struct Run {
    trial: Arc<Trial>,
    waiters: Arc<Waiters>,
    begun: Instant,
}

impl Run {
    pub(crate) fn new(trial: Arc<Trial>, waiters: Arc<Waiters>, begun: Instant) -> Run {
        Run { trial, waiters, begun }
    }

    /// The connection came back. Silence shows after `proof` that it did so in order.
    pub(crate) fn end(self, proof: Duration) {
        let at = (self.begun.elapsed() + proof).as_millis();
        self.trial.end(u64::try_from(at).unwrap_or(OVER - 1));
    }
}

impl Drop for Run {
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
                    return Stage::Runs(left);
                }
                // It may have been reset meanwhile.
                let _ = self.until.compare_exchange(until, OVER, Ordering::Relaxed, Ordering::Relaxed);
                Stage::Over
            }
        }
    }

    /// Begins; false if it has begun before.
    pub(crate) fn begin(&self, now: u64) -> bool {
        self.until.compare_exchange(NOT_BEGUN, now + LONGEST, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The connection came back: the trial ends at that time, or earlier.
    fn end(&self, at: u64) {
        self.runs.store(MOST_RUNS, Ordering::Relaxed);
        let sooner = |until| (until != NOT_BEGUN && until != OVER).then(|| at.min(until));
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sooner);
    }

    /// The connection is not used any more. Unless its reuse has ended, another one is tried, or none if too many were.
    fn abandon(&self) {
        let runs = self.runs.load(Ordering::Relaxed);
        if runs < MOST_RUNS {
            self.runs.store(runs + 1, Ordering::Relaxed);
            self.until.store(if runs + 1 < MOST_RUNS { NOT_BEGUN } else { OVER }, Ordering::Relaxed);
        }
    }

    /// The origin closed a connection, without a further byte, before a silence could prove anything.
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
    fn one_connection_is_tried_and_the_others_wait() {
        let trial = Trial::default();
        assert_eq!(trial.stage(|| 10), Stage::NotBegun);
        assert!(trial.begin(10) && !trial.begin(10));
        assert_eq!((trial.stage(|| 10), trial.stage(|| 60)), (Stage::Runs(1000), Stage::Runs(950)));
        trial.end(100);
        trial.abandon();
        assert_eq!((trial.stage(|| 60), trial.stage(|| 100)), (Stage::Runs(40), Stage::Over));
        assert_eq!(trial.stage(|| 60), Stage::Over, "it does not begin anew");
        trial.reset();
        trial.end(200);
        assert_eq!(trial.stage(|| 300), Stage::NotBegun);
        trial.reset();
        assert!(trial.begin(300));
        assert_eq!(trial.stage(|| 1300), Stage::Over);
    }

    #[test]
    fn connections_that_are_closed_are_tried_only_so_often() {
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
