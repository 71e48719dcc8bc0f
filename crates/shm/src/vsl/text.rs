//! Formats numbers without the standard formatter, and copies a few bytes without a call: log records
//! consist mostly of numbers and short texts, and are frequent.
//!
//! Functions that a request calls several times are not inlined. Each inlined copy would have to be loaded
//! into the processor's cache again, because the kernel's code runs between requests.

/// Size of a buffer for the longest number (sign, 14 digits, point and six decimals, or 20 digits), plus a margin:
/// eight bytes at a time are written, so the bytes after a number's end are overwritten too.
pub const MAX: usize = 24;
/// Maximum length of texts that are copied inline.
pub(super) const SHORT: usize = 64;

const MILLION: u64 = 1_000_000;
const HUNDRED_MILLION: u64 = 100_000_000;
const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;
/// Difference between the characters zero and point.
const ZERO_TO_POINT: u64 = (b'0' - b'.') as u64;

/// Returns the eight digits of `n` (below 100 million) as characters, the first one in the lowest byte.
#[inline(never)]
const fn eight(n: u64) -> u64 {
    // Splits into halves of four digits, quarters of two, then digits: each step divides all parts at once, by
    // multiplying with a rounded inverse that is exact in this range.
    let halves = n / 10_000 + ((n % 10_000) << 32);
    let hundreds = ((halves * 5_243) >> 19) & 0x0000_007f_0000_007f;
    let quarters = hundreds | (halves - 100 * hundreds) << 16;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    (tens | (quarters - 10 * tens) << 8) | ASCII_ZEROS
}

/// Formats like [`eight`] a number below a million, with two leading zeros.
#[inline(always)]
const fn six(n: u32) -> u64 {
    let n = n as u64;
    let upper = n / 10_000;
    let lower = n - 10_000 * upper;
    let hundreds = (lower * 5_243) >> 19;
    let quarters = upper << 16 | hundreds << 32 | (lower - 100 * hundreds) << 48;
    let tens = ((quarters * 103) >> 10) & 0x000f_000f_000f_000f;
    (tens | (quarters - 10 * tens) << 8) | ASCII_ZEROS
}

/// Formats a number below ten thousand as four digits.
#[inline(always)]
const fn four(n: u32) -> u32 {
    let hundreds = n / 100;
    let halves = hundreds | (n - 100 * hundreds) << 16;
    let tens = ((halves * 103) >> 10) & 0x000f_000f;
    (tens | (halves - 10 * tens) << 8) | ASCII_ZEROS as u32
}

#[inline(always)]
fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    if let Some(place) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = bytes;
    }
}

/// Returns the decimal digits of `n`, in `buffer`.
pub fn digits(n: u64, buffer: &mut [u8; MAX]) -> &[u8] {
    let len = decimal(n, buffer);
    &buffer[..len]
}

/// Writes `n` in decimal and returns its length.
#[inline(never)]
pub(super) fn decimal(n: u64, out: &mut [u8; MAX]) -> usize {
    if n < 10 {
        out[0] = b'0' + n as u8;
        return 1;
    }
    if n < 10_000 {
        let digits = four(n as u32);
        let zeros = (digits ^ ASCII_ZEROS as u32 | 1 << 31).trailing_zeros() / 8;
        out[..4].copy_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
        return 4 - zeros as usize;
    }
    if n < HUNDRED_MILLION {
        let digits = eight(n);
        let zeros = (digits ^ ASCII_ZEROS | 1 << 63).trailing_zeros() / 8;
        out[..8].copy_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
        return 8 - zeros as usize;
    }
    let upper = decimal(n / HUNDRED_MILLION, out);
    put(out, upper, eight(n % HUNDRED_MILLION).to_le_bytes());
    upper + 8
}

/// Writes `n` in decimal at `at` and returns its end.
#[inline(always)]
pub fn decimal_at(n: u64, at: usize, out: &mut [u8]) -> usize {
    match out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        Some(place) => at + decimal(n, place),
        None => decimal_at_end(n, at, out),
    }
}

