//! Times as dates, in UTC.

use lacquer_http::date::{Civil, MONTHS};

/// Returns a time in UTC, and the thousandths of its second. Times are clamped to the years 1970 to 9999.
fn moment(at: f64) -> (Civil, u64) {
    let at = at.clamp(0.0, 253_402_300_799.0);
    let seconds = at as i64;
    (Civil::at(seconds), ((at - seconds as f64) * 1000.0) as u64)
}

fn time(Civil { hour, minute, second, .. }: &Civil) -> String {
    format!("{hour:02}:{minute:02}:{second:02}")
}

/// Returns a time as the common log format does.
pub fn clf(at: f64) -> String {
    let (moment, _) = moment(at);
    let month = MONTHS[moment.month as usize - 1];
    format!("{:02}/{month}/{:04}:{} +0000", moment.day, moment.year, time(&moment))
}

/// Returns a time in the format of RFC 3339, in UTC.
pub fn utc(at: f64) -> String {
    let (moment, milliseconds) = moment(at);
    let Civil { year, month, day, .. } = moment;
    format!("{year:04}-{month:02}-{day:02}T{}.{milliseconds:03}Z", time(&moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        for (at, text) in [
            (0.0, "1970-01-01T00:00:00.000Z"),
            (951_782_400.0, "2000-02-29T00:00:00.000Z"),
            (1_767_225_599.999, "2025-12-31T23:59:59.99"),
            (f64::MAX, "9999-12-31"),
            (-1.0, "1970-01-01"),
            (f64::NAN, "1970-01-01"),
        ] {
            assert!(utc(at).starts_with(text), "{at}: {}", utc(at));
        }
    }
}
