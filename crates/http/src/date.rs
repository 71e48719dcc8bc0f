//! Dates of HTTP. The three formats of RFC 9110 section 5.6.7 and ISO 8601 are parsed; the first format is written.
//! Times are seconds since the epoch; 0 means "no date", as in Varnish's logs.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether days may have one digit: the bit `http_date_postel` of the parameter `feature`.
static TOLERANT: AtomicBool = AtomicBool::new(false);

/// The weekdays in the notation of HTTP. A week begins with Sunday.
pub const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const WEEKDAY_RESTS: [&[u8]; 7] = [b"day", b"day", b"sday", b"nesday", b"rsday", b"day", b"urday"];
/// The months in the notation of HTTP.
pub const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const SECONDS_PER_DAY: i64 = 86400;

/// The length of a formatted date.
pub(crate) const DATE_LEN: usize = 29;

/// Returns the days since the epoch of a date of the Gregorian calendar. Computes in eras of 400 years and years that
/// begin in March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// A time in the Gregorian calendar, in UTC. Months and days of the month count from 1, the others from 0.
pub struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    /// 0 is Sunday.
    pub weekday: i64,
    pub day_of_year: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Civil {
    /// Converts `seconds` since the epoch.
    pub fn at(seconds: i64) -> Civil {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
        let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Civil {
            year,
            month,
            day: from_march - (153 * month_from_march + 2) / 5 + 1,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - days_from_civil(year, 1, 1),
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }
}

/// Formats a time as "Sun, 06 Nov 1994 08:49:37 GMT". Times are clamped to the years 0 to 9999.
pub fn format(time: f64) -> [u8; DATE_LEN] {
    const FIRST: f64 = -62_167_219_200.0;
    const LAST: f64 = 253_402_300_799.0;
    let date = Civil::at(time.clamp(FIRST, LAST).trunc() as i64);
    let mut text = *b"Sun, 00 Jan 0000 00:00:00 GMT";
    let mut two = |at: usize, n: i64| {
        text[at] = b'0' + (n / 10 % 10) as u8;
        text[at + 1] = b'0' + (n % 10) as u8;
    };
    two(5, date.day);
    two(12, date.year / 100);
    two(14, date.year % 100);
    two(17, date.hour);
    two(20, date.minute);
    two(23, date.second);
    text[..3].copy_from_slice(WEEKDAYS[date.weekday as usize].as_bytes());
    text[8..11].copy_from_slice(MONTHS[(date.month - 1) as usize].as_bytes());
    text
}

#[derive(Default)]
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    weekday: Option<i64>,
}

struct Cursor<'a> {
    rest: &'a [u8],
    tolerant: bool,
}

