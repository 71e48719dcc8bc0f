//! Numbers as text without the formatting machinery: log records are mostly numbers, and are many.

const DIGIT_PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
    2021222324252627282930313233343536373839\
    4041424344454647484950515253545556575859\
    6061626364656667686970717273747576777879\
    8081828384858687888990919293949596979899";

/// Room for the longest number: sign, 14 digits and six decimals, or 20 digits; rounded up.
pub const MAX: usize = 32;

/// Writes `n` in decimal and returns its length.
#[inline]
pub fn decimal(n: u64, out: &mut [u8; MAX]) -> usize {
    let len = n.checked_ilog10().unwrap_or(0) as usize + 1;
    backwards(n, &mut out[..len]);
    len
}

/// `decimal` for signed numbers.
#[inline]
pub fn signed(n: i64, out: &mut [u8; MAX]) -> usize {
    let negative = usize::from(n < 0);
    out[0] = b'-';
    let n = n.unsigned_abs();
    let end = negative + n.checked_ilog10().unwrap_or(0) as usize + 1;
    backwards(n, &mut out[negative..end]);
    end
}

/// A time as Varnish's timestamps show it: six decimals, cut off and not rounded. Negative and absurd
/// times are zero.
#[inline]
pub fn seconds(t: f64, out: &mut [u8; MAX]) -> usize {
    micros((t.max(0.0) * 1e6) as u64, 0, out)
}

/// `%.6f`: six decimals, rounded. Beyond what 64 bits of millionths hold, the number sticks at the limit.
#[inline]
pub fn fixed6(x: f64, out: &mut [u8; MAX]) -> usize {
    out[0] = b'-';
    micros((x.abs() * 1e6).round_ties_even() as u64, usize::from(x.is_sign_negative()), out)
}

/// Millionths, written from `at`; the answer is where they end.
#[inline]
fn micros(n: u64, at: usize, out: &mut [u8; MAX]) -> usize {
    let (whole, fraction) = (n / 1_000_000, n % 1_000_000);
    let point = at + whole.checked_ilog10().unwrap_or(0) as usize + 1;
    backwards(whole, &mut out[at..point]);
    let Some([dot, decimals @ ..]) = out[point..].first_chunk_mut::<7>() else { return point };
    *dot = b'.';
    backwards(fraction, decimals);
    point + 7
}

/// Fills `out` with the last digits of `n`, as many as there is room for.
#[inline]
fn backwards(n: u64, out: &mut [u8]) {
    let mut n = n;
    let (pairs, odd) = {
        let odd = out.len() % 2;
        let (first, rest) = out.split_at_mut(odd);
        (rest, first)
    };
    for pair in pairs.rchunks_exact_mut(2) {
        let digits = (n % 100) as usize * 2;
        n /= 100;
        pair.copy_from_slice(&DIGIT_PAIRS[digits..digits + 2]);
    }
    if let [digit] = odd {
        *digit = b'0' + (n % 10) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut [u8; MAX]) -> usize) -> String {
        let mut out = [b'#'; MAX];
        let len = write(&mut out);
        String::from_utf8_lossy(&out[..len]).into_owned()
    }

    #[test]
    fn integers_match_the_formatter() {
        for n in [0, 7, 10, 99, 100, 101, 12345, 1 << 32, u64::MAX] {
            assert_eq!(shown(|out| decimal(n, out)), n.to_string());
        }
        for n in [0, -1, 42, -100, i64::MIN, i64::MAX] {
            assert_eq!(shown(|out| signed(n, out)), n.to_string());
        }
    }

    #[test]
    fn times_are_cut_and_fixed_numbers_rounded() {
        assert_eq!(shown(|out| seconds(1_700_000_000.25, out)), "1700000000.250000");
        assert_eq!(shown(|out| seconds(0.000_001_9, out)), "0.000001");
        assert_eq!(shown(|out| seconds(-1.0, out)), "0.000000");
        for x in [0.0, 120.0, -1.5, 0.000_001_9, 119.999_999_9, 1_700_000_000.123_456] {
            assert_eq!(shown(|out| fixed6(x, out)), format!("{x:.6}"));
        }
        assert_eq!(shown(|out| fixed6(f64::NEG_INFINITY, out)), "-18446744073709.551615");
    }
}
