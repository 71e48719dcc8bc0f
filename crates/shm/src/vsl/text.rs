//! Numbers as text without the formatting machinery, and copies of a few bytes without a call: log records
//! are mostly numbers and short texts, and are many.

/// Room for the longest number (sign, 14 digits, point and six decimals, or 20 digits), and a little more: eight
/// bytes at a time are written, so what lies behind a number's end is overwritten too.
pub const MAX: usize = 24;

const MILLION: u64 = 1_000_000;
const HUNDRED_MILLION: u64 = 100_000_000;
const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// The numbers below 100 in two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + n as u8 / 10, b'0' + n as u8 % 10];
        n += 1;
    }
    pairs
};

#[inline(always)]
const fn pair(n: u32) -> [u8; 2] {
    PAIRS[(n % 100) as usize]
}

/// The eight digits of `n` (below 100 million), one in a byte, the first one lowest.
#[inline]
const fn eight(n: u64) -> u64 {
    // Halves of four digits, then quarters of two, then digits: each step divides all parts at once, by
    // multiplying with a rounded inverse that is exact in this range.
    let halves = n / 10_000 + ((n % 10_000) << 32);
    let hundreds = ((halves * 5_243) >> 19) & 0x0000_007f_0000_007f;
    let quarters = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (quarters - 10 * tens) << 8
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = bytes;
    }
}

/// Writes `n` in decimal and returns its length.
#[inline]
pub fn decimal(n: u64, out: &mut [u8; MAX]) -> usize {
    decimal_at(n, 0, out)
}

/// The decimal digits of `n`, in `buffer`.
#[inline]
pub fn digits(n: u64, buffer: &mut [u8; MAX]) -> &[u8] {
    let len = decimal(n, buffer);
    &buffer[..len]
}

/// Writes `n` in decimal at `at` and returns where it ends.
#[inline(always)]
fn decimal_at(n: u64, at: usize, out: &mut [u8]) -> usize {
    if n < 10 {
        put(out, at, [b'0' + n as u8]);
        return at + 1;
    }
    if n < 10_000 {
        return short(n as u32, at, out);
    }
    long(n, at, out)
}

/// Two to four digits.
#[inline(always)]
fn short(n: u32, at: usize, out: &mut [u8]) -> usize {
    let (upper, lower) = (n / 100, n % 100);
    let mut end = at;
    if upper >= 10 {
        put(out, end, pair(upper));
        end += 2;
    } else if upper > 0 {
        put(out, end, [b'0' + upper as u8]);
        end += 1;
    }
    put(out, end, pair(lower));
    end + 2
}

/// Up to eight digits, without zeros before them.
#[inline]
fn leading(n: u64, at: usize, out: &mut [u8]) -> usize {
    let digits = eight(n);
    let zeros = (digits.trailing_zeros() / 8).min(7);
    put(out, at, ((digits | ASCII_ZEROS) >> (8 * zeros)).to_le_bytes());
    at + 8 - zeros as usize
}

fn long(n: u64, at: usize, out: &mut [u8]) -> usize {
    if n < HUNDRED_MILLION {
        return leading(n, at, out);
    }
    let (upper, last) = (n / HUNDRED_MILLION, n % HUNDRED_MILLION);
    let mut end = at;
    if upper < HUNDRED_MILLION {
        end = leading(upper, end, out);
    } else {
        end = leading(upper / HUNDRED_MILLION, end, out);
        put(out, end, (eight(upper % HUNDRED_MILLION) | ASCII_ZEROS).to_le_bytes());
        end += 8;
    }
    put(out, end, (eight(last) | ASCII_ZEROS).to_le_bytes());
    end + 8
}

/// `decimal` for signed numbers.
#[inline]
pub fn signed(n: i64, out: &mut [u8; MAX]) -> usize {
    out[0] = b'-';
    decimal_at(n.unsigned_abs(), usize::from(n < 0), out)
}

/// A time as Varnish's timestamps show it: six decimals, cut off and not rounded. Negative and absurd
/// times are zero.
#[inline]
pub fn seconds(t: f64, out: &mut [u8; MAX]) -> usize {
    micros(to_micros(t), 0, out)
}

#[inline(always)]
fn to_micros(t: f64) -> u64 {
    ((t * 1e6) as i64).max(0) as u64
}

