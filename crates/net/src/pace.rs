//! The times that the responses on one connection take. A response that comes sooner than those before may be one that
//! nobody asked for; then the response to the request is still on the way.

use std::time::Duration;

/// No silence needs to be longer than this, in microseconds.
const LONGEST_PROOF: u64 = 10_000_000;
/// After so many responses that took about the same time, one that is quicker is strange.
const RHYTHM: u8 = 32;

/// Times are microseconds.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    took: u64,
    /// The time that a response may take, and the least that it takes, judged by those before.
    slowest: u64,
    quickest: u64,
    /// The last response came much earlier than the slowest ones before it.
    is_early: bool,
    /// It came sooner than any of many before it.
    is_strange: bool,
    /// Responses in a row that did not.
    timely: u8,
}

impl Pace {
    /// A response's head came so long after its request.
    pub(crate) fn add(&mut self, took: u64) {
        // Out of step, a response takes half as long on average: its origin began with it one request earlier.
        self.is_early = took * 4 < self.slowest * 3;
        let is_quick = took * 8 < self.quickest * 7;
        self.is_strange = is_quick && self.timely >= RHYTHM;
        self.timely = if is_quick { 0 } else { self.timely.saturating_add(1) };
        self.slowest = took.max(self.slowest - self.slowest / 8);
        self.quickest =
            if self.quickest == 0 { took } else { took.min(self.quickest + self.quickest.div_ceil(1024)) };
        self.took = took;
    }

    pub(crate) fn took(&self) -> u64 {
        self.took
    }

    /// Returns whether the last response came much earlier than those before it.
    pub(crate) fn is_early(&self) -> bool {
        self.is_early
    }

    /// Returns how long silence must last to show that no response is missing: longer than the last one took, or than
    /// those before it if it came early.
    pub(crate) fn proof(&self) -> Duration {
        let time = if self.is_early { self.slowest } else { self.took };
        Duration::from_micros((time * 3 / 2).min(LONGEST_PROOF))
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
            [(&[100], 150), (&[600], 900), (&[1600, 10], 2100), (&[9000, 10], 10_000), (&[100, 90], 135)];
        for (all, expected) in cases {
            assert_eq!(pace(all.iter().copied()).proof(), Duration::from_millis(expected), "{all:?}");
        }
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
