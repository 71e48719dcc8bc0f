//! The times at which a failed launch is repeated: soon at first, then at growing intervals, without an end.

use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Tracks failed launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relaunch {
    due: Option<Instant>,
    pause: Duration,
}

impl Relaunch {
    /// Records a failed launch; returns the pause before the next one.
    pub fn failed(&mut self, now: Instant) -> Duration {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.due = Some(now + self.pause);
        self.pause
    }

    /// Forgets failures: a launch succeeded, or none is wanted.
    pub fn reset(&mut self) {
        *self = Relaunch::default();
    }

    /// Returns the time of the next attempt, if a launch failed.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_never_end() {
        let (mut relaunch, now) = (Relaunch::default(), Instant::now());
        assert_eq!(relaunch.due(), None);
        let pauses: Vec<u128> = (0..9).map(|_| relaunch.failed(now).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        for _ in 0..1000 {
            assert_eq!(relaunch.failed(now), LONGEST_PAUSE);
        }
        assert_eq!(relaunch.due(), Some(now + LONGEST_PAUSE));
        relaunch.reset();
        assert_eq!(relaunch.failed(now), FIRST_PAUSE);
    }
}
