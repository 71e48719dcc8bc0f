//! Earlier values of counters, from which rates follow.

use std::collections::VecDeque;

/// Values of the last minute and the present one. Two kept values are at least `spacing` seconds apart.
#[derive(Clone, Debug)]
pub struct History<T> {
    spacing: f64,
    samples: VecDeque<(f64, T)>,
    present: Option<(f64, T)>,
}

/// For how long values are kept, in seconds.
const SPAN: f64 = 60.0;

impl<T: Clone> History<T> {
    pub fn new(spacing: f64) -> History<T> {
        History { spacing, samples: VecDeque::new(), present: None }
    }

    pub fn add(&mut self, now: f64, value: T) {
        let is_due = self.samples.back().is_none_or(|(at, _)| now - at >= self.spacing);
        if is_due {
            self.samples.push_back((now, value.clone()));
        }
        // One value that is as old as the span is needed.
        while self.samples.get(1).is_some_and(|(at, _)| now - at >= SPAN) {
            self.samples.pop_front();
        }
        self.present = Some((now, value));
    }

    /// Forgets everything: the counters begin again.
    pub fn clear(&mut self) {
        self.samples.clear();
        self.present = None;
    }

    pub fn present(&self) -> Option<&T> {
        self.present.as_ref().map(|(_, value)| value)
    }

    /// Returns the value so many seconds before the present one, or the oldest one, and the seconds since then.
    pub fn before(&self, seconds: f64) -> Option<(f64, &T)> {
        let (now, _) = self.present.as_ref()?;
        // Counters are read a little early or late.
        let is_old = |(at, _): &&(f64, T)| now - at >= seconds - self.spacing / 2.0;
        let (at, value) = self.samples.iter().rev().find(is_old).or(self.samples.front())?;
        Some((now - at, value))
    }

    /// Returns the kept values with their times, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &(f64, T)> {
        self.samples.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_minute_are_kept() {
        let mut history = History::new(1.0);
        assert!(history.before(10.0).is_none());
        history.add(0.0, 0);
        assert_eq!(history.before(10.0), Some((0.0, &0)));
        for tenth in 1..2000 {
            history.add(f64::from(tenth) / 10.0, tenth);
            assert!(history.samples.len() <= 62, "{}", history.samples.len());
        }
        let (elapsed, value) = history.before(10.0).expect("it is known");
        assert!((9.5..11.0).contains(&elapsed) && (1880..1910).contains(value), "{elapsed} {value}");
        let (elapsed, _) = history.before(60.0).expect("it is known");
        assert!((59.5..61.5).contains(&elapsed), "{elapsed}");
        assert_eq!(history.present(), Some(&1999));
        history.clear();
        assert!(history.before(1.0).is_none() && history.all().next().is_none());
    }
}
