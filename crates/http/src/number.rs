//! Numbers as Varnish reads them: plain unsigned integers in headers, and the "Varnish numbers" of VCL
//! and parameters (up to 15 digits, optional fraction) with units of time and size.

use crate::ascii::is_ows;
use std::fmt;

/// The leading decimal digits of `s` and what follows. `None`: no digit.
/// Too large for an i64: `Some` of `u64::MAX`, which no caller takes for a length.
pub fn parse_uint(s: &[u8]) -> Option<(u64, &[u8])> {
    let mut value: u64 = 0;
    let mut n = 0;
    while let Some(digit) = s.get(n).filter(|b| b.is_ascii_digit()) {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(digit - b'0')))
            .filter(|&v| i64::try_from(v).is_ok())
            .unwrap_or(u64::MAX);
        n += 1;
        if value == u64::MAX {
            break;
        }
    }
    (n > 0).then(|| (value, &s[n..]))
}

/// Why a text is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    Invalid,
    TooManyDigits,
    UnknownBytesUnit,
    FractionalBytes,
}

impl NumberError {
    pub const fn text(self) -> &'static str {
        match self {
            NumberError::Invalid => "Invalid number",
            NumberError::TooManyDigits => "Too many digits",
            NumberError::UnknownBytesUnit => "Unknown BYTES unit of measurement ([KMGTP][B])",
            NumberError::FractionalBytes => "Fractional BYTES not allowed",
        }
    }
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for NumberError {}

const MAX_DIGITS: usize = 15;
/// Decimals have at most twelve digits before the point (RFC 9651).
pub const MAX_DECIMAL: f64 = 999_999_999_999.999;

fn skip_ows(mut s: &[u8]) -> &[u8] {
    while let [b, rest @ ..] = s
        && is_ows(*b)
    {
        s = rest;
    }
    s
}

fn split_digits(s: &[u8]) -> (&[u8], &[u8]) {
    s.split_at(s.iter().take_while(|b| b.is_ascii_digit()).count())
}

/// A number at the start of `s` (blanks around it allowed) and what follows. `strict` demands digits on
/// both sides of the point and at most three behind it; otherwise more are ignored and either side
/// may be missing.
pub fn parse_number(s: &[u8], strict: bool) -> Result<(f64, &[u8]), NumberError> {
    let s = skip_ows(s);
    let (sign, s) = s.strip_prefix(b"-").map_or((1.0, s), |rest| (-1.0, rest));
    let (whole, rest) = split_digits(s);
    if whole.len() > MAX_DIGITS {
        return Err(NumberError::TooManyDigits);
    }
    let has_whole = !whole.is_empty();
    let mut value = whole.iter().fold(0u64, |n, b| n * 10 + u64::from(b - b'0')) as f64;
    let Some(after_point) = rest.strip_prefix(b".").filter(|_| has_whole || !strict) else {
        return if has_whole { Ok((value * sign, skip_ows(rest))) } else { Err(NumberError::Invalid) };
    };
    if value > MAX_DECIMAL {
        return Err(NumberError::TooManyDigits);
    }
    let (fraction, rest) = split_digits(after_point);
    if fraction.is_empty() && (strict || !has_whole) {
        return Err(NumberError::Invalid);
    }
    if strict && fraction.len() > 3 {
        return Err(NumberError::TooManyDigits);
    }
    let mut scale = 1.0;
    for b in fraction.iter().take(3) {
        scale *= 0.1;
        value += scale * f64::from(b - b'0');
    }
    Ok((value * sign, skip_ows(rest)))
}

/// The whole text as a number.
pub fn number(s: &[u8]) -> Option<f64> {
    parse_number(s, false).ok().filter(|(_, rest)| rest.is_empty()).map(|(n, _)| n)
}

/// Seconds per unit of time; blanks around the unit are allowed, no unit is none.
pub fn duration_unit(unit: &[u8]) -> Option<f64> {
    const DAY: f64 = 86400.0;
    match crate::ascii::trim_ows(unit) {
        b"ms" => Some(1e-3),
        b"s" => Some(1.0),
        b"m" => Some(60.0),
        b"h" => Some(3600.0),
        b"d" => Some(DAY),
        b"w" => Some(DAY * 7.0),
        b"y" => Some(DAY * 365.0),
        _ => None,
    }
}

/// A duration with its unit ("1.5h"), in seconds.
pub fn duration(s: &[u8]) -> Option<f64> {
    let (n, rest) = parse_number(s, false).ok()?;
    Some(n * duration_unit(rest)?)
}

