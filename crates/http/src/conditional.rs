//! Conditional requests and validators: evaluates a client's conditions, and selects the validators that are strong
//! enough for requests to the origin.

use crate::ascii::trim_ows;
use crate::date;
use crate::header_table::{
    ACCEPT_ENCODING, DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RANGE, VARY,
};
use crate::message::Message;
use crate::pack::PackedHead;
use crate::workspace::{Overflow, Text, Workspace};

fn is_weak(tag: &[u8]) -> bool {
    tag.starts_with(b"W/")
}

/// Compares entity tags by RFC 9110 section 8.8.3.2.
pub(crate) fn strong_compare(a: &[u8], b: &[u8]) -> bool {
    !is_weak(a) && !is_weak(b) && a == b
}

/// Compares entity tags by RFC 9110 section 8.8.3.2.
pub(crate) fn weak_compare(a: &[u8], b: &[u8]) -> bool {
    a.strip_prefix(b"W/").unwrap_or(a) == b.strip_prefix(b"W/").unwrap_or(b)
}

/// Returns the entity tags in a list. A comma within quotes is not a separator.
fn entity_tags(mut list: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if list.is_empty() {
            return None;
        }
        let mut quoted = false;
        let end = list.iter().position(|&b| {
            quoted ^= b == b'"';
            b == b',' && !quoted
        });
        let (tag, rest) = end.map_or((list, &b""[..]), |n| (&list[..n], &list[n + 1..]));
        list = rest;
        Some(trim_ows(tag))
    })
}

/// Returns whether a list of entity tags contains one, by the weak comparison.
pub fn contains_tag(list: &[u8], tag: &[u8]) -> bool {
    entity_tags(list).any(|listed| weak_compare(listed, tag))
}

/// Returns whether the client's conditions allow a 304 instead of a 200. `last_modified` is that of the object, for
/// responses without the header. `t_req` is the arrival time of the request.
pub fn not_modified(
    req: &Message,
    req_ws: &Workspace,
    resp: &Message,
    resp_ws: &Workspace,
    t_req: f64,
    last_modified: impl FnOnce() -> f64,
) -> bool {
    if resp.status() % 1000 != 200 {
        return false;
    }
    // If-None-Match overrides If-Modified-Since (RFC 9110 section 13.1.3).
    if let Some(condition) = req.get(req_ws, IF_NONE_MATCH) {
        if condition == b"*" {
            return true;
        }
        let Some(tag) = resp.get(resp_ws, ETAG) else { return false };
        let matches = if req.has(req_ws, RANGE) { strong_compare } else { weak_compare };
        return matches(condition, tag) || entity_tags(condition).any(|t| matches(t, tag));
    }
    let Some(since) = req.get(req_ws, IF_MODIFIED_SINCE).map(date::parse_or_zero) else { return false };
    if since == 0.0 || since > t_req {
        return false;
    }
    match resp.get(resp_ws, LAST_MODIFIED).map(date::parse_or_zero) {
        Some(modified) => modified != 0.0 && modified <= since,
        None => last_modified() <= since,
    }
}

/// Makes the entity tag weak, because the body will differ from the one that it identifies. Returns the new line, if
/// there is one.
pub fn weaken_etag(
    msg: &mut Message,
    ws: &mut Workspace,
    removed: impl FnMut(&[u8]),
) -> Result<Option<Text>, Overflow> {
    let tag = msg.get_text(ws, ETAG);
    if tag.is_none() || is_weak(ws.get(tag)) {
        return Ok(None);
    }
    let prefix = ws.copy(b"ETag: W/")?;
    let line = ws.join(&[prefix, tag])?;
    msg.set_line(ws, ETAG, line, removed).map(Some)
}

/// Adds `Accept-Encoding` to `Vary`, unless it is there already. Returns the new line, if there is one.
pub fn vary_on_encoding(
    msg: &mut Message,
    ws: &mut Workspace,
    removed: impl FnMut(&[u8]),
) -> Result<Option<Text>, Overflow> {
    if msg.has_token(ws, VARY, ACCEPT_ENCODING.as_bytes()) {
        return Ok(None);
    }
    let old = msg.get_text(ws, VARY);
    if old.is_none() {
        return msg.append_line(ws, crate::fixed::VARY_ACCEPT_ENCODING).map(Some);
    }
    let prefix = ws.copy(b"Vary: ")?;
    let suffix = ws.copy(b", Accept-Encoding")?;
    let line = ws.join(&[prefix, old, suffix])?;
    msg.set_line(ws, VARY, line, removed).map(Some)
}

/// Returns whether `Last-Modified` is a strong validator: at least a second older than `Date` (RFC 9110
/// section 8.8.2.2).
fn is_strong(last_modified: Option<&[u8]>, date: Option<&[u8]>) -> bool {
    match (last_modified.and_then(date::parse), date.and_then(date::parse)) {
        (Some(modified), Some(date)) => modified + 1.0 <= date,
        _ => false,
    }
}

/// Returns the value of `Last-Modified` if it is strong.
pub fn strong_last_modified<'w>(msg: &Message, ws: &'w Workspace) -> Option<&'w [u8]> {
    let value = msg.get(ws, LAST_MODIFIED);
    value.filter(|_| is_strong(value, msg.get(ws, DATE)))
}

/// Returns the value of `Last-Modified` in a stored head if it is strong.
pub fn packed_strong_last_modified<'a>(head: &PackedHead<'a>) -> Option<&'a [u8]> {
    let value = head.header(LAST_MODIFIED);
    value.filter(|_| is_strong(value, head.header(DATE)))
}

