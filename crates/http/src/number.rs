//! The numbers of messages: lengths and offsets.

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
}
