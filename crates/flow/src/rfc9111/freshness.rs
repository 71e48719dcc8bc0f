//! The lifetime of a response (RFC 9111 section 4.2).

use lacquer_http::directives;
use lacquer_http::freshness::{Defaults, Freshness};
use lacquer_http::header_table::{AGE, DATE, ETAG, EXPIRES, LAST_MODIFIED};
use lacquer_http::{Message, Workspace, date};

use super::control::Control;

/// The lifetime of a response that is stale when it arrives, in seconds. It is positive, because an object without a
/// lifetime is not kept for validation.
const STALE: f64 = 1e-6;
/// The time for which a response with a validator is kept after its lifetime, in seconds.
const KEEP: f64 = 3600.0;
/// The part of the time since the last modification that is the heuristic lifetime (section 4.2.2).
const HEURISTIC_PART: f64 = 0.1;
/// The longest heuristic lifetime, in seconds.
const HEURISTIC_MOST: f64 = 86400.0;

/// The times of an exchange, in seconds since the epoch (section 4.2.3).
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub request: f64,
    pub response: f64,
}

/// Returns whether responses with this status may be cached by heuristics (RFC 9110 section 15.1). The status 304
/// stands for the response that it confirms. 206 is missing, so a part needs a stated lifetime or `public`.
pub fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 304 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Derives the lifetime of a response. The lines of `Cache-Control` must have been merged. A negative lifetime means
/// that there is no reason to store the response. `private` means that the response was passed, so only its age
/// matters, and `is_for_range` that the response answers only requests for its range.
pub fn freshness(
    msg: &Message,
    ws: &Workspace,
    times: Times,
    defaults: &Defaults,
    (private, is_for_range): (bool, bool),
) -> Freshness {
    let control = Control::of(msg, ws);
    let age = msg.get(ws, AGE).and_then(directives::age).unwrap_or(0);
    // All hops of the exchange have an age (HTTP/1.1), so the response's own age is not derived from its Date.
    let origin = times.response - f64::from(age) - (times.response - times.request).max(0.0);
    let mut f = Freshness {
        origin,
        ttl: -1.0,
        grace: 0.0,
        keep: 0.0,
        stale_if_error: 0.0,
        date: msg.get(ws, DATE).and_then(date::parse_leniently).unwrap_or(0.0),
        expires: msg.get(ws, EXPIRES).and_then(date::parse_leniently).unwrap_or(0.0),
        max_age: control.s_maxage.or(control.max_age).unwrap_or(0),
    };
    if private || is_for_range {
        return f;
    }
    let explicit = explicit(&control, msg, ws, times, &f);
    let Some(ttl) = explicit.or_else(|| heuristic(&control, msg, ws, times, &f, defaults)) else { return f };
    let ttl = if control.no_cache { 0.0 } else { ttl };
    f.ttl = ttl.max(STALE) as f32;
    if !control.forbids_stale() {
        f.grace = control.stale_while_revalidate.map_or(0.0, f64::from) as f32;
        // Without a lifetime, a response would be stored, and its requests coalesced, for the rare use after errors.
        let default = defaults.stale_if_error.filter(|_| ttl > 0.0).unwrap_or_default();
        f.stale_if_error = control.stale_if_error.map_or(default, f64::from) as f32;
    }
    f.keep = (keep(msg, ws, defaults) as f32).max(f.stale_if_error);
    f
}

/// Returns the lifetime that the origin states (section 4.2.1). An invalid `Expires` is in the past (section 5.3).
fn explicit(control: &Control, msg: &Message, ws: &Workspace, times: Times, f: &Freshness) -> Option<f64> {
    if let Some(seconds) = control.s_maxage.or(control.max_age) {
        return Some(f64::from(seconds));
    }
    if control.is_targeted || !msg.has(ws, EXPIRES) {
        return None;
    }
    if msg.count(ws, EXPIRES) > 1 || f.expires == 0.0 {
        return Some(0.0);
    }
    let since = if f.date > 0.0 { f.date } else { times.response };
    Some((f.expires - since).max(0.0))
}

/// Returns the lifetime of a response whose origin states none (section 4.2.2).
fn heuristic(
    control: &Control,
    msg: &Message,
    ws: &Workspace,
    times: Times,
    f: &Freshness,
    defaults: &Defaults,
) -> Option<f64> {
    if !is_heuristic(msg.status()) && !control.public && !control.no_cache {
        return None;
    }
    let Some(modified) = msg.get(ws, LAST_MODIFIED).and_then(date::parse_leniently) else {
        return Some(defaults.ttl);
    };
    let since = if f.date > 0.0 { f.date } else { times.response };
    Some(((since - modified).max(0.0) * HEURISTIC_PART).min(HEURISTIC_MOST))
}

