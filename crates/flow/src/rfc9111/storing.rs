//! Whether a shared cache may store a response (RFC 9111 section 3).

use lacquer_http::header_table::{AUTHORIZATION, COOKIE, SET_COOKIE};
use lacquer_http::{Message, Workspace};

use super::control::Control;
use super::freshness::is_explicit;
use crate::lifetime::Lifetime;

/// The facts that determine whether a response may be stored. Both messages are in `ws`.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'m> {
    pub request: &'m Message,
    pub response: &'m Message,
    pub ws: &'m Workspace,
    pub lifetime: Lifetime,
    /// VCL has set `beresp.ttl`.
    pub is_ttl_set: bool,
    /// The response is a 206 that can be stored as a part.
    pub is_part: bool,
    pub now: f64,
}

/// Returns whether a response answers only requests for the same range. `is_part` tells that it is a 206 that can be
/// stored as a part.
pub fn is_for_range(status: u16, is_part: bool) -> bool {
    status == 416 || status == 206 && !is_part
}

/// Returns whether the cache implements the requirements of a status, which `must-understand` demands (section
/// 5.2.2.3).
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=204 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

/// Returns whether the response may be stored. One that is stale already is stored if it can be validated later, or
/// used after an error. A lifetime that VCL has set to 0 forbids that.
pub fn is_storable(facts: Facts<'_>) -> bool {
    let Facts { response, ws, lifetime, .. } = facts;
    let control = Control::of(response, ws);
    let status = response.status();
    let is_final = status >= 200 && !is_for_range(status, facts.is_part);
    let is_store_forbidden = if control.must_understand { !is_understood(status) } else { control.no_store };
    let has_use = if lifetime.ttl_left(facts.now) > 0.0 {
        true
    } else {
        !facts.is_ttl_set && lifetime.ttl > 0.0 && lifetime.total() > lifetime.age(facts.now)
    };
    is_final && !is_store_forbidden && !control.private && has_use && may_serve_others(&control, facts)
}

