//! Parses and formats numbers: RFC 8941 decimals, durations with a unit, sizes with a binary suffix.
//! The error texts are those that Varnish's users and tests expect.

use std::fmt::Write;

/// Characters that are allowed around a unit.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\r', '\x0b', '\x0c'];
/// Decimals have at most twelve digits before the point (RFC 9651).
pub const LARGEST_DECIMAL: f64 = 999_999_999_999.999;
const INVALID: &str = "Invalid number";
/// Error texts that VCL uses too.
pub const TOO_LONG: &str = "Too many digits";
pub const UNKNOWN_BYTES_UNIT: &str = "Unknown BYTES unit of measurement ([KMGTP][B])";
pub const FRACTIONAL_BYTES: &str = "Fractional BYTES not allowed";

fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && is_blank(text[at]) {
        at += 1;
    }
    at
}

/// Parses a number at the start of `text`. Returns it and the rest of the text. `strict` requires digits on
/// both sides of the point and at most three decimals.
pub fn parse_number(text: &str, strict: bool) -> Result<(f64, &str), &'static str> {
    let bytes = text.as_bytes();
    let mut at = skip_blanks(bytes, 0);
    let negative = bytes.get(at) == Some(&b'-');
    at += usize::from(negative);
    let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    if digits > 15 {
        return Err(TOO_LONG);
    }
    let mut value = bytes[at..at + digits].iter().fold(0f64, |v, d| v * 10.0 + f64::from(d - b'0'));
    at += digits;
    if digits > 0 {
        at = skip_blanks(bytes, at);
    } else if strict {
        return Err(INVALID);
    }
    if bytes.get(at) == Some(&b'.') {
        if value > LARGEST_DECIMAL {
            return Err(TOO_LONG);
        }
        at += 1;
        let decimals = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if decimals == 0 && (digits == 0 || strict) {
            return Err(INVALID);
        }
        if strict && decimals > 3 {
            return Err(TOO_LONG);
        }
        let mut scale = 1.0;
        for digit in &bytes[at..at + decimals.min(3)] {
            scale *= 0.1;
            value += scale * f64::from(digit - b'0');
        }
        at = skip_blanks(bytes, at + decimals);
    } else if digits == 0 {
        return Err(INVALID);
    }
    Ok((if negative { -value } else { value }, &text[at..]))
}

/// Parses a decimal number. Fails if any text follows it.
pub(crate) fn parse_decimal(text: &str) -> Result<f64, &'static str> {
    let (value, rest) = parse_number(text, false)?;
    if value.abs() > LARGEST_DECIMAL {
        return Err(TOO_LONG);
    }
    if rest.is_empty() { Ok(value) } else { Err(INVALID) }
}

/// Returns the seconds of one unit of time: `ms s m h d w y`.
pub fn unit_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        "w" => 7.0 * 86_400.0,
        "y" => 365.0 * 86_400.0,
        _ => return None,
    })
}

/// Parses a number and its unit as seconds, for VCL's conversions and bans. The unit is required.
pub fn parse_duration_with_unit(text: &str) -> Option<f64> {
    let (value, rest) = parse_number(text, false).ok()?;
    unit_seconds(rest.trim_matches(BLANKS)).map(|unit| value * unit)
}

/// Parses seconds: a plain number, or one with a unit.
pub fn parse_duration(text: &str) -> Result<f64, &'static str> {
    const NO_UNIT: &str = "Invalid duration unit";
    let (value, rest) = parse_number(text, false).map_err(|fault| {
        // Varnish checks the unit even if the number is invalid.
        let letters = text.trim_start_matches([' ', '\t', '-']);
        let unit_is_fine = letters.is_empty() || unit_seconds(letters.trim_matches(BLANKS)).is_some();
        if unit_is_fine { fault } else { NO_UNIT }
    })?;
    if value.abs() > LARGEST_DECIMAL {
        return Err(TOO_LONG);
    }
    if rest.is_empty() {
        return Ok(value);
    }
    unit_seconds(rest.trim_matches(BLANKS)).map(|unit| value * unit).ok_or(NO_UNIT)
}

/// Returns the bytes of one unit of size: none or `b`, and `k m g t p` with or without a `b`, in any case.
pub fn unit_bytes(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    Some(2f64.powi(shift))
}

