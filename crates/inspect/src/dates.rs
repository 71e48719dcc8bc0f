//! Times as dates, in UTC.

use lacquer_http::date::{Civil, MONTHS};

/// The last second of the year 9999.
const LAST: i64 = 253_402_300_799;

/// A time with its thousandths, in the years 1970 to 9999.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    seconds: i64,
    thousandths: u64,
}

impl Moment {
    /// Times of other years become the first or the last one.
    pub fn new(seconds: i64, thousandths: u64) -> Moment {
        let thousandths = if (0..LAST).contains(&seconds) { thousandths % 1000 } else { 0 };
        Moment { seconds: seconds.clamp(0, LAST), thousandths }
    }

    /// Returns the moment of a number of seconds since the epoch.
    pub fn of(at: f64) -> Moment {
        let millionths = (at.clamp(0.0, LAST as f64) * 1e6).round() as i64;
        Moment::new(millionths / 1_000_000, (millionths / 1000 % 1000) as u64)
    }

    /// Appends the time in the format of RFC 3339, in UTC.
    pub fn add_utc(self, text: &mut String) {
        let date = Civil::at(self.seconds);
        add_digits(text, date.year as u64, 4);
        for (mark, number) in
            [('-', date.month), ('-', date.day), ('T', date.hour), (':', date.minute), (':', date.second)]
        {
            text.push(mark);
            add_digits(text, number as u64, 2);
        }
        text.push('.');
        add_digits(text, self.thousandths, 3);
        text.push('Z');
    }

    /// Appends the time as the common log format does.
    pub fn add_clf(self, text: &mut String) {
        let date = Civil::at(self.seconds);
        add_digits(text, date.day as u64, 2);
        text.push('/');
        text.push_str(MONTHS[date.month as usize - 1]);
        text.push('/');
        add_digits(text, date.year as u64, 4);
        for number in [date.hour, date.minute, date.second] {
            text.push(':');
            add_digits(text, number as u64, 2);
        }
        text.push_str(" +0000");
    }
}

/// Appends the last digits of a number.
fn add_digits(text: &mut String, number: u64, count: u32) {
    for place in (0..count).rev() {
        text.push(char::from(b'0' + (number / 10_u64.pow(place) % 10) as u8));
    }
}

/// Returns a time in the format of RFC 3339, in UTC.
pub fn utc(at: f64) -> String {
    let mut text = String::with_capacity(24);
    Moment::of(at).add_utc(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        for (at, text) in [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (951_782_400.0, "2000-02-29T00:00:00.000Z"),
            (1_767_225_599.999, "2025-12-31T23:59:59.999Z"),
            (f64::MAX, "9999-12-31T23:59:59.000Z"),
            (-1.0, "1970-01-01T00:00:00.000Z"),
            (f64::NAN, "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(utc(at), text, "{at}");
        }
    }
}
