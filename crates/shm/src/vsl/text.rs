//! Numbers as text without the formatting machinery: log records are mostly numbers, and are many.

const DIGIT_PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
    2021222324252627282930313233343536373839\
    4041424344454647484950515253545556575859\
    6061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

/// Room for the longest number: sign, 20 digits, point, 6 digits.
pub const MAX: usize = 28;

/// Writes `n` in decimal into the end of `buf` and returns that end.
#[inline]
pub fn decimal(mut n: u64, buf: &mut [u8; MAX]) -> &[u8] {
    let mut at = MAX;
    while n >= 100 {
        let pair = (n % 100) as usize * 2;
        n /= 100;
        at -= 2;
        buf[at..at + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    if n >= 10 {
        let pair = n as usize * 2;
        at -= 2;
        buf[at..at + 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        buf[at] = b'0' + n as u8;
    }
    &buf[at..]
}

/// `decimal` for signed numbers.
#[inline]
pub fn signed(n: i64, buf: &mut [u8; MAX]) -> &[u8] {
    let mut at = MAX - decimal(n.unsigned_abs(), buf).len();
    if n < 0 {
        at -= 1;
        buf[at] = b'-';
    }
    &buf[at..]
}

/// A time as Varnish's timestamps show it: six decimals, cut off and not rounded. Negative and absurd
/// times are zero.
#[inline]
pub fn seconds(t: f64, buf: &mut [u8; MAX]) -> &[u8] {
    micros((t.max(0.0) * 1e6) as u64, buf)
}

/// `%.6f`: six decimals, rounded. Beyond what 64 bits of millionths hold, the number sticks at the limit.
#[inline]
pub fn fixed6(x: f64, buf: &mut [u8; MAX]) -> &[u8] {
    let mut at = MAX - micros((x.abs() * 1e6).round_ties_even() as u64, buf).len();
    if x.is_sign_negative() {
        at -= 1;
        buf[at] = b'-';
    }
    &buf[at..]
}

fn micros(n: u64, buf: &mut [u8; MAX]) -> &[u8] {
    let mut fraction = n % 1_000_000;
    let mut whole = [0; MAX];
    let whole = decimal(n / 1_000_000, &mut whole);
    for i in (0..3).rev() {
        let pair = (fraction % 100) as usize * 2;
        fraction /= 100;
        buf[MAX - 6 + i * 2..MAX - 4 + i * 2].copy_from_slice(&DIGIT_PAIRS[pair..pair + 2]);
    }
    let at = MAX - 7 - whole.len();
    buf[MAX - 7] = b'.';
    buf[at..MAX - 7].copy_from_slice(whole);
    &buf[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_match_the_formatter() {
        let mut buf = [0; MAX];
        for n in [0, 7, 10, 99, 100, 101, 12345, 1 << 32, u64::MAX] {
            assert_eq!(decimal(n, &mut buf), n.to_string().as_bytes());
        }
        for n in [0, -1, 42, -100, i64::MIN, i64::MAX] {
            assert_eq!(signed(n, &mut buf), n.to_string().as_bytes());
        }
    }

    #[test]
    fn times_are_cut_and_fixed_numbers_rounded() {
        let mut buf = [0; MAX];
        assert_eq!(seconds(1_700_000_000.25, &mut buf), b"1700000000.250000");
        assert_eq!(seconds(0.000_001_9, &mut buf), b"0.000001");
        assert_eq!(seconds(-1.0, &mut buf), b"0.000000");
        for x in [0.0, 120.0, -1.5, 0.000_001_9, 119.999_999_9, 1_700_000_000.123_456] {
            assert_eq!(fixed6(x, &mut buf), format!("{x:.6}").as_bytes());
        }
        assert_eq!(fixed6(f64::INFINITY, &mut buf).len(), 21);
    }
}
