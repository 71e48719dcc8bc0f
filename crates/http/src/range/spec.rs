//! Parses the value of `Range`.

use crate::ascii::{is_lws, is_tchar, trim_ows};
use crate::number::parse_uint;

/// A parsed range, with both numbers inclusive. "low-" has no `high`, "-n" has no `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedRange {
    pub low: Option<u64>,
    pub high: Option<u64>,
}

impl RequestedRange {
    /// Returns the range in a body of `length` bytes, or `None` if the range begins after its end.
    pub(super) fn resolve(self, length: u64) -> Option<(u64, u64)> {
        let last = length.checked_sub(1)?;
        match (self.low, self.high) {
            (Some(low), _) if low > last => None,
            (Some(low), high) => Some((low, high.map_or(last, |h| h.min(last)))),
            (None, high) => Some((length.saturating_sub(high.unwrap_or(0)), last)),
        }
    }
}

/// Returns the part of `Range` after "bytes=", or `None` for another unit, which must be ignored (RFC 9110 section
/// 14.2).
pub(super) fn range_set(value: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    let equals = value.iter().position(|&b| b == b'=').ok_or("Missing '='")?;
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    if unit.eq_ignore_ascii_case(b"bytes") {
        Ok(Some(set))
    } else if !unit.is_empty() && unit.iter().all(|&b| is_tchar(b)) {
        Ok(None)
    } else {
        Err("Not Bytes")
    }
}

/// Parses a value of `Range` with a single range. The errors are for the log.
pub(crate) fn parse_range(value: &[u8]) -> Result<RequestedRange, &'static str> {
    parse_spec(range_set(value)?.ok_or("Not Bytes")?)
}

/// Parses one range of a set.
pub(super) fn parse_spec(spec: &[u8]) -> Result<RequestedRange, &'static str> {
    let (low, rest) = small_uint(spec, "Low number too big")?;
    let rest = rest.strip_prefix(b"-").ok_or("Missing hyphen")?;
    let (high, rest) = small_uint(rest, "High number too big")?;
    match (low, high) {
        (None, None) => return Err("Neither high nor low"),
        (None, Some(0)) => return Err("No low, high is zero"),
        (Some(low), Some(high)) if high < low => return Err("high smaller than low"),
        _ => {}
    }
    if !only_blanks(rest) {
        return Err("Trailing stuff");
    }
    Ok(RequestedRange { low, high })
}

/// Returns whether the value of `Range` is a well-formed list of several ranges of bytes.
pub(super) fn is_sound_list(value: &[u8]) -> bool {
    matches!(range_set(value), Ok(Some(set)) if set.contains(&b',') && specs(set).all(|requested| requested.is_ok()))
}

/// Returns the ranges of a set. A list may have empty elements (RFC 9110 section 5.6.1.2).
pub(super) fn specs(set: &[u8]) -> impl Iterator<Item = Result<RequestedRange, &'static str>> {
    set.split(|&b| b == b',').map(trim_ows).filter(|spec| !spec.is_empty()).map(parse_spec)
}

fn small_uint<'a>(s: &'a [u8], too_big: &'static str) -> Result<(Option<u64>, &'a [u8]), &'static str> {
    match parse_uint(s) {
        None => Ok((None, s)),
        Some((n, rest)) if i64::try_from(n).is_ok() => Ok((Some(n), rest)),
        Some(_) => Err(too_big),
    }
}

pub(super) fn only_blanks(s: &[u8]) -> bool {
    s.iter().copied().all(is_lws)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_of_byte_ranges_are_well_formed() {
        assert!(is_sound_list(b"bytes=0-1, 5-"));
        assert!(!is_sound_list(b"bytes=0-1"));
        assert!(!is_sound_list(b"bytes=0-1,x"));
        assert!(!is_sound_list(b"pages=0-1,2-3"));
    }
}
