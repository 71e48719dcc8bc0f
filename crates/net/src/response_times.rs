//! Response times on one connection. A response that arrives sooner than those before it may be an unsolicited one;
//! the real response to the request is then still on its way.

use std::time::Duration;

/// The maximum silence that is required, in microseconds.
const LONGEST_SILENCE: u64 = 10_000_000;
/// After this many responses with similar times, a quicker one is an outlier.
const STEADY_RESPONSES: u8 = 32;

/// Times are microseconds.
#[derive(Debug, Default)]
pub(crate) struct ResponseTimes {
    took: u64,
    /// Decaying bounds of the response times so far.
    slowest: u64,
    quickest: u64,
    /// The last response arrived much earlier than the slowest ones before it.
    is_early: bool,
    /// The last response arrived sooner than all of the many before it.
    is_outlier: bool,
    /// The number of consecutive responses that were not quicker than those before.
    regular: u8,
}

impl ResponseTimes {
    /// Adds the time from a request to the head of its response.
    pub(crate) fn add(&mut self, took: u64) {
        // On a shifted connection a response seems to take half the time on average: the origin began with it one
        // request earlier.
        self.is_early = took * 4 < self.slowest * 3;
        let is_quick = took * 8 < self.quickest * 7;
        self.is_outlier = is_quick && self.regular >= STEADY_RESPONSES;
        self.regular = if is_quick { 0 } else { self.regular.saturating_add(1) };
        self.slowest = took.max(self.slowest - self.slowest / 8);
        self.quickest =
            if self.quickest == 0 { took } else { took.min(self.quickest + self.quickest.div_ceil(1024)) };
        self.took = took;
    }

    pub(crate) fn took(&self) -> u64 {
        self.took
    }

    /// Returns whether the last response arrived much earlier than those before it.
    pub(crate) fn is_early(&self) -> bool {
        self.is_early
    }

    /// Returns how long the connection must stay silent to prove that no response is missing: longer than the last
    /// response took, or than those before it if the last one was early.
    pub(crate) fn required_silence(&self) -> Duration {
        let time = if self.is_early { self.slowest } else { self.took };
        Duration::from_micros((time * 3 / 2).min(LONGEST_SILENCE))
    }

    /// Returns the time within which the real response would arrive if the last one was unsolicited. `None` if the
    /// last response is not an outlier.
    pub(crate) fn outlier_delay(&self) -> Option<Duration> {
        self.is_outlier.then(|| Duration::from_micros(self.slowest * 3 / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_of(all: impl IntoIterator<Item = u64>) -> ResponseTimes {
        let mut times = ResponseTimes::default();
        all.into_iter().for_each(|millis| times.add(millis * 1000));
        times
    }

    #[test]
    fn silence_proves_something_if_it_is_longer_than_a_response() {
        let cases: [(&[u64], _); 5] =
            [(&[100], 150), (&[600], 900), (&[1600, 10], 2100), (&[9000, 10], 10_000), (&[100, 90], 135)];
        for (all, expected) in cases {
            assert_eq!(
                times_of(all.iter().copied()).required_silence(),
                Duration::from_millis(expected),
                "{all:?}"
            );
        }
    }

    #[test]
    fn a_quick_response_is_strange_where_others_took_the_same_time() {
        let steady = [4; STEADY_RESPONSES as usize];
        assert_eq!(times_of(steady).outlier_delay(), None);
        assert_eq!(
            times_of(steady.into_iter().chain([1])).outlier_delay(),
            Some(Duration::from_micros(5250))
        );
        assert_eq!(
            times_of(steady.into_iter().chain([9, 4])).outlier_delay(),
            None,
            "a slow one changes nothing"
        );
        assert_eq!(
            times_of(steady.into_iter().chain([1, 1])).outlier_delay(),
            None,
            "quick ones are common now"
        );
        let changing = (0..40).map(|n| if n % 16 == 0 { 1 } else { 4 });
        assert_eq!(times_of(changing.chain([1])).outlier_delay(), None);
    }
}
