//! Decides which part of a response a client gets. Several ranges in one request (RFC 9110 sections 14.2 and
//! 15.3.7.2) cost no more than the body that they are taken from: their number is limited, and ranges are joined if
//! they overlap, are adjacent, or have a gap between them that is smaller than the head of a part.

use super::spec::{parse_spec, range_set, specs};
use crate::conditional::strong_compare;
use crate::date;
use crate::header_table::{DATE, ETAG, HeaderName, IF_RANGE, LAST_MODIFIED, RANGE};
use crate::message::Message;
use crate::workspace::Workspace;

/// The maximum gap between ranges that are joined, which is about the length of a part's head.
const NEAR: u64 = 100;

/// The treatment of a request for several ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {
    /// Status 416, as in Varnish.
    Refuse,
    /// Deliver the whole body.
    Ignore,
    /// Deliver the ranges if there are at most this many, otherwise the whole body.
    UpTo(usize),
}

/// The rules that a response is selected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub several: Several,
    /// A date in `If-Range` must exclude that the response changed twice within a second.
    pub has_exact_dates: bool,
}

/// The treatment of the `Range` of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Deliver the whole body.
    Whole,
    /// 206 with the bytes `low..=high`.
    Part { low: u64, high: u64 },
    /// 206 with these ranges, both ends inclusive, as a multipart body. There are at least two, and they neither
    /// overlap nor touch.
    Parts(Vec<(u64, u64)>),
    /// 416 and no body; the text is for the `Debug` record "RANGE_FAIL ...".
    Unsatisfiable(&'static str),
}

/// Decides for a response of `length` bytes, or `None` if the length is not known yet, because the body is being
/// fetched.
pub fn decide(
    req: &Message,
    req_ws: &Workspace,
    resp: &Message,
    resp_ws: &Workspace,
    length: Option<u64>,
    Rules { several, has_exact_dates }: Rules,
) -> Decision {
    let Some(value) = req.get(req_ws, RANGE) else { return Decision::Whole };
    if !if_range_holds((req, req_ws), (resp, resp_ws), has_exact_dates) {
        return Decision::Whole;
    }
    let set = match range_set(value) {
        Ok(Some(set)) => set,
        Ok(None) => return Decision::Whole,
        Err(text) => return Decision::Unsatisfiable(text),
    };
    if several != Several::Refuse && set.contains(&b',') {
        return decide_several(set, length, several);
    }
    let requested = match parse_spec(set) {
        Ok(requested) => requested,
        Err(text) => return Decision::Unsatisfiable(text),
    };
    match (length, requested.low, requested.high) {
        // As in Varnish 9, an empty body has no ranges.
        (Some(0), ..) => Decision::Whole,
        (Some(length), ..) => match requested.resolve(length) {
            Some((low, high)) => Decision::Part { low, high },
            None => Decision::Unsatisfiable("low range beyond object"),
        },
        (None, Some(low), Some(high)) => Decision::Part { low, high },
        (None, ..) => Decision::Whole,
    }
}

/// Returns whether the request's `If-Range` contains an entity tag, not a date.
pub fn needs_entity_tag(req: &Message, ws: &Workspace) -> bool {
    req.get(ws, IF_RANGE).is_some_and(is_entity_tag)
}

fn is_entity_tag(condition: &[u8]) -> bool {
    condition.starts_with(b"\"") || condition.starts_with(b"W/")
}

/// Returns whether `If-Range` allows the range: a strong entity tag, or the exact date of `Last-Modified`
/// (RFC 9110 section 13.1.5).
fn if_range_holds(
    (req, req_ws): (&Message, &Workspace),
    (resp, resp_ws): (&Message, &Workspace),
    has_exact_dates: bool,
) -> bool {
    let Some(condition) = req.get(req_ws, IF_RANGE) else { return true };
    if is_entity_tag(condition) {
        return resp.get(resp_ws, ETAG).is_some_and(|tag| strong_compare(condition, tag));
    }
    let date_of = |name: HeaderName<'_>| resp.get(resp_ws, name).and_then(date::parse);
    match (date::parse(condition), date_of(DATE), date_of(LAST_MODIFIED)) {
        (Some(requested), Some(date), Some(modified)) => {
            // Varnish accepts a date that does not exclude a second change (RFC 9110 section 8.8.2.2).
            let latest = if has_exact_dates { date - 1.0 } else { date + 60.0 };
            modified <= latest && modified == requested
        }
        _ => false,
    }
}

/// Decides about a set of several ranges.
fn decide_several(set: &[u8], length: Option<u64>, several: Several) -> Decision {
    let Several::UpTo(most) = several else { return Decision::Whole };
    let Some(length) = length.filter(|&n| n > 0) else { return Decision::Whole };
    if set.split(|&b| b == b',').count() > most {
        return Decision::Whole;
    }
    let mut found = Vec::new();
    for requested in specs(set) {
        match requested {
            Ok(requested) => found.extend(requested.resolve(length)),
            Err(text) => return Decision::Unsatisfiable(text),
        }
    }
    match join(found)[..] {
        [] => Decision::Unsatisfiable("low range beyond object"),
        [(low, high)] => Decision::Part { low, high },
        ref parts => Decision::Parts(parts.to_vec()),
    }
}

/// Joins ranges that are close to each other. The results are in the order in which the first range of each was
/// requested.
fn join(requested: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut ordered: Vec<_> = requested.into_iter().enumerate().collect();
    ordered.sort_unstable_by_key(|&(index, (low, _))| (low, index));
    let mut joined: Vec<(usize, (u64, u64))> = Vec::new();
    for (index, (low, high)) in ordered {
        match joined.last_mut() {
            Some((first, (_, end))) if low <= end.saturating_add(NEAR) => {
                *first = index.min(*first);
                *end = high.max(*end);
            }
            _ => joined.push((index, (low, high))),
        }
    }
    joined.sort_unstable_by_key(|&(index, _)| index);
    joined.into_iter().map(|(_, range)| range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_ranges_are_joined_and_limited() {
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
            assert_eq!(decide_several(set.as_bytes(), Some(1000), Several::UpTo(4)), expected, "{set}");
        }
        assert_eq!(decide_several(b"0-9,500-509", None, Several::UpTo(4)), Decision::Whole);
        assert_eq!(decide_several(b"0-9,500-509", Some(0), Several::UpTo(4)), Decision::Whole);
        assert_eq!(decide_several(b"0-9,500-509", Some(1000), Several::Ignore), Decision::Whole);
    }
}
