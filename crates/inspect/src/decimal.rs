//! Numbers in the log, whose digits are copied: to parse and format them would take longer than the rest of a line.

use std::fmt::Write as _;

use crate::dates::Moment;

/// A number of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decimal<'a> {
    /// Digits before and after a point, in a form that JSON has too. The number is the place of the point.
    Digits(&'a str, usize),
    Other(f64),
}

impl<'a> Decimal<'a> {
    pub const ZERO: Decimal<'static> = Decimal::Other(0.0);

    pub fn parse(text: &'a [u8]) -> Option<Decimal<'a>> {
        let text = std::str::from_utf8(text).ok()?;
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let digits = text.split_once('.').filter(|(whole, decimals)| {
            is_digits(whole) && is_digits(decimals) && (*whole == "0" || !whole.starts_with('0'))
        });
        match digits {
            Some((whole, _)) => Some(Decimal::Digits(text, whole.len())),
            None => text.parse().ok().map(Decimal::Other),
        }
    }

    pub fn value(self) -> f64 {
        match self {
            Decimal::Digits(text, _) => text.parse().unwrap_or(f64::NAN),
            Decimal::Other(number) => number,
        }
    }

    /// Returns the moment, if it is a number of seconds since the epoch.
    pub fn moment(self) -> Moment {
        match self {
            Decimal::Digits(text, point) => {
                let (whole, decimals) = (&text[..point], &text[point + 1..]);
                let thousandths = decimals.bytes().chain(*b"000").take(3);
                let thousandths = thousandths.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
                Moment::new(whole.parse().unwrap_or(i64::MAX), thousandths)
            }
            Decimal::Other(number) => Moment::of(number),
        }
    }

    /// Appends the number as JSON, or null.
    pub fn add_json(self, line: &mut String) {
        match self {
            Decimal::Digits(text, point) => {
                // A zero remains behind the point.
                let end = text.trim_end_matches('0').len().max(point + 2);
                line.push_str(&text[..end]);
            }
            Decimal::Other(number) if number.is_finite() => {
                let _ = write!(line, "{number:?}");
            }
            Decimal::Other(_) => line.push_str("null"),
        }
    }

    /// Appends the number with as many decimals as it needs.
    pub fn add_text(self, line: &mut String) {
        match self {
            Decimal::Digits(text, _) => {
                line.push_str(text.trim_end_matches('0').trim_end_matches('.'));
            }
            Decimal::Other(number) => {
                let _ = write!(line, "{number}");
            }
        }
    }

    /// Appends the number with six decimals.
    pub fn add_six(self, line: &mut String) {
        match self {
            Decimal::Digits(text, point) if text.len() == point + 7 => line.push_str(text),
            _ => {
                let _ = write!(line, "{:.6}", self.value());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_value() {
        for (text, json, plain, six) in [
            ("1709164799.250000", "1709164799.25", "1709164799.25", "1709164799.250000"),
            ("0.000021", "0.000021", "0.000021", "0.000021"),
            ("0.0", "0.0", "0", "0.000000"),
            ("100.000000", "100.0", "100", "100.000000"),
            ("7", "7.0", "7", "7.000000"),
            ("-0.5", "-0.5", "-0.5", "-0.500000"),
            ("00.5", "0.5", "0.5", "0.500000"),
            (".5", "0.5", "0.5", "0.500000"),
            ("NaN", "null", "NaN", "NaN"),
            ("inf", "null", "inf", "inf"),
        ] {
            let number = Decimal::parse(text.as_bytes()).expect(text);
            let mut lines = [String::new(), String::new(), String::new()];
            number.add_json(&mut lines[0]);
            number.add_text(&mut lines[1]);
            number.add_six(&mut lines[2]);
            assert_eq!(lines, [json, plain, six], "{text}");
            let value: f64 = text.parse().expect(text);
            assert!(number.value() == value || value.is_nan(), "{text}");
            if let Ok(read) = serde_json::from_str::<f64>(json) {
                assert!(read == value, "{text}");
            }
        }
        for text in ["", ".", "1.2.3", "x", "1.x"] {
            assert_eq!(Decimal::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Decimal::parse(b"\xff"), None);
    }

    #[test]
    fn moments_have_their_thousandths() {
        let moment = |text: &str| Decimal::parse(text.as_bytes()).expect(text).moment();
        assert_eq!(moment("1709164799.26"), Moment::new(1_709_164_799, 260));
        assert_eq!(moment("1709164799.259999"), Moment::new(1_709_164_799, 259));
        assert_eq!(moment("7"), Moment::new(7, 0));
        assert_eq!(moment("99999999999999999999.0"), Moment::of(f64::MAX));
        assert_eq!(moment("NaN"), Moment::of(0.0));
    }
}
