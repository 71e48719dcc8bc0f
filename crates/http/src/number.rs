//! Parses the numbers in messages: lengths and offsets.

/// Parses the leading decimal digits of `s`. Returns the number and the rest, or `None` without a digit. A number
/// that exceeds an i64 becomes `u64::MAX`, which no caller accepts as a length.
pub fn parse_uint(s: &[u8]) -> Option<(u64, &[u8])> {
    let mut value: u64 = 0;
    let mut rest = s;
    while let [digit @ b'0'..=b'9', tail @ ..] = rest {
        rest = tail;
        // A value below this limit fits into an i64 with another digit.
        if value < i64::MAX as u64 / 10 {
            value = value * 10 + u64::from(digit - b'0');
            continue;
        }
        let exact = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')));
        value = exact.filter(|&v| i64::try_from(v).is_ok()).unwrap_or(u64::MAX);
        if value == u64::MAX {
            break;
        }
    }
    (rest.len() < s.len()).then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_i64_saturate() {
        assert_eq!(parse_uint(b"12a"), Some((12, &b"a"[..])));
        assert_eq!(parse_uint(b"-1"), None);
        assert_eq!(parse_uint(b""), None);
        assert_eq!(parse_uint(b"9223372036854775807").unwrap().0, i64::MAX as u64);
        assert_eq!(parse_uint(b"9223372036854775808").unwrap().0, u64::MAX);
    }
}
