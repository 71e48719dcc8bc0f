//! Character classes of HTTP, and searches that process eight bytes at a time.

const TCHAR: u8 = 1;
const HEX: u8 = 2;
const REG_NAME: u8 = 4;

const CLASS: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut c = 0usize;
    while c < 256 {
        let b = c as u8;
        let symbol = matches!(
            b,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        );
        table[c] = if b.is_ascii_alphanumeric() || symbol { TCHAR } else { 0 }
            | if b.is_ascii_hexdigit() { HEX } else { 0 }
            | if b.is_ascii_alphanumeric() || is_reg_name_symbol(b) { REG_NAME } else { 0 };
        c += 1;
    }
    table
};

/// The symbols of `unreserved` and `sub-delims` (RFC 3986 section 2).
const fn is_reg_name_symbol(b: u8) -> bool {
    matches!(
        b,
        b'-' | b'.'
            | b'_'
            | b'~'
            | b'!'
            | b'$'
            | b'&'
            | b'\''
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b';'
            | b'='
    )
}

/// Returns whether this is a character of a registered name. Percent-encoded characters are not covered.
#[inline]
pub(crate) const fn is_reg_name(b: u8) -> bool {
    CLASS[b as usize] & REG_NAME != 0
}

/// Returns whether this is a character of a token (method, header name).
#[inline]
pub const fn is_tchar(b: u8) -> bool {
    CLASS[b as usize] & TCHAR != 0
}

#[inline]
pub(crate) const fn is_hex(b: u8) -> bool {
    CLASS[b as usize] & HEX != 0
}

/// Returns whether this is optional white space: SP and HTAB.
#[inline]
pub(crate) const fn is_ows(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Returns whether this is linear white space: SP, HTAB, CR and LF.
#[inline]
pub(crate) const fn is_lws(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

#[inline]
pub(crate) const fn is_ctl(b: u8) -> bool {
    b < 0x20 || b == 0x7f
}

/// Returns whether a line that VCL has made contains only allowed characters (feature `validate_headers`).
pub fn is_valid_line(line: &[u8]) -> bool {
    find_bad_header_char(line, 0) == line.len()
}

/// Returns the length of the line end at `i`: 2 for CRLF, 1 for a lone LF, else 0.
#[inline]
pub(crate) fn crlf_len(buf: &[u8], i: usize) -> usize {
    match buf.get(i) {
        Some(b'\n') => 1,
        Some(b'\r') if buf.get(i + 1) == Some(&b'\n') => 2,
        _ => 0,
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Marks zero bytes. The lowest mark is exact; bytes above it may be marked falsely.
const fn zero_bytes(x: u64) -> u64 {
    x.wrapping_sub(ONES) & !x & HIGHS
}

/// Marks bytes that are DEL or below `limit`. The lowest mark is exact; bytes above it may be marked falsely.
const fn del_or_below(x: u64, limit: u8) -> u64 {
    (x.wrapping_sub(ONES * limit as u64) | ((x & !HIGHS) + ONES)) & !x & HIGHS
}

/// Returns the index of the first matching byte from `i` on, or the length. `marks` finds a match in eight bytes,
/// `wanted` decides about a single byte.
#[inline(always)]
fn find(buf: &[u8], mut i: usize, marks: impl Fn(u64) -> u64, wanted: impl Fn(u8) -> bool) -> usize {
    for chunk in buf.get(i..).unwrap_or_default().as_chunks().0 {
        let marks = marks(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return i + (marks.trailing_zeros() / 8) as usize;
        }
        i += 8;
    }
    while i < buf.len() && !wanted(buf[i]) {
        i += 1;
    }
    i.min(buf.len())
}

/// Returns the index of the first blank or control character from `i` on, or the length.
#[inline]
pub(crate) fn find_blank_or_ctl(buf: &[u8], i: usize) -> usize {
    find(buf, i, |x| del_or_below(x, b' ' + 1), |b| b == b' ' || is_ctl(b))
}

/// Returns the index of the first byte from `i` on that is not allowed in a header line, or the length.
#[inline]
pub(crate) fn find_bad_header_char(buf: &[u8], mut i: usize) -> usize {
    loop {
        i = find(buf, i, |x| del_or_below(x, b' '), is_ctl);
        if buf.get(i) != Some(&b'\t') {
            return i;
        }
        i += 1;
    }
}

/// Returns the index of the first `needle` from `i` on.
#[inline]
pub(crate) fn find_byte(buf: &[u8], i: usize, needle: u8) -> Option<usize> {
    let at = find(buf, i, |x| zero_bytes(x ^ (ONES * u64::from(needle))), |b| b == needle);
    (at < buf.len()).then_some(at)
}

/// Removes leading and trailing SP and HTAB.
pub(crate) fn trim_ows(mut s: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = s
        && is_ows(*first)
    {
        s = rest;
    }
    trim_ows_end(s)
}

pub(crate) fn trim_ows_end(mut s: &[u8]) -> &[u8] {
    while let [rest @ .., last] = s
        && is_ows(*last)
    {
        s = rest;
    }
    s
}

/// Returns whether `s` begins with `prefix`, ignoring case.
pub(crate) fn starts_with_nocase(s: &[u8], prefix: &[u8]) -> bool {
    s.len() >= prefix.len() && s[..prefix.len()].eq_ignore_ascii_case(prefix)
}

/// The decimal digits of a number, formatted without allocation.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; 20],
    start: u8,
}

impl Decimal {
    pub fn new(mut n: u64) -> Decimal {
        let mut digits = [b'0'; 20];
        let mut start = 20;
        loop {
            start -= 1;
            digits[start] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                return Decimal { digits, start: start as u8 };
            }
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start as usize..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_agree_with_a_bytewise_definition() {
        for bad in (0..=255u8).step_by(if cfg!(miri) { 63 } else { 1 }) {
            for len in [1usize, 7, 8, 9, 23, 40] {
                for at in 0..len {
                    let mut line = vec![b'a'; len];
                    line[at] = bad;
                    let ends_word = bad <= b' ' || bad == 0x7f;
                    assert_eq!(find_blank_or_ctl(&line, 0), if ends_word { at } else { len });
                    let expected = if bad == b'\t' || !is_ctl(bad) { len } else { at };
                    assert_eq!(find_bad_header_char(&line, 0), expected, "byte {bad} at {at} of {len}");
                    let found = find_byte(&line, 0, bad);
                    assert_eq!(found, Some(if bad == b'a' { 0 } else { at }));
                }
            }
        }
        assert_eq!(find_bad_header_char(b"\t\t\t\t\t\t\t\t\t\rx", 0), 9);
        assert_eq!(find_byte(b"abc", 3, b'c'), None);
        assert_eq!(find_byte(b"abc", 9, b'c'), None);
    }

    #[test]
    fn numbers_are_formatted_in_decimal() {
        for n in [0, 9, 10, 12345, u64::MAX] {
            assert_eq!(Decimal::new(n).as_bytes(), n.to_string().as_bytes());
        }
    }
}
