//! The times that responses on one connection take. A response that comes sooner than those before may be unsolicited,
//! and the right one still under way.

use std::time::Duration;

/// The longest rest because of slow responses, in microseconds.
const LONGEST_REST: u64 = 500_000;
/// The same after a response that came early.
const LONGEST_REST_IF_EARLY: u64 = 10_000_000;
/// The number of responses of about the same time after which a quicker one is strange.
const RHYTHM: u8 = 32;

/// The pace of a connection. Times are in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    took: u64,
    /// The longest and the shortest time of a response, judged by those before.
    slowest: u64,
    quickest: u64,
    /// The last response came much earlier than the slowest ones before it.
    is_early: bool,
    /// The last response came sooner than any of many before it.
    is_strange: bool,
    /// The number of responses in a row that did not.
    timely: u8,
}

impl Pace {
    /// Records the time between a request and its response's head.
    pub(crate) fn add(&mut self, took: u64) {
        // On a connection that is out of step, a response takes half as long on average: its origin began with it one
        // request earlier.
        self.is_early = took * 4 < self.slowest * 3;
        let is_quick = took * 8 < self.quickest * 7;
        self.is_strange = is_quick && self.timely >= RHYTHM;
        self.timely = if is_quick { 0 } else { self.timely.saturating_add(1) };
        self.slowest = took.max(self.slowest - self.slowest / 8);
        self.quickest = if self.quickest == 0 { took } else { took.min(self.quickest + self.quickest / 32) };
        self.took = took;
    }

    pub(crate) fn took(&self) -> u64 {
        self.took
    }

    /// Returns the time that silence must last to prove that no response is missing.
    pub(crate) fn proof(&self) -> Duration {
        let rest = (self.took * 2).min(LONGEST_REST);
        let if_early = if self.is_early { (self.slowest * 2).min(LONGEST_REST_IF_EARLY) } else { 0 };
        Duration::from_micros(rest.max(if_early))
    }

    /// Returns whether the last response came so much earlier than others that the one it may stand in for could take
    /// longer than this.
    pub(crate) fn hides_longer_than(&self, limit: Duration) -> bool {
        self.is_early && Duration::from_micros(self.slowest * 2) > limit
    }

    /// Returns the time after which the response would be there that the last one may stand in for. `None` if there is
    /// nothing strange about the last one.
    pub(crate) fn strange(&self) -> Option<Duration> {
        self.is_strange.then(|| Duration::from_micros(self.slowest * 3 / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(all: impl IntoIterator<Item = u64>) -> Pace {
        let mut pace = Pace::default();
        all.into_iter().for_each(|millis| pace.add(millis * 1000));
        pace
    }

    #[test]
    fn silence_proves_something_if_it_is_longer_than_a_response() {
        let cases: [(&[u64], _); 5] =
            [(&[100], 200), (&[600], 500), (&[1600, 10], 2800), (&[9000, 10], 10_000), (&[100, 90], 180)];
        for (all, expected) in cases {
            assert_eq!(pace(all.iter().copied()).proof(), Duration::from_millis(expected), "{all:?}");
        }
        let second = Duration::from_secs(1);
        assert!(pace([1600, 10]).hides_longer_than(second) && !pace([160, 10]).hides_longer_than(second));
    }

    #[test]
    fn a_quick_response_is_strange_where_others_took_the_same_time() {
        let steady = [4; RHYTHM as usize];
        assert_eq!(pace(steady).strange(), None);
        assert_eq!(pace(steady.into_iter().chain([1])).strange(), Some(Duration::from_micros(5250)));
        assert_eq!(pace(steady.into_iter().chain([9, 4])).strange(), None, "a slow one changes nothing");
        assert_eq!(pace(steady.into_iter().chain([1, 1])).strange(), None, "quick ones are common now");
        let changing = (0..40).map(|n| if n % 16 == 0 { 1 } else { 4 });
        assert_eq!(pace(changing.chain([1])).strange(), None);
    }
}