/// Writes like [`decimal_at`] if fewer than [`MAX`] bytes remain.
#[cold]
fn decimal_at_end(n: u64, at: usize, out: &mut [u8]) -> usize {
    let mut buffer = [0; MAX];
    let len = decimal(n, &mut buffer);
    if let Some(place) = out.get_mut(at..at + len) {
        place.copy_from_slice(&buffer[..len]);
    }
    at + len
}

/// Writes `n` millionths with six decimals at `at` and returns the end.
#[inline(never)]
fn millionths(n: u64, at: usize, out: &mut [u8]) -> usize {
    if n < MILLION {
        put(out, at, (eight(n) - (ZERO_TO_POINT << 8)).to_le_bytes());
        return at + 8;
    }
    let point = decimal_at(n / MILLION, at, out);
    if n.is_multiple_of(MILLION) {
        put(out, point, *b".000000");
        return point + 7;
    }
    decimals(n % MILLION, point, out)
}

/// Writes the point and six decimals.
#[inline(always)]
fn decimals(millionths: u64, at: usize, out: &mut [u8]) -> usize {
    put(out, at, ((eight(millionths) >> 8) - ZERO_TO_POINT).to_le_bytes());
    at + 7
}

/// Writes a time like Varnish's timestamps: six decimals, truncated and not rounded. Negative and invalid
/// times are zero.
#[inline(never)]
fn seconds(t: f64, at: usize, out: &mut [u8]) -> usize {
    if t == 0.0 {
        put(out, at, *b"0.000000");
        return at + 8;
    }
    millionths(to_micros(t), at, out)
}

#[inline(always)]
fn to_micros(t: f64) -> u64 {
    ((t * 1e6) as i64).max(0) as u64
}

/// Writes a number like `%.6f`: six decimals, rounded. Beyond 64 bits of millionths, the number is clamped.
#[inline(never)]
pub(super) fn fixed6(x: f64, at: usize, out: &mut [u8]) -> usize {
    // Doubles from this value on have no fraction: a number that is added to it is rounded, to even, and is in the
    // lower bits of the sum.
    const NO_FRACTION: f64 = (1_u64 << 52) as f64;
    let whole = x as i64;
    let is_shown_whole = (1..=(u64::MAX / MILLION) as i64).contains(&whole) || x.to_bits() == 0;
    if whole as f64 == x && is_shown_whole {
        let point = decimal_at(whole as u64, at, out);
        put(out, point, *b".000000");
        return point + 7;
    }
    put(out, at, [b'-']);
    let scaled = x.abs() * 1e6;
    let rounded = if scaled < NO_FRACTION {
        (scaled + NO_FRACTION).to_bits() - NO_FRACTION.to_bits()
    } else {
        scaled as u64
    };
    millionths(rounded, at + usize::from(x.is_sign_negative()), out)
}

/// Formats times. It caches the ten digits of the current second, because many times within a second are formatted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The start of the second, in microseconds. It is a whole number.
    second: f64,
    digits: [u8; 10],
}

impl Clock {
    /// Creates a clock without a cached second.
    pub(super) const fn new() -> Self {
        // It is later than any time, so no time is within its second.
        Self { second: f64::MAX, digits: [0; 10] }
    }

    /// Makes the second of `now` the cached one, if it has ten digits.
    pub(super) fn cache(&mut self, now: f64) {
        let mut buffer = [0; MAX];
        let second = to_micros(now) / MILLION;
        if let Ok(digits) = digits(second, &mut buffer).try_into() {
            (self.second, self.digits) = ((second * MILLION) as f64, digits);
        }
    }

    /// Returns the microseconds since the start of the cached second, if `now` is within it.
    #[inline(always)]
    fn micros(&self, now: f64) -> Option<u32> {
        // The difference is exact, as both numbers are below 2^53. Thus it is truncated like the whole time.
        let micros = now * 1e6 - self.second;
        if micros >= 0.0 { micros_within_a_second(micros) } else { None }
    }
}

/// Returns a whole number of microseconds that is less than a second. Negative numbers are zero.
#[inline(always)]
fn micros_within_a_second(micros: f64) -> Option<u32> {
    (micros < MILLION as f64).then_some(micros as u32)
}

/// Maximum length of the text of a timestamp after the event.
pub(super) const STAMP: usize = 2 + 3 * 20 + 2;