/// Returns whether the client accepts gzip. "x-gzip" is accepted with any quality value.
pub fn accepts_gzip(req: &Message, ws: &Workspace) -> bool {
    req.has_token(ws, ACCEPT_ENCODING, b"x-gzip") || req.quality(ws, ACCEPT_ENCODING, b"gzip") > 0.0
}

/// The effect of normalising `Accept-Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodingChange {
    None,
    Removed,
    /// The new line.
    Set(Text),
}

/// Reduces `Accept-Encoding` to "gzip" or nothing, so that Vary causes few variants.
pub fn normalise_accept_encoding(
    req: &mut Message,
    ws: &mut Workspace,
    removed: impl FnMut(&[u8]),
) -> Result<EncodingChange, Overflow> {
    if !accepts_gzip(req, ws) {
        let n = req.unset(ws, ACCEPT_ENCODING, removed);
        return Ok(if n > 0 { EncodingChange::Removed } else { EncodingChange::None });
    }
    if req.value_is(ws, ACCEPT_ENCODING, b"gzip") {
        return Ok(EncodingChange::None);
    }
    req.set_line(ws, ACCEPT_ENCODING, crate::fixed::ACCEPT_ENCODING_GZIP, removed).map(EncodingChange::Set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lines: &[&str]) -> (Message, Workspace) {
        let mut ws = Workspace::new(4096);
        let mut msg = Message::new(64);
        msg.set_response(&mut ws, 200).unwrap();
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        (msg, ws)
    }

    fn check(req: &[&str], resp: &[&str]) -> bool {
        let ((req, req_ws), (resp, resp_ws)) = (message(req), message(resp));
        not_modified(&req, &req_ws, &resp, &resp_ws, 784_200_000.0, || 784_000_000.0)
    }

    #[test]
    fn entity_tags_take_precedence_over_dates() {
        let table: &[(&[&str], &[&str], bool)] = &[
            (&["If-None-Match: \"a\""], &["ETag: \"a\""], true),
            (&["If-None-Match: W/\"a\""], &["ETag: \"a\""], true),
            (&["If-None-Match: \"a\"", "Range: x"], &["ETag: \"a\""], true),
            (&["If-None-Match: W/\"a\"", "Range: x"], &["ETag: W/\"a\""], false),
            (&["If-None-Match: \"x,y\", \"a\""], &["ETag: \"a\""], true),
            (&["If-None-Match: \"x,y\""], &["ETag: y\""], false),
            (&["If-None-Match: \"x,y\""], &["ETag: \"x,y\""], true),
            (&["If-None-Match: 123"], &["ETag: 123"], true),
            (&["If-None-Match: \"A\""], &["ETag: \"a\""], false),
            (&["If-None-Match: \"a\""], &[], false),
            (&["If-None-Match: *"], &[], true),
            (
                &["If-None-Match: \"b\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"],
                &["ETag: \"a\""],
                false,
            ),
            (&[], &["ETag: \"a\""], false),
        ];
        for (req, resp, expected) in table {
            assert_eq!(check(req, resp), *expected, "{req:?} {resp:?}");
        }
    }

    #[test]
    fn dates_decide_without_entity_tags() {
        let since = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT";
        assert!(check(&[since], &["Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"]));
        assert!(!check(&[since], &["Last-Modified: Sun, 06 Nov 1994 08:49:38 GMT"]));
        assert!(!check(&[since], &["Last-Modified: nonsense"]));
        assert!(check(&[since], &[]));
        assert!(!check(&["If-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT"], &[]));
        assert!(!check(&["If-Modified-Since: nonsense"], &[]));
    }

    #[test]
    fn validators_are_classified_and_weakened() {
        let lm = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        let (msg, ws) = message(&[lm, "Date: Sun, 06 Nov 1994 08:49:38 GMT"]);
        assert!(strong_last_modified(&msg, &ws).is_some());
        let (msg, ws) = message(&[lm, "Date: Sun, 06 Nov 1994 08:49:37 GMT"]);
        assert!(strong_last_modified(&msg, &ws).is_none());
        let (mut msg, mut ws) = message(&["ETag: \"x\"", "Vary: Foo"]);
        let line = weaken_etag(&mut msg, &mut ws, |_| ()).unwrap().unwrap();
        assert_eq!(ws.get(line), b"ETag: W/\"x\"");
        assert_eq!(weaken_etag(&mut msg, &mut ws, |_| ()), Ok(None));
        vary_on_encoding(&mut msg, &mut ws, |_| ()).unwrap();
        assert_eq!(msg.get(&ws, VARY), Some(&b"Foo, Accept-Encoding"[..]));
        assert_eq!(vary_on_encoding(&mut msg, &mut ws, |_| ()), Ok(None));
    }

    #[test]
    fn accept_encoding_is_reduced_to_gzip() {
        let reduce = |line: &str| {
            let (mut msg, mut ws) = message(&[line]);
            normalise_accept_encoding(&mut msg, &mut ws, |_| ()).unwrap();
            msg.get(&ws, ACCEPT_ENCODING).map(|v| String::from_utf8_lossy(v).into_owned())
        };
        assert_eq!(reduce("Accept-Encoding: br, GZIP;q=0.1"), Some("gzip".into()));
        assert_eq!(reduce("Accept-Encoding: x-gzip;q=0"), Some("gzip".into()));
        assert_eq!(reduce("Accept-Encoding: gzip;q=0"), None);
        assert_eq!(reduce("Accept-Encoding: br"), None);
        assert_eq!(reduce("Foo: bar"), None);
    }
}
