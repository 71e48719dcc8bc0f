//! The texts with the greatest durations, in bounded memory.
//!
//! A text that was dropped had a duration below all that are kept, so the maximum of each kept text is exact.

use lacquer_inspect::page::first_chars;

use crate::sketch::MAX_TEXT;

/// The slowest request of a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    pub text: String,
    /// The host and the URL that the client sent, if they differ from the text.
    pub asked: Option<String>,
    pub seconds: f64,
    pub status: u16,
    pub how: &'static str,
}

#[derive(Clone, Debug)]
pub struct Slowest {
    capacity: usize,
    /// The slowest first.
    all: Vec<Slow>,
}

impl Slowest {
    pub fn new(capacity: usize) -> Slowest {
        Slowest { capacity: capacity.max(1), all: Vec::new() }
    }

    /// Adds a request with its duration, status and handling, and what the client asked for.
    pub fn add(&mut self, text: &str, asked: Option<&str>, (seconds, status, how): (f64, u16, &'static str)) {
        let is_full = self.all.len() >= self.capacity;
        if !seconds.is_finite() || is_full && self.all.last().is_some_and(|last| last.seconds >= seconds) {
            return;
        }
        let text = first_chars(text, MAX_TEXT);
        if let Some(at) = self.all.iter().position(|slow| slow.text == text) {
            if self.all[at].seconds >= seconds {
                return;
            }
            self.all.remove(at);
        }
        let at = self.all.partition_point(|slow| slow.seconds >= seconds);
        let asked = asked.map(|asked| first_chars(asked, MAX_TEXT).to_owned());
        self.all.insert(at, Slow { text: text.to_owned(), asked, seconds, status, how });
        self.all.truncate(self.capacity);
    }

    pub fn all(&self) -> &[Slow] {
        &self.all
    }

    /// Keeps only some texts, by them and by what was asked for.
    pub fn retain(&mut self, is_kept: &dyn Fn(&str, Option<&str>) -> bool) {
        self.all.retain(|slow| is_kept(&slow.text, slow.asked.as_deref()));
    }

    /// Adds what another one has kept.
    pub fn merge(&mut self, other: &Slowest) {
        for slow in &other.all {
            self.add(&slow.text, slow.asked.as_deref(), (slow.seconds, slow.status, slow.how));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_testing::Random;
    use std::collections::HashMap;

    #[test]
    fn the_maximum_of_each_kept_text_is_exact() {
        let mut slowest = Slowest::new(10);
        let mut random = Random(3);
        let mut real = HashMap::<String, f64>::new();
        for _ in 0..20_000 {
            let (text, seconds) = (format!("/{}", random.below(200)), random.below(1_000_000) as f64);
            slowest.add(&text, None, (seconds, 200, "miss"));
            let max = real.entry(text).or_default();
            *max = max.max(seconds);
        }
        let mut expected: Vec<f64> = real.values().copied().collect();
        expected.sort_by(|a, b| b.total_cmp(a));
        let found: Vec<f64> = slowest.all().iter().map(|slow| slow.seconds).collect();
        assert_eq!(found, expected[..10]);
        assert!(slowest.all().iter().all(|slow| real[&slow.text] == slow.seconds));
        slowest.add("/nan", None, (f64::NAN, 200, "hit"));
        slowest.add(&"x".repeat(5000), None, (1e9, 200, "hit"));
        assert!(slowest.all().len() == 10 && slowest.all()[0].text.len() == MAX_TEXT);
    }
}