/// Applies a unit of size to `n`. `relative_to` allows per cent of it.
pub fn bytes_unit(n: f64, unit: &[u8], relative_to: Option<u64>) -> Result<i64, NumberError> {
    let unit = crate::ascii::trim_ows(unit);
    let (first, rest) = match unit {
        [] => (b'b', &b""[..]),
        [first, rest @ ..] => (first.to_ascii_lowercase(), rest),
    };
    let power = match first {
        b'%' if relative_to.is_some() => {
            let scaled = n * relative_to.unwrap_or(0) as f64 * 0.01;
            return if rest.is_empty() {
                Ok(scaled.trunc() as i64)
            } else {
                Err(NumberError::UnknownBytesUnit)
            };
        }
        b'b' if n.fract() != 0.0 => return Err(NumberError::FractionalBytes),
        b'b' if rest.is_empty() => 0,
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b't' => 40,
        b'p' => 50,
        _ => return Err(NumberError::UnknownBytesUnit),
    };
    if !(rest.is_empty() || rest.eq_ignore_ascii_case(b"b")) {
        return Err(NumberError::UnknownBytesUnit);
    }
    Ok((n * f64::from(power).exp2()).trunc() as i64)
}

/// A size in bytes with an optional unit ("1.5MB").
pub fn bytes(s: &[u8], relative_to: Option<u64>) -> Result<u64, NumberError> {
    let (n, rest) = parse_number(s, true)?;
    if n < 0.0 {
        return Err(NumberError::Invalid);
    }
    bytes_unit(n, rest, relative_to).map(|n| n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_integers() {
        assert_eq!(parse_uint(b"12a"), Some((12, &b"a"[..])));
        assert_eq!(parse_uint(b"-1"), None);
        assert_eq!(parse_uint(b""), None);
        assert_eq!(parse_uint(b"9223372036854775807").unwrap().0, i64::MAX as u64);
        assert_eq!(parse_uint(b"9223372036854775808").unwrap().0, u64::MAX);
    }

    #[test]
    fn numbers() {
        let strict = |s: &str| parse_number(s.as_bytes(), true).map(|(n, _)| n);
        let lax = |s: &str| parse_number(s.as_bytes(), false).map(|(n, _)| n);
        assert_eq!(strict(" 1234 "), Ok(1234.0));
        assert_eq!(strict(" 1234. "), Err(NumberError::Invalid));
        assert_eq!(strict("1234567890123.0"), Err(NumberError::TooManyDigits));
        assert_eq!(strict("123456789012.1234"), Err(NumberError::TooManyDigits));
        assert_eq!(strict(" -.1"), Err(NumberError::Invalid));
        assert!((lax("123456789012.1234").unwrap() - 123_456_789_012.123).abs() < 1e-3);
        assert!((lax(" -.123456 ").unwrap() + 0.123).abs() < 1e-9);
        assert_eq!(lax("0."), Ok(0.0));
        assert_eq!(lax(" - "), Err(NumberError::Invalid));
        assert_eq!(lax("."), Err(NumberError::Invalid));
        assert_eq!(lax("1234567890123456"), Err(NumberError::TooManyDigits));
        assert_eq!(number(b"1 x"), None);
    }

    #[test]
    fn durations() {
        let table = [
            ("1ms", 1e-3),
            ("1.5 m", 90.0),
            ("2h", 7200.0),
            ("1d", 86400.0),
            ("1w", 604800.0),
            ("1y", 31536000.0),
        ];
        for (text, seconds) in table {
            assert_eq!(duration(text.as_bytes()), Some(seconds), "{text}");
        }
        for text in ["1", "1x", "1mss", "s", "1 h 2", ""] {
            assert_eq!(duration(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sizes() {
        let table = [
            ("1", 1),
            ("1 B", 1),
            ("1024", 1024),
            ("0.75kB", 768),
            ("1.3kB", 1331),
            ("1.700MB", 1782579),
            ("1.7\tTB", 1869169767219),
            ("1P\t", 1 << 50),
        ];
        for (text, n) in table {
            assert_eq!(bytes(text.as_bytes(), None), Ok(n), "{text}");
        }
        assert_eq!(bytes(b"1.501%", Some(1024)), Ok(15));
        assert_eq!(bytes(b"1.3B", None), Err(NumberError::FractionalBytes));
        assert_eq!(bytes(b"1125899906842624", None), Err(NumberError::TooManyDigits));
        assert_eq!(bytes(b"-1", None), Err(NumberError::Invalid));
        assert_eq!(bytes(b"", None), Err(NumberError::Invalid));
        assert_eq!(bytes(b"1X", None), Err(NumberError::UnknownBytesUnit));
        assert_eq!(bytes(b"1%", None), Err(NumberError::UnknownBytesUnit));
    }
}
