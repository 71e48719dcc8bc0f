//! The first reuse of a connection to an origin. Until its response came in order, no other connection to this origin
//! is reused. An origin that sends a second response after each one then affects one client, not one for each of its
//! connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// The longest time that other requests wait for the first reuse, in milliseconds.
const LONGEST: u64 = 300;
const NOT_BEGUN: u64 = 0;
const OVER: u64 = u64::MAX;

/// The stage of the first reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    NotBegun,
    /// It runs for at most so many milliseconds more.
    Runs(u64),
    Over,
}

/// The trial of an origin. Times are milliseconds since the origin was first seen.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The end of the trial, or one of the numbers above.
    until: AtomicU64,
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
                // Another thread may have reset it meanwhile.
                let _ = self.until.compare_exchange(until, OVER, Ordering::Relaxed, Ordering::Relaxed);
                Stage::Over
            }
        }
    }

    /// Begins the trial. Returns false if it has begun before.
    pub(crate) fn begin(&self, now: u64) -> bool {
        self.until.compare_exchange(NOT_BEGUN, now + LONGEST, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Records the connection's return: the trial ends at that time, or earlier.
    pub(crate) fn end(&self, at: u64) {
        let sooner = |until| (until != NOT_BEGUN && until != OVER).then(|| at.min(until));
        let _ = self.until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sooner);
    }

    pub(crate) fn reset(&self) {
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
        assert_eq!((trial.stage(|| 10), trial.stage(|| 60)), (Stage::Runs(300), Stage::Runs(250)));
        trial.end(100);
        assert_eq!((trial.stage(|| 60), trial.stage(|| 100)), (Stage::Runs(40), Stage::Over));
        assert_eq!(trial.stage(|| 60), Stage::Over, "it does not begin anew");
        trial.reset();
        trial.end(200);
        assert_eq!(trial.stage(|| 300), Stage::NotBegun);
        assert!(trial.begin(300));
        assert_eq!(trial.stage(|| 600), Stage::Over);
    }
}