/// Returns whether a response to a request with credentials may serve other requests. For `Authorization`, section 3.5
/// defines this. Cookies are no credentials in RFC 9111. Responses with cookies or to requests with cookies are stored
/// only if the origin states that they are fresh, or public: many origins state nothing about pages for one user, or
/// demand that they are validated, with a validator that the pages of all users share.
fn may_serve_others(control: &Control, facts: Facts<'_>) -> bool {
    let Facts { request, response, ws, .. } = facts;
    let is_for_all = control.public || control.must_revalidate || control.s_maxage.is_some();
    let has_cookies = || request.has(ws, COOKIE) || response.has(ws, SET_COOKIE);
    let is_fresh = || {
        is_explicit(control, response, ws) && !control.no_cache && facts.lifetime.ttl_left(facts.now) > 0.0
    };
    (!request.has(ws, AUTHORIZATION) || is_for_all) && (!has_cookies() || is_fresh())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1000.0;
    const FRESH: Lifetime = Lifetime { origin: NOW, ttl: 9.0, grace: 0.0, keep: 0.0 };
    const STALE: Lifetime = Lifetime { origin: NOW - 5.0, ttl: 1e-6, grace: 0.0, keep: 3600.0 };
    const LOST: Lifetime = Lifetime { origin: NOW - 5.0, ttl: 1e-6, grace: 0.0, keep: 0.0 };
    const NEVER: Lifetime = Lifetime { origin: NOW, ttl: -1.0, grace: 0.0, keep: 0.0 };

    fn storable(status: u16, lines: &[&str], asked: &[&str], lifetime: Lifetime, is_ttl_set: bool) -> bool {
        let mut ws = Workspace::new(4096);
        let (mut request, mut response) = (Message::new(64), Message::new(64));
        response.set_response(&mut ws, status).expect("there is room");
        for line in lines {
            response.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
        }
        for line in asked {
            request.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
        }
        let (request, response, ws) = (&request, &response, &ws);
        let facts = Facts { request, response, ws, lifetime, is_ttl_set, is_part: false, now: NOW };
        if status == 206 {
            assert!(is_storable(Facts { is_part: true, ..facts }), "{lines:?}");
        }
        is_storable(facts)
    }

    #[test]
    fn directives_forbid_storing() {
        let table: &[(u16, &[&str], bool)] = &[
            (200, &["Cache-Control: max-age=9"], true),
            (200, &["Cache-Control: max-age=9, no-store"], false),
            (200, &["Cache-Control: max-age=9, no-store, must-understand"], true),
            (599, &["Cache-Control: max-age=9, no-store, must-understand"], false),
            (599, &["Cache-Control: max-age=9, must-understand"], false),
            (599, &["Cache-Control: max-age=9"], true),
            (200, &["Cache-Control: max-age=9, private"], false),
            (200, &["Cache-Control: max-age=9, private=\"x\""], false),
            (206, &["Cache-Control: max-age=9"], false),
            (416, &["Cache-Control: max-age=9"], false),
            (103, &["Cache-Control: max-age=9"], false),
            (200, &["CDN-Cache-Control: max-age=9", "Cache-Control: no-store, private"], true),
            (200, &["CDN-Cache-Control: no-store", "Cache-Control: max-age=9"], false),
            (200, &["CDN-Cache-Control: private", "Cache-Control: max-age=9"], false),
        ];
        for (status, lines, expected) in table {
            assert_eq!(storable(*status, lines, &[], FRESH, false), *expected, "{status} {lines:?}");
        }
    }

    #[test]
    fn responses_for_one_user_are_not_stored() {
        const USER: &[&str] = &["Authorization: Basic x"];
        const COOKIES: &[&str] = &["Cookie: a=b"];
        let table: &[(&[&str], &[&str], bool)] = &[
            // 3.5
            (&["Cache-Control: max-age=9"], USER, false),
            (&["Cache-Control: max-age=9, public"], USER, true),
            (&["Cache-Control: max-age=9, must-revalidate"], USER, true),
            (&["Cache-Control: s-maxage=9"], USER, true),
            (&["Cache-Control: max-age=9, proxy-revalidate"], USER, false),
            // 7.3: cookies do not forbid storing.
            (&["Cache-Control: max-age=9", "Set-Cookie: a=b"], &[], true),
            (&["Cache-Control: max-age=9"], COOKIES, true),
            (&["Expires: Sun, 06 Nov 1994 08:49:57 GMT"], COOKIES, true),
            (&["Set-Cookie: a=b"], &[], false),
            (&["Cache-Control: max-age=9, no-cache", "ETag: x"], COOKIES, false),
            (&["Cache-Control: public, no-cache", "ETag: x", "Set-Cookie: a=b"], &[], false),
            (&[], COOKIES, false),
            (&["Cache-Control: x=\"max-age=9\""], COOKIES, false),
            (&[], &[], true),
        ];
        for (lines, asked, expected) in table {
            assert_eq!(storable(200, lines, asked, FRESH, false), *expected, "{lines:?} {asked:?}");
        }
    }

    #[test]
    fn a_stale_response_needs_a_use() {
        for (lifetime, is_ttl_set, expected) in [
            (FRESH, true, true),
            (STALE, false, true),
            (STALE, true, false),
            (LOST, false, false),
            (NEVER, false, false),
            (NEVER, true, false),
        ] {
            assert_eq!(storable(200, &["ETag: x"], &[], lifetime, is_ttl_set), expected, "{lifetime:?}");
        }
        // Validation does not tell the pages of users apart.
        let lines = &["ETag: x", "Cache-Control: max-age=0"];
        assert!(
            storable(200, lines, &[], STALE, false) && !storable(200, lines, &["Cookie: a=b"], STALE, false)
        );
    }
}