/// Parses bytes: `512`, `64k`, `0.25G`. With `relative_to`, percentages of it are allowed.
pub fn parse_bytes(text: &str, relative_to: Option<u64>) -> Result<u64, &'static str> {
    let (value, rest) = parse_number(text, true)?;
    if value < 0.0 {
        return Err(INVALID);
    }
    let unit = rest.trim();
    if unit == "%" {
        return relative_to.map(|total| (value * total as f64 * 0.01) as u64).ok_or(UNKNOWN_BYTES_UNIT);
    }
    let scale = unit_bytes(unit).ok_or(UNKNOWN_BYTES_UNIT)?;
    if scale == 1.0 && value.fract() != 0.0 {
        return Err(FRACTIONAL_BYTES);
    }
    Ok((value * scale).trunc() as u64)
}

/// Formats a size in its shortest exact form: `80k`, `0.25G`, `267b`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    if bytes == 0 || bytes & 0xff != 0 {
        return format!("{bytes}b");
    }
    let mut rest = bytes;
    for unit in "kMGTPEZY".chars() {
        if rest & 0x300 != 0 {
            return format!("{:.2}{unit}", rest as f64 / 1024.0);
        }
        rest /= 1024;
        if rest & 0xff != 0 {
            return format!("{rest}{unit}");
        }
    }
    "(bogus number)".to_owned()
}

/// Formats like C's `%g`: six significant digits without trailing zeros.
pub(crate) fn show_general(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    if (-5..6).contains(&exponent) {
        let text = format!("{value:.*}", (5 - exponent).max(0) as usize);
        return if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        };
    }
    let mut mantissa = format!("{:.5}", value / 10f64.powi(exponent));
    while mantissa.ends_with('0') {
        mantissa.pop();
    }
    let mut text = mantissa.trim_end_matches('.').to_owned();
    let _ = write!(text, "e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse_duration("1.5m"), Ok(90.0));
        assert_eq!(parse_duration("1 s"), Ok(1.0));
        assert_eq!(parse_duration(".1"), Ok(0.1));
        assert_eq!(parse_duration("1x"), Err("Invalid duration unit"));
        assert_eq!(parse_duration("x"), Err("Invalid duration unit"));
        assert_eq!(parse_duration("-"), Err("Invalid number"));
        assert_eq!(parse_duration("s"), Err("Invalid number"));
        assert_eq!(parse_duration("1234567890123456"), Err("Invalid duration unit"));
        assert_eq!(parse_duration_with_unit("-1.5 m "), Some(-90.0));
        assert_eq!(parse_duration_with_unit(".5h"), Some(1800.0));
        for text in ["1", "s", "1 x", "1mss", "1 h 2", ""] {
            assert_eq!(parse_duration_with_unit(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_parsed() {
        let strict = |s: &str| parse_number(s, true).map(|(n, _)| n);
        let lax = |s: &str| parse_number(s, false).map(|(n, _)| n);
        assert_eq!(strict(" 1234 "), Ok(1234.0));
        assert_eq!(strict(" 1234. "), Err(INVALID));
        assert_eq!(strict("1234567890123.0"), Err(TOO_LONG));
        assert_eq!(strict("123456789012.1234"), Err(TOO_LONG));
        assert_eq!(strict(" -.1"), Err(INVALID));
        assert!((lax("123456789012.1234").unwrap() - 123_456_789_012.123).abs() < 1e-3);
        assert!((lax(" -.123456 ").unwrap() + 0.123).abs() < 1e-9);
        assert_eq!(lax("0."), Ok(0.0));
        assert_eq!(lax(" - "), Err(INVALID));
        assert_eq!(lax("."), Err(INVALID));
        assert_eq!(lax("1234567890123456"), Err(TOO_LONG));
        assert_eq!(parse_number("1 x", false), Ok((1.0, "x")));
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_bytes("0.25G", None), Ok(1 << 28));
        assert_eq!(parse_bytes("80kB", None), Ok(80 << 10));
        assert_eq!(parse_bytes("1.5", None), Err("Fractional BYTES not allowed"));
        assert_eq!(parse_bytes("50%", Some(10)), Ok(5));
        for text in ["0b", "267b", "64k", "0.25k", "0.75k", "80M", "0.25G", "4G"] {
            assert_eq!(show_bytes(parse_bytes(text, None).unwrap()), text);
        }
    }

    #[test]
    fn general_format_matches_c() {
        assert_eq!(show_general(0.9), "0.9");
        assert_eq!(show_general(10.0), "10");
        assert_eq!(show_general(1e6), "1e+06");
    }
}
