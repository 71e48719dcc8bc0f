//! Histograms of what the log reports: requests by their handling, fetches, and responses by class of status.

use std::collections::BTreeMap;

use lacquer_live::event::{Class, Event};

/// The upper limits of the buckets in seconds. The last bucket has none.
pub const LIMITS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
];

/// The resolution of native histograms: each limit is the one before it times the root of two of this degree.
pub const NATIVE_SCHEMA: i32 = 3;
const PER_DOUBLING: f64 = 8.0;
/// The limit of the bucket for zero and what is near it, in seconds.
pub const ZERO: f64 = 1e-6;
/// Longer durations count as this.
const LONGEST: f64 = 1e6;

/// The number of durations in each bucket, and their sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets {
    pub counts: [u64; LIMITS.len() + 1],
    pub sum: f64,
    /// The buckets of a native histogram, by the logarithm of their limits.
    pub native: BTreeMap<i32, u64>,
    /// Durations of at most [`ZERO`].
    pub zeroes: u64,
}

impl Buckets {
    fn add(&mut self, seconds: f64) {
        self.counts[LIMITS.partition_point(|limit| *limit < seconds)] += 1;
        self.sum += seconds;
        if seconds <= ZERO {
            self.zeroes += 1;
        } else {
            let index = (seconds.min(LONGEST).log2() * PER_DOUBLING).ceil() as i32;
            *self.native.entry(index).or_default() += 1;
        }
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Everything that was counted from the log since the process began.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// By handling: `hit`, `miss` and so on.
    pub requests: BTreeMap<&'static str, Buckets>,
    /// Times from a request to an origin to the first byte of its response.
    pub fetches: Buckets,
    pub failed_fetches: u64,
    /// Responses to clients by the first digit of their status; others are in the first place.
    pub responses: [u64; 6],
}

impl Latencies {
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Request(seen) => {
                self.requests.entry(seen.how).or_default().add(seen.wait);
                let class = usize::from(seen.status / 100);
                self.responses[if class < self.responses.len() { class } else { 0 }] += 1;
            }
            Event::Fetch(fetch) if fetch.status.is_some() => self.fetches.add(fetch.wait),
            Event::Fetch(_) => self.failed_fetches += 1,
        }
    }

    /// Returns the counts of hits and of requests that needed an origin, by bucket.
    pub fn by_class(&self) -> [[u64; LIMITS.len() + 1]; 2] {
        [Class::Hit, Class::Miss].map(|class| {
            let of_class = || self.requests.iter().filter(|(how, _)| Class::of(how) == class);
            std::array::from_fn(|at| of_class().map(|(_, buckets)| buckets.counts[at]).sum())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_live::event::{Seen, SeenFetch};

    #[test]
    fn durations_are_in_the_bucket_of_their_limit() {
        let mut all = Latencies::default();
        for wait in [0.0, 0.000_05, 0.001, 0.001_1, 11.0] {
            all.add(&Event::Request(Seen { how: "hit", wait, status: 200, ..Seen::default() }));
        }
        all.add(&Event::Request(Seen { how: "synth", status: 999, ..Seen::default() }));
        all.add(&Event::Fetch(SeenFetch { status: Some(200), wait: 0.2, ..SeenFetch::default() }));
        all.add(&Event::Fetch(SeenFetch::default()));
        let hits = &all.requests["hit"];
        assert_eq!((hits.counts[0], hits.counts[4], hits.counts[5], hits.counts[17]), (2, 1, 1, 1));
        // 1 ms is at most 2^(-79/8), and 11 s at most 2^(28/8).
        assert_eq!(hits.native, BTreeMap::from([(-114, 1), (-79, 1), (-78, 1), (28, 1)]));
        assert_eq!(hits.zeroes, 1);
        assert_eq!((hits.count(), all.fetches.count(), all.failed_fetches), (5, 1, 1));
        assert_eq!((all.responses[2], all.responses[0]), (5, 1));
        assert_eq!(all.by_class().map(|counts| counts.iter().sum::<u64>()), [5, 0]);
    }
}
