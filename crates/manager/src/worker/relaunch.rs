//! The schedule for repeating a failed launch: soon at first, then at growing intervals, without an end.

use std::time::{Duration, Instant};

use super::inheritance::Inheritance;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Tracks failed launches, and the memory that a worker leaves to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relaunch {
    due: Option<Instant>,
    pause: Duration,
    inheritance: Inheritance,
}

impl Relaunch {
    /// Records a failed launch. Returns the pause before the next one.
    pub fn failed(&mut self, now: Instant) -> Duration {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.due = Some(now + self.pause);
        self.pause
    }

    /// Forgets failures, after a successful launch or when no worker is wanted.
    pub fn reset(&mut self) {
        (self.due, self.pause) = (None, Duration::ZERO);
    }

    /// Returns the state of the workers' memory.
    pub fn inheritance(&mut self) -> &mut Inheritance {
        &mut self.inheritance
    }

    pub fn inheritance_ref(&self) -> &Inheritance {
        &self.inheritance
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