/// The clock, which is asked for many times in a second and whose seconds are ten digits long: they are kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    second: u64,
    digits: [u8; 10],
}

impl Clock {
    /// As [`seconds`], written at `at`; the answer is where it ends.
    #[inline(always)]
    fn seconds_at(&mut self, t: f64, at: usize, out: &mut [u8]) -> usize {
        let now = to_micros(t);
        let (second, fraction) = (now / MILLION, now % MILLION);
        if second != self.second && !self.turn(second) {
            return micros(now, at, out);
        }
        put(out, at, self.digits);
        decimals(fraction, at + self.digits.len(), out)
    }

    /// False if that second is not ten digits long.
    #[cold]
    fn turn(&mut self, second: u64) -> bool {
        let mut out = [0; MAX];
        let len = decimal(second, &mut out);
        if len != self.digits.len() {
            return false;
        }
        self.second = second;
        self.digits.copy_from_slice(&out[..len]);
        true
    }
}

/// `%.6f`: six decimals, rounded. Beyond what 64 bits of millionths hold, the number sticks at the limit.
#[inline]
pub fn fixed6(x: f64, out: &mut [u8; MAX]) -> usize {
    fixed6_at(x, 0, out)
}

#[inline(always)]
fn fixed6_at(x: f64, at: usize, out: &mut [u8]) -> usize {
    // From this on doubles have no fraction: what is added to it is rounded, to even, and stands in the
    // lower bits.
    const NO_FRACTION: f64 = (1_u64 << 52) as f64;
    put(out, at, [b'-']);
    let scaled = x.abs() * 1e6;
    let rounded = if scaled < NO_FRACTION {
        (scaled + NO_FRACTION).to_bits() - NO_FRACTION.to_bits()
    } else {
        scaled as u64
    };
    micros(rounded, at + usize::from(x.is_sign_negative()), out)
}

/// Millionths, written from `at`; the answer is where they end.
#[inline(always)]
fn micros(n: u64, at: usize, out: &mut [u8]) -> usize {
    if n < MILLION {
        put(out, at, fraction(n).to_le_bytes());
        return at + 8;
    }
    let point = decimal_at(n / MILLION, at, out);
    decimals(n % MILLION, point, out)
}

/// The point and six decimals.
#[inline(always)]
fn decimals(millionths: u64, at: usize, out: &mut [u8]) -> usize {
    put(out, at, (fraction(millionths) >> 8).to_le_bytes());
    at + 7
}

/// "0." and six decimals, the first one lowest.
#[inline(always)]
const fn fraction(millionths: u64) -> u64 {
    const POINT: u64 = (b'0' - b'.') as u64;
    (eight(millionths) | ASCII_ZEROS) - (POINT << 8)
}

/// Room for the texts that are made at once: two words and a number, a word and three times, seven numbers.
pub(super) const WHOLE: usize = 160;
/// Words in them are cut to this length.
pub(super) const WORD: usize = 64;
const NUMBERS: usize = 7;

/// Writes a word at `at`; the answer is where it ends.
#[inline(always)]
fn word(word: &[u8], at: usize, out: &mut [u8]) -> usize {
    let word = &word[..word.len().min(WORD)];
    if let Some(place) = out.get_mut(at..at + word.len()) {
        copy(word, place);
    }
    at + word.len()
}

/// The text of a `Timestamp`: when, how long since the first, and since the previous one.
#[inline(always)]
pub(super) fn stamp(
    event: &[u8],
    [now, first, previous]: [f64; 3],
    clock: &mut Clock,
    out: &mut [u8; WHOLE],
) -> usize {
    let mut at = word(event, 0, out);
    put(out, at, *b": ");
    at = clock.seconds_at(now, at + 2, out);
    for since in [first, previous] {
        put(out, at, *b" ");
        at = micros(to_micros(now - since), at + 1, out);
    }
    at
}

/// The text of a `Begin` or `Link`.
#[inline(always)]
pub(super) fn relation(kind: &[u8], number: u64, why: &[u8], out: &mut [u8; WHOLE]) -> usize {
    let mut at = word(kind, 0, out);
    put(out, at, *b" ");
    at = decimal_at(number, at + 1, out);
    put(out, at, *b" ");
    word(why, at + 1, out)
}