/// Length of the text after the event, if the timestamp is within a second of the two others.
const WITHIN_A_SECOND: usize = ": 1700000000.000000 0.000000 0.000000".len();

/// Writes the text of a `Timestamp`, and returns its length: the time, the seconds since the first and since the previous
/// one. Returns `None` if the event is not short, the time is not in the clock's second or a duration is a second
/// or longer.
#[inline(always)]
pub(super) fn stamp<const N: usize>(
    event: &[u8],
    [now, first, previous]: [f64; 3],
    clock: &Clock,
    out: &mut [u8; N],
) -> Option<usize> {
    let at = event.len();
    if at > SHORT {
        return None;
    }
    let decimals = clock.micros(now)?;
    let since_first = micros_within_a_second((now - first) * 1e6)?;
    let since_previous = micros_within_a_second((now - previous) * 1e6)?;
    copy(event, out);
    let place: &mut [u8; WITHIN_A_SECOND] = out.get_mut(at..)?.first_chunk_mut()?;
    // All parts have fixed positions. Each is written eight bytes at a time, from left to right.
    place[..2].copy_from_slice(b": ");
    place[2..12].copy_from_slice(&clock.digits);
    place[12..20].copy_from_slice(&(((six(decimals) >> 8) - ZERO_TO_POINT) | (0x20 << 56)).to_le_bytes());
    place[20..28].copy_from_slice(&(six(since_first) - (ZERO_TO_POINT << 8)).to_le_bytes());
    place[28] = b' ';
    place[29..].copy_from_slice(&(six(since_previous) - (ZERO_TO_POINT << 8)).to_le_bytes());
    Some(at + WITHIN_A_SECOND)
}

/// Writes what follows the event in any `Timestamp`, and returns its length.
pub(super) fn any_stamp([now, first, previous]: [f64; 3], out: &mut [u8; STAMP + 1]) -> usize {
    put(out, 0, *b": ");
    let mut at = seconds(now, 2, out);
    for since in [first, previous] {
        put(out, at, *b" ");
        at = seconds(now - since, at + 1, out);
    }
    at
}

/// Copies a short text to the beginning of `to`, in two overlapping pieces of a fixed size.
#[inline(always)]
pub(super) fn copy<const N: usize>(from: &[u8], to: &mut [u8; N]) {
    const { assert!(N >= SHORT) }
    let to = &mut to[..from.len()];
    match from.len() {
        33.. => ends::<32>(from, to),
        16.. => ends::<16>(from, to),
        8.. => ends::<8>(from, to),
        4.. => ends::<4>(from, to),
        2.. => ends::<2>(from, to),
        _ => ends::<1>(from, to),
    }
}

