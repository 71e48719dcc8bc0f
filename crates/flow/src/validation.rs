//! Validation of a stale object at its origin (RFC 9111 section 4.3): which objects can be validated, the conditions,
//! and the effect of a 304.

use lacquer_http::pack::PackedHead;
use lacquer_http::{HeaderName, Message, Workspace, conditional, date, header_table as h};

use crate::lifetime::Lifetime;
use crate::storing::Storing;

/// Header fields of a 304 that are dropped before it is merged with the stored head. They describe the body, and the
/// body is the stored one (RFC 9111 section 3.2).
pub const FIELDS_OF_BODY: [HeaderName<'static>; 3] =
    [h::CONTENT_ENCODING, h::CONTENT_LENGTH, h::CONTENT_RANGE];

/// Returns whether a stored response can be validated later: it is complete and cacheable, and has a validator that
/// is strong enough (RFC 9110 section 8.8).
#[inline]
pub fn is_possible(storing: Storing, resp: &Message, ws: &Workspace) -> bool {
    storing == Storing::Cached
        && resp.status() == 200
        && (resp.has(ws, h::ETAG) || conditional::strong_last_modified(resp, ws).is_some())
}

/// Returns the time of the last change of a response's content, for `If-Modified-Since` of clients. Without
/// Last-Modified, this is the time when the origin generated the response.
#[inline]
pub fn last_modified(resp: &Message, ws: &Workspace, lifetime: Lifetime) -> f64 {
    resp.get(ws, h::LAST_MODIFIED).map_or(lifetime.origin.floor(), date::parse_or_zero)
}

/// The conditions of a request that validates an object, as values of its header fields (RFC 9111 section 4.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'h> {
    pub if_modified_since: Option<&'h [u8]>,
    pub if_none_match: Option<&'h [u8]>,
}

/// Returns the conditions that validate an object with this head. `is_possible` was determined when the object was
/// stored.
pub fn conditions(head: PackedHead<'_>, is_possible: bool) -> Conditions<'_> {
    if !is_possible {
        return Conditions::default();
    }
    Conditions {
        if_modified_since: conditional::packed_strong_last_modified(&head),
        if_none_match: head.header(h::ETAG),
    }
}

/// The object that a request to the origin validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The result of [`is_possible`] when the object was stored. If it is false, only VCL can have made the request
    /// conditional.
    pub is_possible: bool,
    /// It is a stored response, not a marker that responses are not cached.
    pub is_response: bool,
    /// Its body is stored in a different coding than the origin sends it in.
    pub is_recoded: bool,
    /// It was purged, banned or otherwise removed during the exchange, so the 304 must not bring it back; or the 304
    /// confirms another response.
    pub is_gone: bool,
}

/// The treatment of a 304 from an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotModified<S> {
    /// The stored response is confirmed and its head is updated (RFC 9111 section 4.3.4), unless VCL decides
    /// otherwise. `weaken_etag` means that the origin's tag identifies a body in a different coding than the stored
    /// one.
    Update { stale: S, weaken_etag: bool },
    /// The request is repeated without conditions, because the stored response is gone.
    Repeat,
    /// The client sent conditions of its own, and receives the 304.
    Forward,
    /// There was no condition, so the response is invalid.
    Refuse,
}

/// Decides about a 304. `stale` is the object that was validated, and `validated` returns its facts. `is_uncacheable`
/// means that the response serves only its client.
pub fn not_modified<S>(
    stale: Option<S>,
    validated: impl FnOnce(&S) -> Validated,
    is_uncacheable: bool,
) -> NotModified<S> {
    if let Some(stale) = stale {
        let Validated { is_possible, is_response, is_recoded, is_gone } = validated(&stale);
        if is_possible && is_gone {
            return NotModified::Repeat;
        }
        if is_response && (is_possible || !is_uncacheable) {
            return NotModified::Update { stale, weaken_etag: is_recoded };
        }
    }
    if is_uncacheable { NotModified::Forward } else { NotModified::Refuse }
}

/// The reasons why the body of a confirmed object cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrefreshed {
    /// The store cannot read the body.
    Unreadable,
    /// The store did not read the body within the time limit.
    Late,
    /// There is no room for a copy of the body.
    NoRoom,
    /// Nobody needs the new object anymore.
    Abandoned,
}