/// Up to [`NUMBERS`] numbers with spaces between them.
#[inline(always)]
pub(super) fn numbers(numbers: &[u64], out: &mut [u8; WHOLE]) -> usize {
    let mut at = 0;
    for &n in numbers.iter().take(NUMBERS) {
        at = decimal_at(n, at, out);
        put(out, at, *b" ");
        at += 1;
    }
    at.saturating_sub(1)
}

/// The text of a `Hit`: a number and three durations.
#[inline(always)]
pub(super) fn hit(number: u64, durations: [f64; 3], out: &mut [u8; WHOLE]) -> usize {
    let mut at = decimal_at(number, 0, out);
    for seconds in durations {
        put(out, at, *b" ");
        at = fixed6_at(seconds, at + 1, out);
    }
    at
}

/// Copies all of `from` to the beginning of `to`, which must not be shorter. What is short, as most
/// parts of a record are, is copied as two overlapping pieces of a fixed size.
#[inline(always)]
pub(super) fn copy(from: &[u8], to: &mut [u8]) {
    let to = &mut to[..from.len()];
    match from.len() {
        65.. => to.copy_from_slice(from),
        33.. => ends::<32>(from, to),
        16.. => ends::<16>(from, to),
        8.. => ends::<8>(from, to),
        4.. => ends::<4>(from, to),
        2.. => ends::<2>(from, to),
        _ => ends::<1>(from, to),
    }
}

/// The first and the last `N` bytes, which are all.
#[inline(always)]
fn ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        if let Some(place) = to.first_chunk_mut() {
            *place = *first;
        }
        if let Some(place) = to.last_chunk_mut() {
            *place = *last;
        }
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
        let mut numbers = vec![0, 7, 10, 99, 100, 101, 12345, 1 << 32, u64::MAX];
        for power in 1..20 {
            let ten = 10_u64.pow(power);
            numbers.extend([ten - 1, ten, ten + 1, ten / 5 * 9]);
        }
        numbers.extend((0..20_000_u64).map(|n| n * 4_999 + n % 7));
        for n in numbers {
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
        assert_eq!(shown(|out| seconds(12.25, out)), "12.250000");
        let mut clock = Clock::default();
        for t in [1_700_000_000.25, 1_700_000_000.5, 1_700_000_001.0, 0.0, 99.5, 1_700_000_001.125] {
            assert_eq!(shown(|out| clock.seconds_at(t, 0, out)), format!("{t:.6}"));
        }
        for x in [0.0, 120.0, -1.5, 0.000_001_9, 119.999_999_9, 9.5, 10.0, 1_700_000_000.123_456, 5e9] {
            assert_eq!(shown(|out| fixed6(x, out)), format!("{x:.6}"));
        }
        assert_eq!(shown(|out| fixed6(f64::NEG_INFINITY, out)), "-18446744073709.551615");
    }
    #[test]
    fn short_copies_are_whole() {
        let from: Vec<u8> = (1..=80).collect();
        for len in 0..=80 {
            let mut to = [0; 84];
            copy(&from[..len], &mut to);
            assert_eq!(to[..len], from[..len]);
            assert!(to[len..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn texts_made_at_once_fit_their_room() {
        let mut out = [b'#'; WHOLE];
        let len = numbers(&[u64::MAX; NUMBERS], &mut out);
        assert_eq!(out[..len], *vec![u64::MAX.to_string(); NUMBERS].join(" ").as_bytes());
        let len = numbers(&[0, 10, 1400], &mut out);
        assert_eq!(out[..len], *b"0 10 1400");
        let (mut clock, event) = (Clock::default(), [b'e'; WORD]);
        let len = stamp(&event, [1e300, 0.0, 0.0], &mut clock, &mut out);
        assert_eq!(len, WORD + 2 + 3 * 20 + 2);
        let len = stamp(b"Resp", [1_700_000_000.5, 1_700_000_000.25, 1_700_000_001.0], &mut clock, &mut out);
        assert_eq!(out[..len], *b"Resp: 1700000000.500000 0.250000 0.000000");
        let len = relation(&event, u64::MAX, &event, &mut out);
        assert_eq!(len, 2 * WORD + 2 + 20);
        let len = relation(b"req", 32769, b"rxreq", &mut out);
        assert_eq!(out[..len], *b"req 32769 rxreq");
        let len = hit(3, [-0.5, 10.0, 0.0], &mut out);
        assert_eq!(out[..len], *b"3 -0.500000 10.000000 0.000000");
    }
}