/// Returns the time for which a response is kept for validation after its lifetime.
fn keep(msg: &Message, ws: &Workspace, defaults: &Defaults) -> f64 {
    let for_validation = if msg.has(ws, ETAG) || msg.has(ws, LAST_MODIFIED) { KEEP } else { 0.0 };
    defaults.keep.max(for_validation)
}

/// Returns whether the origin states for how long the response is fresh, or that it is public.
pub fn is_explicit(control: &Control, msg: &Message, ws: &Workspace) -> bool {
    let has_expires = !control.is_targeted && msg.has(ws, EXPIRES);
    control.s_maxage.or(control.max_age).is_some() || control.public || has_expires
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 784_111_777.0; // Sun, 06 Nov 1994 08:49:37 GMT
    const DATE_NOW: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT";
    const IN_20: &str = "Expires: Sun, 06 Nov 1994 08:49:57 GMT";
    const HOUR_AGO: &str = "Last-Modified: Sun, 06 Nov 1994 07:49:37 GMT";
    const D: Defaults =
        Defaults { ttl: 120.0, grace: 10.0, keep: 5.0, clock_skew: 10.0, stale_if_error: None };

    fn found(status: u16, lines: &[&str]) -> Freshness {
        let (mut ws, mut msg) = (Workspace::new(4096), Message::new(64));
        msg.set_response(&mut ws, status).expect("there is room");
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
        }
        freshness(&msg, &ws, Times { request: NOW, response: NOW }, &D, (false, false))
    }

    #[test]
    fn the_origin_states_a_lifetime() {
        const NONE: f32 = STALE as f32;
        let table: &[(u16, &[&str], f32)] = &[
            // 4.2.1, in its order.
            (200, &["Cache-Control: s-maxage=5, max-age=9", IN_20, DATE_NOW], 5.0),
            (200, &["Cache-Control: max-age=9", IN_20, DATE_NOW], 9.0),
            (200, &[IN_20, DATE_NOW], 20.0),
            (200, &[IN_20], 20.0),
            // The clock of the origin is 10 seconds fast: its own dates count.
            (200, &[IN_20, "Date: Sun, 06 Nov 1994 08:49:47 GMT"], 10.0),
            (200, &[IN_20, "Date: Sun, 06 Nov 1994 08:59:47 GMT"], NONE),
            // 5.3: an invalid date is in the past.
            (200, &["Expires: 0", DATE_NOW], NONE),
            (200, &["Expires: ", DATE_NOW], NONE),
            (200, &["Expires: Sun, 06 Nov 1994 08:49:57 UTC", DATE_NOW], NONE),
            (200, &[IN_20, IN_20, DATE_NOW], NONE),
            // 4.2: the case of dates does not matter.
            (200, &["Expires: SUN, 06 nov 1994 08:49:57 gmt", DATE_NOW], 20.0),
            // Any status may be stored with a lifetime (section 3).
            (599, &["Cache-Control: max-age=9"], 9.0),
            (503, &[IN_20], 20.0),
            (302, &["Cache-Control: max-age=9"], 9.0),
            // 5.2.2.4: validated before each use.
            (200, &["Cache-Control: max-age=9, no-cache"], NONE),
            (599, &["Cache-Control: no-cache"], NONE),
            // RFC 9213 section 2.2.
            (200, &["CDN-Cache-Control: max-age=7", "Cache-Control: max-age=9", IN_20], 7.0),
            (200, &["CDN-Cache-Control: foobar", "Cache-Control: max-age=9", IN_20], 120.0),
        ];
        for (status, lines, ttl) in table {
            assert_eq!(found(*status, lines).ttl, *ttl, "{status} {lines:?}");
        }
    }

    #[test]
    fn heuristics_need_a_suitable_status() {
        let table: &[(u16, &[&str], f32)] = &[
            (200, &[DATE_NOW, HOUR_AGO], 360.0),
            (200, &[HOUR_AGO], 360.0),
            (405, &[DATE_NOW, HOUR_AGO], 360.0),
            (501, &[DATE_NOW, HOUR_AGO], 360.0),
            (200, &[DATE_NOW, "Last-Modified: Thu, 01 Jan 1970 00:00:01 GMT"], 86400.0),
            (200, &[DATE_NOW, "Last-Modified: Mon, 07 Nov 1994 08:49:37 GMT"], STALE as f32),
            (200, &[], 120.0),
            (200, &["Last-Modified: x"], 120.0),
            (201, &[HOUR_AGO], -1.0),
            (302, &[], -1.0),
            (403, &[HOUR_AGO], -1.0),
            (503, &[HOUR_AGO], -1.0),
            (599, &[HOUR_AGO], -1.0),
            (599, &[HOUR_AGO, "Cache-Control: public"], 360.0),
        ];
        for (status, lines, ttl) in table {
            assert_eq!(found(*status, lines).ttl, *ttl, "{status} {lines:?}");
        }
    }

    #[test]
    fn the_age_counts_from_the_origin() {
        for (age, expected) in [("Age: 7", 7.0), ("Age: 7, 9", 7.0), ("Age: 7.0", 0.0), ("Age: -7", 0.0)] {
            assert_eq!(NOW - found(200, &[age]).origin, expected, "{age}");
        }
        let (mut ws, mut msg) = (Workspace::new(4096), Message::new(64));
        msg.set_response(&mut ws, 200).expect("there is room");
        // 4.2.3: the time of the exchange is part of the age.
        let slow = Times { request: NOW - 5.0, response: NOW };
        assert_eq!(freshness(&msg, &ws, slow, &D, (false, false)).origin, NOW - 5.0);
        let back = Times { request: NOW + 5.0, response: NOW };
        assert_eq!(freshness(&msg, &ws, back, &D, (false, false)).origin, NOW, "the clock was set back");
        assert_eq!(freshness(&msg, &ws, slow, &D, (true, false)).ttl, -1.0);
        assert_eq!(freshness(&msg, &ws, slow, &D, (false, true)).ttl, -1.0);
    }

    #[test]
    fn stale_use_needs_a_permission() {
        let table: &[(&[&str], f32, f32)] = &[
            // grace, keep
            (&["Cache-Control: max-age=9"], 0.0, 5.0),
            (&["Cache-Control: max-age=9", "ETag: x"], 0.0, 3600.0),
            (&["Cache-Control: max-age=9", HOUR_AGO], 0.0, 3600.0),
            (&["Cache-Control: max-age=9, stale-while-revalidate=30"], 30.0, 5.0),
            (&["Cache-Control: max-age=9, stale-while-revalidate=30, must-revalidate"], 0.0, 5.0),
            (&["Cache-Control: s-maxage=9, stale-while-revalidate=30"], 0.0, 5.0),
            (&["Cache-Control: max-age=9, stale-if-error=30"], 0.0, 30.0),
            (&["Cache-Control: no-cache, stale-while-revalidate=30"], 0.0, 5.0),
        ];
        for (lines, grace, keep) in table {
            let f = found(200, lines);
            assert_eq!((f.grace, f.keep), (*grace, *keep), "{lines:?}");
        }
    }
    #[test]
    fn stale_use_after_errors_needs_a_permission() {
        let table: &[(&str, f32, f32)] = &[
            // Without and with a default of 90 seconds.
            ("max-age=10, stale-if-error=10", 10.0, 10.0),
            ("max-age=10, stale-if-error=0", 0.0, 0.0),
            ("max-age=10, stale-if-error=10, must-revalidate", 0.0, 0.0),
            ("s-maxage=10, stale-if-error=10", 0.0, 0.0),
            ("no-cache, stale-if-error=10", 0.0, 0.0),
            ("max-age=10", 0.0, 90.0),
            ("max-age=0", 0.0, 0.0),
            ("max-age=0, stale-if-error=10", 10.0, 10.0),
            ("stale-if-error=x", 0.0, 90.0),
        ];
        let (mut ws, mut msg) = (Workspace::new(4096), Message::new(64));
        for (value, without, with) in table {
            msg.set_response(&mut ws, 200).expect("there is room");
            let line = format!("Cache-Control: {value}");
            msg.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
            for (default, expected) in [(None, *without), (Some(0.0), *without), (Some(90.0), *with)] {
                let defaults = Defaults { stale_if_error: default, ..D };
                let times = Times { request: NOW, response: NOW };
                let f = freshness(&msg, &ws, times, &defaults, (false, false));
                assert_eq!(f.stale_if_error, expected, "{value} {default:?}");
                assert!(f.keep >= f.stale_if_error);
            }
            msg.clear();
        }
    }
}
