//! Several ranges in one request (RFC 9110 sections 14.2 and 15.3.7.2). They cost no more than the body they are
//! taken from: their number is limited, and those that overlap, touch, or are so near that a part of its own
//! would take more bytes than the gap between them become one.

use super::{Asked, Decision, Several, parse_spec, range_set};
use crate::ascii::trim_ows;

/// Ranges with less than this between them are joined: the head of a part is about as long.
const NEAR: u64 = 100;

/// Decides about a set of several ranges.
pub(super) fn decide(set: &[u8], length: Option<u64>, several: Several) -> Decision {
    let Several::UpTo(most) = several else { return Decision::Whole };
    let Some(length) = length.filter(|&n| n > 0) else { return Decision::Whole };
    if set.split(|&b| b == b',').count() > most {
        return Decision::Whole;
    }
    let mut found = Vec::new();
    for asked in specs(set) {
        match asked {
            Ok(asked) => found.extend(asked.resolve(length)),
            Err(text) => return Decision::Unsatisfiable(text),
        }
    }
    match join(found)[..] {
        [] => Decision::Unsatisfiable("low range beyond object"),
        [(low, high)] => Decision::Part { low, high },
        ref parts => Decision::Parts(parts.to_vec()),
    }
}

/// Whether `value`, that of `Range`, asks for several ranges of bytes and is well-formed.
pub(super) fn is_sound_list(value: &[u8]) -> bool {
    matches!(range_set(value), Ok(Some(set)) if set.contains(&b',') && specs(set).all(|asked| asked.is_ok()))
}

/// The ranges of a set. A list may have empty elements (RFC 9110 section 5.6.1.2).
fn specs(set: &[u8]) -> impl Iterator<Item = Result<Asked, &'static str>> {
    set.split(|&b| b == b',').map(trim_ows).filter(|spec| !spec.is_empty()).map(parse_spec)
}

/// Joins ranges that are near each other. Those that are left keep the order in which the first of each was
/// asked for.
fn join(asked: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut ordered: Vec<_> = asked.into_iter().enumerate().collect();
    ordered.sort_unstable_by_key(|&(place, (low, _))| (low, place));
    let mut joined: Vec<(usize, (u64, u64))> = Vec::new();
    for (place, (low, high)) in ordered {
        match joined.last_mut() {
            Some((first, (_, end))) if low <= end.saturating_add(NEAR) => {
                *first = place.min(*first);
                *end = high.max(*end);
            }
            _ => joined.push((place, (low, high))),
        }
    }
    joined.sort_unstable_by_key(|&(place, _)| place);
    joined.into_iter().map(|(_, range)| range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_ranges() {
        let part = |low, high| Decision::Part { low, high };
        let table = [
            ("0-9,500-509", Decision::Parts(vec![(0, 9), (500, 509)])),
            ("500-509,0-9", Decision::Parts(vec![(500, 509), (0, 9)])),
            ("0-9 ,\t500-509, ,", Decision::Parts(vec![(0, 9), (500, 509)])),
            ("0-0,-1", Decision::Parts(vec![(0, 0), (999, 999)])),
            ("-1,0-0,500-", Decision::Parts(vec![(500, 999), (0, 0)])),
            ("0-9,5-20", part(0, 20)),
            ("0-9,10-20", part(0, 20)),
            ("0-9,109-120", part(0, 120)),
            ("0-9,110-120", Decision::Parts(vec![(0, 9), (110, 120)])),
            ("0-,0-,0-,0-", part(0, 999)),
            ("0-9,2000-", part(0, 9)),
            ("1000-,2000-", Decision::Unsatisfiable("low range beyond object")),
            (",", Decision::Unsatisfiable("low range beyond object")),
            ("0-9,x", Decision::Unsatisfiable("Missing hyphen")),
            ("0-9,9-0", Decision::Unsatisfiable("high smaller than low")),
            ("0-0,200-200,400-400,600-600,800-800", Decision::Whole),
        ];
        for (set, expected) in table {
            assert_eq!(decide(set.as_bytes(), Some(1000), Several::UpTo(4)), expected, "{set}");
        }
        assert_eq!(decide(b"0-9,500-509", None, Several::UpTo(4)), Decision::Whole);
        assert_eq!(decide(b"0-9,500-509", Some(0), Several::UpTo(4)), Decision::Whole);
        assert_eq!(decide(b"0-9,500-509", Some(1000), Several::Ignore), Decision::Whole);
    }

    #[test]
    fn lists_for_origins() {
        assert!(is_sound_list(b"bytes=0-1, 5-"));
        assert!(!is_sound_list(b"bytes=0-1"));
        assert!(!is_sound_list(b"bytes=0-1,x"));
        assert!(!is_sound_list(b"pages=0-1,2-3"));
    }
}