/// Copies the first and the last `N` bytes, which cover the text.
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

    fn shown(write: impl FnOnce(usize, &mut [u8]) -> usize) -> String {
        let mut out = [b'#'; MAX + 1];
        let end = write(1, &mut out);
        String::from_utf8_lossy(&out[1..end]).into_owned()
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
            assert_eq!(shown(|at, out| decimal_at(n, at, out)), n.to_string());
            assert_eq!(digits(n, &mut [0; MAX]), n.to_string().as_bytes());
        }
    }

    #[test]
    fn six_digits_match_the_formatter() {
        for n in (0..MILLION as u32).step_by(7).chain([9_999, 10_000, 999_999]) {
            assert_eq!(six(n).to_le_bytes(), *format!("{n:08}").as_bytes());
        }
    }

    #[test]
    fn times_are_truncated_and_fixed_numbers_rounded() {
        assert_eq!(shown(|at, out| seconds(1_700_000_000.25, at, out)), "1700000000.250000");
        assert_eq!(shown(|at, out| seconds(0.000_001_9, at, out)), "0.000001");
        assert_eq!(shown(|at, out| seconds(-1.0, at, out)), "0.000000");
        assert_eq!(shown(|at, out| seconds(f64::NAN, at, out)), "0.000000");
        assert_eq!(shown(|at, out| seconds(12.25, at, out)), "12.250000");
        for x in [
            0.0,
            -0.0,
            1.0,
            -3.0,
            120.0,
            1e12,
            -1.5,
            0.000_001_9,
            119.999_999_9,
            9.5,
            10.0,
            1_700_000_000.123_456,
            5e9,
        ] {
            assert_eq!(shown(|at, out| fixed6(x, at, out)), format!("{x:.6}"));
        }
        assert_eq!(shown(|at, out| fixed6(f64::NEG_INFINITY, at, out)), "-18446744073709.551615");
        for x in [18_446_744_073_710.0, 1e18, 9_223_372_036_854_775_808.0, 1e300, f64::INFINITY] {
            assert_eq!(shown(|at, out| fixed6(x, at, out)), "18446744073709.551615", "{x}");
        }
    }

    #[test]
    fn cached_seconds_do_not_change_the_text() {
        let mut clock = Clock::new();
        let mut stamped = |times: [f64; 3]| {
            let (mut fast, mut slow) = ([b'#'; 255], [0; STAMP + 1]);
            clock.cache(times[0]);
            let len = any_stamp(times, &mut slow);
            let fast_len = stamp(b"", times, &clock, &mut fast);
            assert!(fast_len.is_none_or(|fast_len| fast[..fast_len] == slow[..len]), "{times:?}");
            fast_len.is_some()
        };
        let mut t = 1_700_000_000.0;
        for i in 0..50_000_u32 {
            t += f64::from(i) * 1.234_567e-6;
            assert!(stamped([t, t - f64::from(i) * 1.9e-5, t + 1e-7]));
        }
        assert!(stamped([1_700_000_001.999_999_7, 1_700_000_001.0, 1_700_000_001.0]));
        for t in [0.0, 0.5, 99.5, -3.0, 1e12, 1e300, f64::NAN, f64::INFINITY] {
            assert!(!stamped([t, t, t]));
        }
        assert!(!stamped([1_700_000_001.25, 1_700_000_000.0, 1_700_000_001.0]));
        assert!(stamped([1_700_000_001.25, 1_700_000_001.0, 1_700_000_002.25]));
    }

    #[test]
    fn a_time_outside_of_the_cached_second_is_not_written() {
        let mut clock = Clock::new();
        clock.cache(1_700_000_001.5);
        for (t, fits) in [(0.999_999, false), (1.0, true), (1.999_999, true), (2.0, false)] {
            let now = 1_700_000_000.0 + t;
            assert_eq!(stamp(b"", [now; 3], &clock, &mut [0; 255]).is_some(), fits, "{t}");
        }
    }

    #[test]
    fn short_copies_are_whole() {
        let from: Vec<u8> = (1..=80).collect();
        for len in 0..=SHORT {
            let mut to = [0; 84];
            copy(&from[..len], &mut to);
            assert_eq!(to[..len], from[..len]);
            assert!(to[len..].iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn timestamps_contain_time_and_durations() {
        let shown = |times| {
            let mut out = [b'#'; STAMP + 1];
            let len = any_stamp(times, &mut out);
            String::from_utf8_lossy(&out[..len]).into_owned()
        };
        assert_eq!(shown([1e300, 0.0, 0.0]).len(), STAMP);
        let (mut clock, mut out) = (Clock::new(), [b'#'; 255]);
        let times = [1_700_000_000.5, 1_700_000_000.25, 1_700_000_001.0];
        clock.cache(times[0]);
        let len = stamp(b"Resp", times, &clock, &mut out).expect("it is within a second");
        assert_eq!(out[..len], *b"Resp: 1700000000.500000 0.250000 0.000000");
        assert_eq!(stamp(&[b'e'; SHORT], times, &clock, &mut out), Some(SHORT + WITHIN_A_SECOND));
        assert_eq!(stamp(&[b'e'; SHORT + 1], times, &clock, &mut out), None);
        for (times, text) in [
            ([1_700_000_000.5, 1_700_000_000.25, 1_700_000_001.0], ": 1700000000.500000 0.250000 0.000000"),
            ([1_700_000_002.5, 1_700_000_002.25, 1_700_000_001.0], ": 1700000002.500000 0.250000 1.500000"),
            (
                [1_700_000_003.0, 1_700_000_002.062_5, 1_700_000_002.937_5],
                ": 1700000003.000000 0.937500 0.062500",
            ),
        ] {
            assert_eq!(shown(times), text);
        }
    }
}