impl Cursor<'_> {
    fn literal(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    fn digits(&mut self, n: usize) -> Option<i64> {
        let (digits, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        digits.iter().try_fold(0, |sum, b| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0')))
    }

    fn one_of(&mut self, names: &[&str]) -> Option<i64> {
        let (name, rest) = self.rest.split_first_chunk::<3>()?;
        self.rest = rest;
        names.iter().position(|n| n.as_bytes() == name).map(|n| n as i64)
    }

    fn time_of_day(&mut self, f: &mut Fields) -> Option<()> {
        f.hour = self.digits(2)?;
        self.literal(b":")?;
        f.minute = self.digits(2)?;
        self.literal(b":")?;
        f.second = self.digits(2)?;
        Some(())
    }

    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn date(&mut self) -> Option<Fields> {
        let mut f = Fields::default();
        if self.rest.first()?.is_ascii_digit() {
            f.year = self.digits(4)?;
            self.literal(b"-")?;
            f.month = self.digits(2)?;
            self.literal(b"-")?;
            f.day = self.digits(2)?;
            self.literal(b"T")?;
            self.time_of_day(&mut f)?;
            return Some(f);
        }
        let weekday = self.one_of(&WEEKDAYS)?;
        f.weekday = Some(weekday);
        match *self.rest.first()? {
            b',' => self.rfc1123(&mut f)?,
            b' ' => self.asctime(&mut f)?,
            _ => {
                self.literal(WEEKDAY_RESTS[weekday as usize])?;
                self.rfc850(&mut f)?;
            }
        }
        Some(f)
    }

    fn rfc1123(&mut self, f: &mut Fields) -> Option<()> {
        self.literal(b", ")?;
        let short = self.tolerant && self.rest.get(1) == Some(&b' ');
        f.day = self.digits(if short { 1 } else { 2 })?;
        self.literal(b" ")?;
        f.month = self.one_of(&MONTHS)? + 1;
        self.literal(b" ")?;
        f.year = self.digits(4)?;
        self.literal(b" ")?;
        self.time_of_day(f)?;
        self.literal(b" GMT")
    }

    fn asctime(&mut self, f: &mut Fields) -> Option<()> {
        self.literal(b" ")?;
        f.month = self.one_of(&MONTHS)? + 1;
        self.literal(b" ")?;
        f.day = if self.rest.first() == Some(&b' ') {
            self.literal(b" ")?;
            self.digits(1)?
        } else {
            self.digits(2)?
        };
        self.literal(b" ")?;
        self.time_of_day(f)?;
        self.literal(b" ")?;
        f.year = self.digits(4)?;
        Some(())
    }

    fn rfc850(&mut self, f: &mut Fields) -> Option<()> {
        self.literal(b", ")?;
        f.day = self.digits(2)?;
        self.literal(b"-")?;
        f.month = self.one_of(&MONTHS)? + 1;
        self.literal(b"-")?;
        f.year = self.digits(2)? + 1900;
        if f.year < 1969 {
            f.year += 100;
        }
        self.literal(b" ")?;
        self.time_of_day(f)?;
        self.literal(b" GMT")
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Sets whether days may have one digit, for all threads.
pub fn set_tolerant(tolerant: bool) {
    TOLERANT.store(tolerant, Ordering::Relaxed);
}

/// Parses a date. Returns `None` if the text is not a date, the weekday is wrong, or the year is before 1899.
pub fn parse(text: &[u8]) -> Option<f64> {
    parse_as(text, TOLERANT.load(Ordering::Relaxed))
}

fn parse_as(text: &[u8], tolerant: bool) -> Option<f64> {
    let (fields, days) = fields_of(text, tolerant)?;
    fields
        .weekday
        .is_none_or(|weekday| (days + 4).rem_euclid(7) == weekday)
        .then(|| seconds_of(&fields, days))
}

/// Parses a date without a check of its weekday. Also returns the number of its day.
#[inline]
fn fields_of(text: &[u8], tolerant: bool) -> Option<(Fields, i64)> {
    let mut cursor = Cursor { rest: text, tolerant };
    cursor.skip_spaces();
    let f = cursor.date()?;
    cursor.skip_spaces();
    let in_range = cursor.rest.is_empty()
        && f.second <= 60
        && f.minute <= 59
        && f.hour <= 23
        && (1..=12).contains(&f.month)
        && (1..=days_in_month(f.year, f.month)).contains(&f.day)
        && f.year >= 1899;
    in_range.then(|| {
        let days = days_from_civil(f.year, f.month, f.day);
        (f, days)
    })
}

fn seconds_of(f: &Fields, days: i64) -> f64 {
    let second = f.second.min(59); // leap seconds are ignored
    (days * SECONDS_PER_DAY + f.hour * 3600 + f.minute * 60 + second) as f64
}

/// Parses a date that determines freshness. Letters are compared without case, as RFC 9111 section 4.2 demands, and a
/// wrong weekday is ignored.
pub fn parse_leniently(text: &[u8]) -> Option<f64> {
    const LONGEST: usize = 40;
    let mut canonical = [0; LONGEST];
    let canonical = canonical.get_mut(..text.len())?;
    let mut is_inside = false;
    for (to, &from) in canonical.iter_mut().zip(text) {
        *to = if is_inside { from.to_ascii_lowercase() } else { from.to_ascii_uppercase() };
        is_inside = from.is_ascii_alphabetic();
    }
    // The zone has capitals only. Within ISO 8601, "T" begins a word.
    if let Some(zone) = canonical.strip_suffix(b"Gmt").map(<[u8]>::len) {
        canonical[zone..].copy_from_slice(b"GMT");
    }
    let (fields, days) = fields_of(canonical, TOLERANT.load(Ordering::Relaxed))?;
    Some(seconds_of(&fields, days))
}

/// Parses a date, but returns 0 if there is none, which is also the time of the epoch.
pub fn parse_or_zero(text: &[u8]) -> f64 {
    parse(text).unwrap_or(0.0)
}

/// The formatted date of the current second. It is computed once per second.
#[derive(Clone, Copy, Debug)]
pub struct DateCache {
    second: i64,
    text: [u8; DATE_LEN],
}

impl Default for DateCache {
    fn default() -> Self {
        DateCache { second: 0, text: format(0.0) }
    }
}

impl DateCache {
    pub fn at(&mut self, now: f64) -> &[u8; DATE_LEN] {
        let second = now.trunc() as i64;
        if second != self.second {
            *self = DateCache { second, text: format(now) };
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_for_freshness_are_parsed_without_case() {
        const TIME: Option<f64> = Some(784_111_777.0);
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", TIME),
            ("SUN, 06 NOV 1994 08:49:37 gmt", TIME),
            ("sun, 06 nov 1994 08:49:37 gMT", TIME),
            ("SUNDAY, 06-NOV-94 08:49:37 GMT", TIME),
            ("sun nov  6 08:49:37 1994", TIME),
            ("Mon, 06 Nov 1994 08:49:37 GMT", TIME),
            ("1994-11-06T08:49:37", TIME),
            ("Sun, 06 Nov 1994 08:49:37 UTC", None),
            ("Sun 06 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06-Nov-1994 08:49:37 GMT", None),
            ("Sun, 06  Nov  1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 8:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08.49.37 GMT", None),
            ("Sun, 06 Nov 94 08:49:37 GMT", None),
            ("Sun, 31 Feb 1994 08:49:37 GMT", None),
            ("0", None),
            ("", None),
        ] {
            assert_eq!(parse_leniently(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(parse_leniently(&[b'x'; 1000]), None);
        assert_eq!(parse_leniently(b"S\xfcn, 06 Nov 1994 08:49:37 GMT"), None);
    }

    #[test]
    fn all_formats_are_parsed_to_the_same_time() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "  1994-11-06T08:49:37  ",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777.0), "{text}");
        }
        assert_eq!(&format(784_111_777.9), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(parse(b"Fri, 30 Jun 1972 23:59:60 GMT"), Some(78_796_799.0));
        assert_eq!(parse(b"Wednesday, 09-Nov-68 00:00:00 GMT"), None);
        assert_eq!(parse(b"Tue Feb 29 00:00:01 2000"), Some(951_782_401.0));
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "",
            "0",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:60:37 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Noo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Thu, 30 Feb 1995 08:49:37 GMT",
            "Wed, 29 Feb 1995 08:49:37 GMT",
            "1994-13-06T08:49:37",
            "1898-01-06T08:49:37",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn tolerance_applies_to_the_day_only() {
        assert_eq!(parse_as(b"Sun, 6 Nov 1994 08:49:37 GMT", true), Some(784_111_777.0));
        assert_eq!(parse_as(b"Sun, 06 Nov 1994 08:49:37 GMT", true), Some(784_111_777.0));
        assert_eq!(parse_as(b"Sun, 6 Nov 1994 8:49:37 GMT", true), None);
    }

    #[test]
    fn formatting_and_parsing_agree_over_centuries() {
        let mut time = -2_209_852_800.0;
        while time < 20_000_000_000.0 {
            assert_eq!(parse(&format(time)), Some(time));
            time += if cfg!(miri) { 359_999_999.0 } else { 3_599_999.0 };
        }
        let mut cache = DateCache::default();
        assert_eq!(cache.at(0.5), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(cache.at(86400.0), b"Fri, 02 Jan 1970 00:00:00 GMT");
        assert_eq!(format(f64::NAN).len(), DATE_LEN);
    }
}
