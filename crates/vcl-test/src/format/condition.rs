//! Conditions on texts and numbers.

use std::cmp::Ordering;
use std::fmt;

use lacquer_vcl_runtime::{Regex, RegexLimits};

/// Differences of numbers that do not count. Times in the log are rounded.
const TOLERANCE: f64 = 0.6;
const LIMITS: RegexLimits = RegexLimits { matches: 100_000, depth: 1000 };

/// A condition on a value, which may be missing.
#[derive(Debug)]
pub enum Condition {
    Is(Vec<u8>),
    IsNot(Vec<u8>),
    /// The pattern as written, compiled.
    Matches(String, Regex),
    MatchesNot(String, Regex),
    Present,
    Absent,
    /// A number, with the word as which it was written.
    Number(Ordering, f64, String),
}

impl Condition {
    /// Compiles a regular expression, which must match, or must not.
    pub fn pattern(pattern: &str, must_match: bool) -> Result<Condition, String> {
        let regex = Regex::new(pattern.as_bytes(), false)
            .map_err(|why| format!("the regular expression is wrong: {why}"))?;
        let pattern = pattern.to_owned();
        Ok(if must_match {
            Condition::Matches(pattern, regex)
        } else {
            Condition::MatchesNot(pattern, regex)
        })
    }

    /// Returns whether one of the values meets the condition; for negative conditions, whether all do.
    pub fn holds(&self, values: &[Vec<u8>]) -> bool {
        // A pattern that exceeds its limits matches nothing.
        let matches = |regex: &Regex, value: &Vec<u8>| regex.is_match(value, LIMITS) == Ok(true);
        match self {
            Condition::Is(wanted) => values.contains(wanted),
            Condition::IsNot(unwanted) => !values.contains(unwanted),
            Condition::Matches(_, regex) => values.iter().any(|value| matches(regex, value)),
            Condition::MatchesNot(_, regex) => !values.iter().any(|value| matches(regex, value)),
            Condition::Present => !values.is_empty(),
            Condition::Absent => values.is_empty(),
            Condition::Number(order, wanted, _) => {
                let number = |value: &Vec<u8>| std::str::from_utf8(value).ok()?.parse::<f64>().ok();
                values.iter().filter_map(number).any(|found| is_in_order(found, *order, *wanted))
            }
        }
    }
}

fn is_in_order(found: f64, order: Ordering, wanted: f64) -> bool {
    match order {
        Ordering::Less => found < wanted,
        Ordering::Equal => (found - wanted).abs() <= TOLERANCE,
        Ordering::Greater => found > wanted,
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = lacquer_inspect::page::short;
        match self {
            Condition::Is(value) => write!(f, "{}", shown(value)),
            Condition::IsNot(value) => write!(f, "not {}", shown(value)),
            Condition::Matches(pattern, _) => write!(f, "~ {pattern}"),
            Condition::MatchesNot(pattern, _) => write!(f, "!~ {pattern}"),
            Condition::Present => f.write_str("(any value)"),
            Condition::Absent => f.write_str("(none)"),
            Condition::Number(Ordering::Equal, _, word) => f.write_str(word),
            Condition::Number(Ordering::Less, _, word) => write!(f, "< {word}"),
            Condition::Number(Ordering::Greater, _, word) => write!(f, "> {word}"),
        }
    }
}
