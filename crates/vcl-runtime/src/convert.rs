//! VCL's conversions of values to STRING, in Varnish's notation.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lacquer_http::date::{Civil, MONTHS, WEEKDAYS};

/// Bounds of INT and BYTES. Numbers outside of them cannot be converted.
const INT_MAX: i64 = 999_999_999_999_999;
/// The same for REAL and DURATION: the largest number of the form `999999999999.999`.
const REAL_MAX: f64 = 999_999_999_999.999;

/// A short text on the stack. It truncates longer texts, which no conversion here produces.
pub struct Text {
    bytes: [u8; 64],
    len: usize,
}

impl Text {
    fn new(args: std::fmt::Arguments<'_>) -> Text {
        let mut text = Text { bytes: [0; 64], len: 0 };
        // Truncation is the only possible error.
        let _ = text.write_fmt(args);
        text
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let free = &mut self.bytes[self.len..];
        let n = s.len().min(free.len());
        free[..n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        if n == s.len() { Ok(()) } else { Err(std::fmt::Error) }
    }
}

pub fn int(n: i64) -> Result<Text, String> {
    if !(-INT_MAX..=INT_MAX).contains(&n) {
        return Err(format!("INT overflow converting to string (0x{n:x})"));
    }
    Ok(Text::new(format_args!("{n}")))
}

/// Converts a REAL or DURATION.
pub fn real(n: f64) -> Result<Text, String> {
    if !(-REAL_MAX..=REAL_MAX).contains(&n) {
        return Err(format!("REAL overflow converting to string ({})", exponent(n)));
    }
    Ok(Text::new(format_args!("{n:.3}")))
}

/// Formats like C's `%e`.
fn exponent(n: f64) -> String {
    if !n.is_finite() {
        let sign = if n.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if n.is_nan() { "nan" } else { "inf" });
    }
    let text = format!("{n:.6e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.abs())
}

/// Formats a TIME as an HTTP date (RFC 9110, section 5.6.7).
pub fn time(t: f64) -> Result<Text, String> {
    let fault = || "Unformattable VCL_TIME".to_string();
    if t.is_nan() || t.abs() > 6.0e16 {
        return Err(fault());
    }
    let date = Civil::at(t as i64);
    if i32::try_from(date.year).is_err() {
        return Err(fault());
    }
    let (weekday, month) = (WEEKDAYS[date.weekday as usize], MONTHS[date.month as usize - 1]);
    let Civil { year, day, hour, minute, second, .. } = date;
    Ok(Text::new(format_args!("{weekday}, {day:02} {month} {year:4} {hour:02}:{minute:02}:{second:02} GMT")))
}

pub fn ip(address: &SocketAddr) -> Text {
    match address.ip() {
        IpAddr::V4(a) => Text::new(format_args!("{a}")),
        IpAddr::V6(a) => match a.to_bits() {
            // An address after 96 zero bits is written as one of IPv4, as in inet_ntop(3), if 16 bits do not suffice.
            bits @ 0x1_0000..=0xffff_ffff => {
                Text::new(format_args!("::{}", Ipv4Addr::from_bits(bits as u32)))
            }
            _ => Text::new(format_args!("{a}")),
        },
    }
}

/// Formats a BLOB as in HTTP's structured fields: base64 between colons (RFC 9651, section 3.3.5).
pub fn blob(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4 + 2);
    out.push(b':');
    for three in bytes.chunks(3) {
        let mut word = 0u32;
        for i in 0..3 {
            word = word << 8 | u32::from(three.get(i).copied().unwrap_or(0));
        }
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= three.len() { digit } else { b'=' });
        }
    }
    out.push(b':');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: Result<Text, String>) -> String {
        text.map_or_else(|e| e, |t| String::from_utf8(t.bytes().to_vec()).unwrap())
    }

    #[test]
    fn numbers_are_formatted_as_in_varnish() {
        assert_eq!(text(int(-42)), "-42");
        assert_eq!(text(int(1_000_000_000_000_000)), "INT overflow converting to string (0x38d7ea4c68000)");
        assert_eq!(text(real(1.0)), "1.000");
        assert_eq!(text(real(0.0625)), "0.062");
        assert_eq!(text(real(-0.0)), "-0.000");
        assert_eq!(text(real(999_999_999_999.999)), "999999999999.999");
        assert_eq!(text(real(1e12)), "REAL overflow converting to string (1.000000e+12)");
        assert_eq!(text(real(f64::NAN)), "REAL overflow converting to string (nan)");
    }

    #[test]
    fn times_are_formatted_as_http_dates() {
        assert_eq!(text(time(0.0)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(text(time(784_111_777.9)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(time(1_709_164_800.0)), "Thu, 29 Feb 2024 00:00:00 GMT");
        assert_eq!(text(time(-1.0)), "Wed, 31 Dec 1969 23:59:59 GMT");
        assert_eq!(text(time(1e30)), "Unformattable VCL_TIME");
    }

    #[test]
    fn addresses_and_blobs_are_formatted() {
        assert_eq!(ip(&"192.0.2.1:80".parse().unwrap()).bytes(), b"192.0.2.1");
        for (address, text) in [
            ("::1", "::1"),
            ("::ffff", "::ffff"),
            ("::1:0", "::0.1.0.0"),
            ("::1.2.3.4", "::1.2.3.4"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("::1:1.2.3.4", "::1:102:304"),
            ("64:ff9b::1.2.3.4", "64:ff9b::102:304"),
        ] {
            let address = SocketAddr::new(address.parse().unwrap(), 80);
            assert_eq!(ip(&address).bytes(), text.as_bytes());
        }
        assert_eq!(blob(b""), b"::");
        assert_eq!(blob(b"a"), b":YQ==:");
        assert_eq!(blob(b"abcd"), b":YWJjZA==:");
    }
}
