//! A histogram of durations from a microsecond to days, in buckets that are 6 % wide.

const SUBS: u64 = 16;
const MAX_EXPONENT: u32 = 39;
const BUCKETS: usize = (MAX_EXPONENT as usize - 3) * SUBS as usize + SUBS as usize;

/// The limits of the rows that are shown, in seconds. The last row has none.
pub const LIMITS: [f64; 6] = [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    max: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; BUCKETS].into(), count: 0, max: 0.0 }
    }
}

/// Returns the bucket of a number of microseconds.
fn bucket(micros: u64) -> usize {
    if micros < SUBS {
        return micros as usize;
    }
    let exponent = micros.ilog2();
    if exponent > MAX_EXPONENT {
        return BUCKETS - 1;
    }
    let sub = (micros >> (exponent - 4)) % SUBS;
    (exponent as usize - 3) * SUBS as usize + sub as usize
}

/// Returns the greatest number of microseconds of a bucket.
fn limit(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUBS {
        return bucket;
    }
    let shift = bucket / SUBS - 1;
    ((SUBS + bucket % SUBS + 1) << shift) - 1
}

impl Histogram {
    pub fn add(&mut self, seconds: f64) {
        if !seconds.is_finite() {
            return;
        }
        let seconds = seconds.max(0.0);
        self.buckets[bucket((seconds * 1e6) as u64)] += 1;
        self.count += 1;
        self.max = self.max.max(seconds);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the duration in seconds that a part of all values does not exceed; `None` if there are none.
    pub fn percentile(&self, part: f64) -> Option<f64> {
        let rank = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut sum = 0;
        let is_reached = |count: &u64| {
            sum += count;
            sum >= rank
        };
        let at = self.buckets.iter().position(is_reached)?;
        Some((limit(at) as f64 / 1e6).min(self.max))
    }

    /// Returns the number of values up to each of the [`LIMITS`] and above the one before, and that above all.
    pub fn rows(&self) -> [u64; LIMITS.len() + 1] {
        let mut rows = [0; LIMITS.len() + 1];
        for (at, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let seconds = limit(at) as f64 / 1e6;
            // The limit of a bucket may be a little above that of its row.
            let row = LIMITS.iter().position(|limit| seconds <= limit * 1.05).unwrap_or(LIMITS.len());
            rows[row] += count;
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_durations_without_gaps() {
        for micros in (0..5000).chain((0..64).map(|shift| 1 << shift)).chain([u64::MAX]) {
            let at = bucket(micros);
            assert!(at < BUCKETS, "{micros}");
            if micros < 1 << MAX_EXPONENT {
                assert!(limit(at) >= micros && (at == 0 || limit(at - 1) < micros), "{micros}");
                assert!(limit(at) as f64 <= micros as f64 * 1.07 + 1.0, "{micros}");
            }
        }
    }

    #[test]
    fn percentiles_are_near() {
        let mut all = Histogram::default();
        assert_eq!((all.percentile(0.5), all.max()), (None, None));
        for number in 1..=1000 {
            all.add(f64::from(number) / 1000.0);
        }
        for (part, expected) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (1.0, 1.0), (0.0, 0.001)] {
            let found = all.percentile(part).expect("there are values");
            assert!((found / expected - 1.0).abs() < 0.07, "{part}: {found}");
        }
        let rows = all.rows();
        assert_eq!(rows.iter().sum::<u64>(), 1000);
        assert!(rows[1] >= 1 && rows[4].abs_diff(900) < 30, "{rows:?}");
        all.merge(&all.clone());
        assert_eq!((all.count(), all.max()), (2000, Some(1.0)));
    }

    #[test]
    fn damaged_durations_are_left_out() {
        let mut all = Histogram::default();
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.0] {
            all.add(seconds);
        }
        assert_eq!(all.count(), 3);
        assert!(all.percentile(0.99).is_some());
    }
}
