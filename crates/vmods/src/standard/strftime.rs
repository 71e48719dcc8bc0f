//! Formats times like strftime(3), in UTC and in English.

use lacquer_http::date::Civil;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The values for a format.
struct Parts {
    seconds_since_epoch: i64,
    date: Civil,
}

impl Parts {
    fn of(time: f64) -> Parts {
        let seconds = time.trunc() as i64;
        Parts { seconds_since_epoch: seconds, date: Civil::at(seconds) }
    }
}

/// Returns year and week of ISO 8601: weeks begin on Mondays, and the first one contains the year's first Thursday.
fn iso_week(date: &Civil) -> (i64, i64) {
    let monday_based = (date.weekday + 6) % 7;
    let week = (date.day_of_year - monday_based + 10) / 7;
    if week < 1 {
        return (date.year - 1, weeks_in(date.year - 1));
    }
    if week > weeks_in(date.year) { (date.year + 1, 1) } else { (date.year, week) }
}

fn hour12(date: &Civil) -> i64 {
    if date.hour % 12 == 0 { 12 } else { date.hour % 12 }
}

/// Returns the number of ISO 8601 weeks in a year.
fn weeks_in(year: i64) -> i64 {
    let weekday_of_last =
        |y: i64| (y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400)).rem_euclid(7);
    if weekday_of_last(year) == 4 || weekday_of_last(year - 1) == 3 { 53 } else { 52 }
}

pub fn format(time: f64, format: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, &Parts::of(time), format);
    out
}

fn append(out: &mut Vec<u8>, parts: &Parts, format: &[u8]) {
    let mut rest = format;
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'%' {
            out.push(b);
            continue;
        }
        let flag = rest.first().copied().filter(|f| b"_-0^#".contains(f));
        let mut directive = if flag.is_some() { &rest[1..] } else { rest };
        while let [b'E' | b'O', after @ ..] = directive {
            directive = after;
        }
        let Some((&letter, after)) = directive.split_first() else {
            out.push(b'%');
            continue;
        };
        let start = out.len();
        if conversion(out, parts, letter, flag) {
            if matches!(flag, Some(b'^' | b'#')) {
                out[start..].make_ascii_uppercase();
            }
            rest = after;
        } else {
            out.push(b'%');
        }
    }
}

fn number(out: &mut Vec<u8>, value: i64, width: usize, padding: u8, flag: Option<u8>) {
    let text = match (flag, padding) {
        (Some(b'-'), _) => format!("{value}"),
        (Some(b'_'), _) | (None, b' ') => format!("{value:width$}"),
        _ => format!("{value:0width$}"),
    };
    out.extend_from_slice(text.as_bytes());
}

/// Writes the conversion of one letter. Returns whether the letter is known.
fn conversion(out: &mut Vec<u8>, p: &Parts, letter: u8, flag: Option<u8>) -> bool {
    let d = &p.date;
    let mut pad = |value: i64, width: usize, padding: u8| number(out, value, width, padding, flag);
    match letter {
        b'C' => pad(d.year.div_euclid(100), 2, b'0'),
        b'd' => pad(d.day, 2, b'0'),
        b'e' => pad(d.day, 2, b' '),
        b'G' => pad(iso_week(d).0, 4, b'0'),
        b'g' => pad(iso_week(d).0.rem_euclid(100), 2, b'0'),
        b'H' => pad(d.hour, 2, b'0'),
        b'I' => pad(hour12(d), 2, b'0'),
        b'j' => pad(d.day_of_year + 1, 3, b'0'),
        b'k' => pad(d.hour, 2, b' '),
        b'l' => pad(hour12(d), 2, b' '),
        b'M' => pad(d.minute, 2, b'0'),
        b'm' => pad(d.month, 2, b'0'),
        b'S' => pad(d.second, 2, b'0'),
        b's' => pad(p.seconds_since_epoch, 1, b'0'),
        b'U' => pad((d.day_of_year + 7 - d.weekday) / 7, 2, b'0'),
        b'u' => pad((d.weekday + 6) % 7 + 1, 1, b'0'),
        b'V' => pad(iso_week(d).1, 2, b'0'),
        b'W' => pad((d.day_of_year + 7 - (d.weekday + 6) % 7) / 7, 2, b'0'),
        b'w' => pad(d.weekday, 1, b'0'),
        b'Y' => pad(d.year, 4, b'0'),
        b'y' => pad(d.year.rem_euclid(100), 2, b'0'),
        _ => return word(out, p, letter),
    }
    true
}

fn word(out: &mut Vec<u8>, p: &Parts, letter: u8) -> bool {
    let d = &p.date;
    let (weekday, month) = (WEEKDAYS[d.weekday as usize], MONTHS[d.month as usize - 1]);
    let half = if d.hour < 12 { "AM" } else { "PM" };
    let text = match letter {
        b'A' => weekday,
        b'a' => &weekday[..3],
        b'B' => month,
        b'b' | b'h' => &month[..3],
        b'n' => "\n",
        b'P' => return whole(out, &half.to_ascii_lowercase()),
        b'p' => half,
        b't' => "\t",
        b'Z' => "GMT",
        b'z' => "+0000",
        b'%' => "%",
        _ => {
            let pattern = match letter {
                b'c' => "%a %b %e %H:%M:%S %Y",
                b'D' | b'x' => "%m/%d/%y",
                b'F' => "%Y-%m-%d",
                b'R' => "%H:%M",
                b'r' => "%I:%M:%S %p",
                b'T' | b'X' => "%H:%M:%S",
                _ => return false,
            };
            append(out, p, pattern.as_bytes());
            return true;
        }
    };
    whole(out, text)
}

fn whole(out: &mut Vec<u8>, text: &str) -> bool {
    out.extend_from_slice(text.as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::format;

    fn at(time: f64, pattern: &str) -> String {
        String::from_utf8(format(time, pattern.as_bytes())).unwrap()
    }

    #[test]
    fn formats_match_the_c_library() {
        assert_eq!(at(1_416_989_645.0, "%a, %d %b %Y %T GMT"), "Wed, 26 Nov 2014 08:14:05 GMT");
        assert_eq!(
            at(1_416_989_645.9, "%c|%F|%D|%r"),
            "Wed Nov 26 08:14:05 2014|2014-11-26|11/26/14|08:14:05 AM"
        );
        assert_eq!(at(0.0, "%j %u %w %U %W %G-%V %s %I%P%%"), "001 4 4 00 00 1970-01 0 12am%");
        assert_eq!(at(1_709_210_096.0, "%A %-d %B %y, day %j"), "Thursday 29 February 24, day 060");
        assert_eq!(at(1_230_768_000.0 - 86400.0, "%G-W%V-%u"), "2009-W01-3");
        assert_eq!(at(1_104_537_600.0, "%G-W%V-%u"), "2004-W53-6");
        assert_eq!(at(-1.0, "%F %T"), "1969-12-31 23:59:59");
        assert_eq!(at(0.0, "%Q %^a %"), "%Q THU %");
    }
}