/// The end of a refresh that cannot be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The request is repeated without conditions, to get the whole response.
    Repeat,
    /// The fetch fails.
    Fail,
    /// The fetch ends, because nobody waits for it.
    Abandon,
}

/// Decides how a refresh that cannot be completed ends. If a client has received the new head, it must not receive the
/// body of another response.
pub fn remedy(why: Unrefreshed, is_published: bool) -> Remedy {
    match why {
        Unrefreshed::Abandoned => Remedy::Abandon,
        Unrefreshed::Unreadable | Unrefreshed::Late if !is_published => Remedy::Repeat,
        Unrefreshed::Unreadable | Unrefreshed::Late | Unrefreshed::NoRoom => Remedy::Fail,
    }
}

/// Returns whether a 304 with this entity tag confirms another response than those with the tags that the request
/// contained. Then it must not update the stored one (RFC 9111 section 4.3.4). Tags are compared weakly, because the
/// stored tag is weak if the body was recoded.
pub fn confirms_another(tag: Option<&[u8]>, if_none_match: Option<&[u8]>) -> bool {
    let (Some(tag), Some(asked)) = (tag, if_none_match) else { return false };
    asked != b"*" && !conditional::contains_tag(asked, tag)
}

/// The header fields that make a request conditional.
pub const CONDITIONS: [HeaderName<'static>; 2] = [h::IF_MODIFIED_SINCE, h::IF_NONE_MATCH];

/// Returns whether an error page made by VCL replaces the stale object that was validated. Only a page whose lifetime
/// VCL has set does. A page that lives only because other requests wait for it leaves the object for the next
/// attempt.
pub fn error_replaces_stale(error: Lifetime, is_awaited: bool) -> bool {
    error.ttl > 0.0 && !is_awaited
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_http::{Filter, pack};

    const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT";
    const OLDER: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:00 GMT";
    const SAME: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    const STRONG: &str = "ETag: \"a\"";
    const WEAK: &str = "ETag: W/\"a\"";

    fn response(status: u16, lines: &[&str]) -> (Message, Workspace) {
        let mut ws = Workspace::new(4096);
        let mut msg = Message::new(64);
        msg.set_response(&mut ws, status).unwrap();
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        (msg, ws)
    }

    #[test]
    fn validators_make_validation_possible() {
        let table: &[(Storing, u16, &[&str], bool)] = &[
            (Storing::Cached, 200, &[STRONG], true),
            (Storing::Cached, 200, &[WEAK], true),
            (Storing::Cached, 200, &[DATE, OLDER], true),
            // Not strong: it may have changed once more within the second (RFC 9110 section 8.8.2.2).
            (Storing::Cached, 200, &[DATE, SAME], false),
            (Storing::Cached, 200, &[OLDER], false),
            (Storing::Cached, 200, &[DATE], false),
            (Storing::Cached, 404, &[STRONG], false),
            (Storing::Cached, 206, &[STRONG], false),
            (Storing::HitForMiss, 200, &[STRONG], false),
            (Storing::HitForPass, 200, &[STRONG], false),
            (Storing::Private, 200, &[STRONG], false),
        ];
        for (storing, status, lines, expected) in table {
            let (msg, ws) = response(*status, lines);
            assert_eq!(is_possible(*storing, &msg, &ws), *expected, "{storing:?} {status} {lines:?}");
        }
    }

    #[test]
    fn conditions_are_the_validators() {
        let none = Conditions::default();
        let since = Some(&b"Sun, 06 Nov 1994 08:49:00 GMT"[..]);
        let table: &[(&[&str], bool, Conditions<'_>)] = &[
            (&[STRONG], true, Conditions { if_none_match: Some(b"\"a\""), ..none }),
            (&[WEAK], true, Conditions { if_none_match: Some(b"W/\"a\""), ..none }),
            (&[DATE, OLDER], true, Conditions { if_modified_since: since, ..none }),
            (
                &[DATE, OLDER, STRONG],
                true,
                Conditions { if_modified_since: since, if_none_match: Some(b"\"a\"") },
            ),
            (&[DATE, SAME, STRONG], true, Conditions { if_none_match: Some(b"\"a\""), ..none }),
            (&[DATE, OLDER, STRONG], false, none),
        ];
        for (lines, is_possible, expected) in table {
            let (msg, ws) = response(200, lines);
            let mut head = Vec::new();
            pack::pack(&msg, &ws, Filter::INSERT, &mut head);
            let head = PackedHead::new(&head).expect("just packed");
            assert_eq!(conditions(head, *is_possible), *expected, "{lines:?} {is_possible}");
        }
    }

    #[test]
    fn a_304_updates_the_object_or_goes_to_the_client() {
        let stale = |is_possible, is_recoded, is_gone| Validated {
            is_possible,
            is_response: true,
            is_recoded,
            is_gone,
        };
        let marker = Validated { is_possible: false, is_response: false, is_recoded: false, is_gone: false };
        let unasked = stale(false, false, false);
        let update = |stale, weaken_etag| NotModified::Update { stale, weaken_etag };
        let (plain, recoded) = (stale(true, false, false), stale(true, true, false));
        let table = [
            (Some(plain), false, update(plain, false)),
            (Some(plain), true, update(plain, false)),
            (Some(recoded), false, update(recoded, true)),
            (Some(stale(true, false, true)), false, NotModified::Repeat),
            (Some(stale(true, true, true)), true, NotModified::Repeat),
            // VCL decides whether the origin may confirm an object that has no validator.
            (Some(unasked), false, update(unasked, false)),
            (Some(stale(false, false, true)), false, update(stale(false, false, true), false)),
            (Some(marker), false, NotModified::Refuse),
            (Some(marker), true, NotModified::Forward),
            (Some(stale(false, false, true)), true, NotModified::Forward),
            (None, false, NotModified::Refuse),
            (None, true, NotModified::Forward),
        ];
        for (stale, is_uncacheable, expected) in table {
            assert_eq!(not_modified(stale, |s| *s, is_uncacheable), expected, "{stale:?} {is_uncacheable}");
        }
    }

    #[test]
    fn a_304_with_another_tag_confirms_another_response() {
        let table: &[(Option<&str>, Option<&str>, bool)] = &[
            (Some("\"a\""), Some("\"a\""), false),
            (Some("\"a\""), Some("W/\"a\""), false),
            (Some("W/\"a\""), Some("\"a\""), false),
            (Some("\"b\""), Some("\"a\", \"b\""), false),
            (Some("a"), Some("a"), false),
            (Some("\"a\""), Some("*"), false),
            (None, Some("\"a\""), false),
            (Some("\"b\""), None, false),
            (Some("\"b\""), Some("\"a\""), true),
            (Some("W/\"b\""), Some("W/\"a\""), true),
            (Some("\"A\""), Some("\"a\""), true),
            (Some("a"), Some("\"a\""), true),
            (Some("\"a"), Some("\"a\""), true),
            (Some(""), Some("\"a\""), true),
        ];
        for (tag, asked, expected) in table {
            let found = confirms_another(tag.map(str::as_bytes), asked.map(str::as_bytes));
            assert_eq!(found, *expected, "{tag:?} {asked:?}");
        }
    }

    #[test]
    fn a_refresh_is_repeated_as_long_as_no_client_has_its_head() {
        let table = [
            // reason: unpublished, published
            (Unrefreshed::Unreadable, Remedy::Repeat, Remedy::Fail),
            (Unrefreshed::Late, Remedy::Repeat, Remedy::Fail),
            (Unrefreshed::NoRoom, Remedy::Fail, Remedy::Fail),
            (Unrefreshed::Abandoned, Remedy::Abandon, Remedy::Abandon),
        ];
        for (why, unpublished, published) in table {
            assert_eq!((remedy(why, false), remedy(why, true)), (unpublished, published), "{why:?}");
        }
    }

    #[test]
    fn only_errors_with_a_lifetime_replace_stale_objects() {
        let lives = |ttl| Lifetime { ttl, ..Lifetime::none(0.0) };
        assert!(error_replaces_stale(lives(5.0), false));
        assert!(!error_replaces_stale(lives(0.0), false));
        assert!(!error_replaces_stale(Lifetime::of_error(0.0, true), true));
    }

    #[test]
    fn last_modified_falls_back_to_the_origin_time() {
        let origin = Lifetime::none(784_111_000.5);
        for (lines, expected) in
            [(&[OLDER][..], 784_111_740.0), (&["Last-Modified: x"], 0.0), (&[], 784_111_000.0)]
        {
            let (msg, ws) = response(200, lines);
            assert_eq!(last_modified(&msg, &ws, origin), expected, "{lines:?}");
        }
    }
}
