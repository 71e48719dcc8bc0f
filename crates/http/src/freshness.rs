//! The freshness of a response, from its headers and the defaults in the parameters. It follows Varnish's policy,
//! which is RFC 9111 if the clocks agree. If they do not, it tends towards caching, because this cache works on
//! behalf of the origin.

use crate::ascii::{Decimal, is_ows};
use crate::date;
use crate::header_table::{AGE, CACHE_CONTROL, DATE, EXPIRES};
use crate::message::Message;
use crate::workspace::Workspace;

/// The parameters that determine freshness, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    pub ttl: f64,
    pub grace: f64,
    pub keep: f64,
    pub clock_skew: f64,
    /// `None` ignores the directive `stale-if-error`.
    pub stale_if_error: Option<f64>,
}

/// The freshness, with the values that it was derived from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Freshness {
    /// The time when the origin generated the response: now minus `Age`.
    pub origin: f64,
    /// Seconds of freshness from `origin` on. A negative value means not cacheable.
    pub ttl: f32,
    pub grace: f32,
    pub keep: f32,
    /// Seconds after the ttl for which the response may be used if its origin fails.
    pub stale_if_error: f32,
    pub date: f64,
    pub expires: f64,
    pub max_age: u32,
}

/// Parses delta-seconds as Varnish does: overflow saturates, a list may continue after a comma, a fraction is
/// ignored, and anything else is zero (RFC 9111 section 1.2.2).
pub(crate) fn delta_seconds(text: &[u8]) -> u32 {
    let start = text.iter().take_while(|&&b| is_ows(b)).count();
    let text = &text[start..];
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let value =
        text[..digits].iter().fold(0u32, |n, b| n.saturating_mul(10).saturating_add(u32::from(b - b'0')));
    let mut rest = &text[digits..];
    while let [b, tail @ ..] = rest
        && is_ows(*b)
    {
        rest = tail;
    }
    // A number of more than 32 bits means "forever", so the text after it is irrelevant.
    if value == u32::MAX || matches!(rest.first(), None | Some(b',' | b'.')) { value } else { 0 }
}

/// Returns the number in a `Cache-Control` directive.
pub fn directive(msg: &Message, ws: &Workspace, name: &[u8]) -> Option<u32> {
    msg.get_field(ws, CACHE_CONTROL, name).flatten().map(delta_seconds)
}

/// Derives the freshness. `Cache-Control` must have been merged into one header. `private` means that the object is
/// created for one pass only, so only its age matters (and no log record is written).
pub fn freshness(msg: &Message, ws: &Workspace, now: f64, defaults: &Defaults, private: bool) -> Freshness {
    let date_of = |name| msg.get(ws, name).map_or(0.0, date::parse_or_zero);
    let age = msg.get(ws, AGE).map_or(0, delta_seconds);
    let mut f = Freshness {
        origin: now - f64::from(age),
        ttl: defaults.ttl as f32,
        grace: defaults.grace as f32,
        keep: defaults.keep as f32,
        stale_if_error: 0.0,
        date: 0.0,
        expires: 0.0,
        max_age: 0,
    };
    if private {
        return Freshness { ttl: -1.0, grace: 0.0, keep: 0.0, ..f };
    }
    f.expires = date_of(EXPIRES);
    f.date = date_of(DATE);
    match msg.status() {
        // Cacheable only if the origin allows it (RFC 9110 section 15.4).
        302 | 307 => {
            f.ttl = -1.0;
            apply_headers(&mut f, msg, ws, now, defaults.clock_skew);
        }
        200 | 203 | 204 | 300 | 301 | 304 | 404 | 410 | 414 => {
            apply_headers(&mut f, msg, ws, now, defaults.clock_skew);
        }
        _ => f.ttl = -1.0,
    }
    if f.ttl >= 0.0
        && let Some(grace) = directive(msg, ws, b"stale-while-revalidate")
    {
        f.grace = grace as f32;
    }
    if let Some(default) = defaults.stale_if_error.filter(|_| f.ttl >= 0.0) {
        f.stale_if_error = stale_if_error(msg, ws, if f.ttl > 0.0 { default } else { 0.0 });
        f.keep = f.keep.max(f.stale_if_error);
    }
    f
}

/// Returns the seconds for which the response may be used after an error. A demand for validation forbids it, as it does
/// for RFC 9111. `s-maxage` does not: it is often the only way to give a cache a lifetime of its own.
fn stale_if_error(msg: &Message, ws: &Workspace, default: f64) -> f32 {
    let has = |name: &[u8]| msg.get_field(ws, CACHE_CONTROL, name).is_some();
    if has(b"must-revalidate") || has(b"proxy-revalidate") || has(b"no-cache") {
        return 0.0;
    }
    directive(msg, ws, b"stale-if-error").map_or(default, f64::from) as f32
}

fn apply_headers(f: &mut Freshness, msg: &Message, ws: &Workspace, now: f64, clock_skew: f64) {
    // "s-maxage" without a value overrides "max-age", as in Varnish.
    let shared = msg.get_field(ws, CACHE_CONTROL, b"s-maxage");
    let max_age = if shared.is_some() { shared } else { msg.get_field(ws, CACHE_CONTROL, b"max-age") };
    if let Some(Some(value)) = max_age {
        f.max_age = delta_seconds(value);
        f.ttl = f.max_age as f32;
    } else if f.expires == 0.0 {
        // the default
    } else if f.expires < f.date {
        f.ttl = 0.0;
    } else if f.date == 0.0 || (f.date - now).abs() < clock_skew {
        // The local clock agrees with that of the origin, so it can be compared with Expires.
        f.ttl = if f.expires < now { 0.0 } else { (f.expires - now) as f32 };
    } else {
        // The clocks differ, but the difference of the two headers is valid.
        f.ttl = (f.expires - f.date).trunc() as f32;
    }
}

impl Freshness {
    /// Writes the text of the `TTL` log record, "RFC ttl grace keep now origin date expires max-age cacheable".
    pub fn write_log(&self, now: f64, uncacheable: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"RFC");
        let (ttl, grace, keep) = (f64::from(self.ttl), f64::from(self.grace), f64::from(self.keep));
        for number in [ttl, grace, keep, now, self.origin, self.date, self.expires] {
            out.push(b' ');
            write_rounded(number, out);
        }
        out.push(b' ');
        out.extend_from_slice(Decimal::new(u64::from(self.max_age)).as_bytes());
        out.extend_from_slice(if uncacheable { b" uncacheable" } else { b" cacheable" });
    }
}

/// Writes a number like "%.0f" of printf.
fn write_rounded(number: f64, out: &mut Vec<u8>) {
    if number.is_sign_negative() {
        out.push(b'-');
    }
    out.extend_from_slice(Decimal::new(number.abs().round_ties_even() as u64).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 784_111_777.0; // Sun, 06 Nov 1994 08:49:37 GMT
    const D: Defaults =
        Defaults { ttl: 120.0, grace: 10.0, keep: 5.0, clock_skew: 10.0, stale_if_error: None };

    fn verdict(status: u16, lines: &[&str]) -> Freshness {
        verdict_with(status, lines, &D)
    }

    fn verdict_with(status: u16, lines: &[&str], defaults: &Defaults) -> Freshness {
        let mut ws = Workspace::new(4096);
        let mut msg = Message::new(64);
        msg.set_response(&mut ws, status).unwrap();
        for line in lines {
            msg.append_line_copy(&mut ws, line.as_bytes()).unwrap();
        }
        freshness(&msg, &ws, NOW, defaults, false)
    }

    #[test]
    fn headers_determine_the_ttl() {
        let table: &[(u16, &[&str], f32)] = &[
            (200, &[], 120.0),
            (304, &[], 120.0),
            (404, &[], 120.0),
            (500, &[], -1.0),
            (503, &["Cache-Control: max-age=10"], -1.0),
            (206, &["Cache-Control: max-age=10"], -1.0),
            (302, &[], -1.0),
            (302, &["Cache-Control: max-age=10"], 10.0),
            (307, &["Expires: Sun, 06 Nov 1994 08:49:57 GMT"], 20.0),
            (308, &["Cache-Control: max-age=10"], -1.0),
            (200, &["Cache-Control: max-age=10, s-maxage=20"], 20.0),
            (200, &["Cache-Control: max-age=10", "Expires: Sun, 06 Nov 1994 09:49:37 GMT"], 10.0),
            (200, &["Cache-Control: max-age = 10"], 10.0),
            (200, &["Cache-Control: max-age=10.5"], 10.0),
            (200, &["Cache-Control: max-age=-1"], 0.0),
            (200, &["Cache-Control: max-age=10x"], 0.0),
            (200, &["Cache-Control: max-age=99999999999"], 4_294_967_296.0),
            (200, &["Cache-Control: max-age"], 120.0),
            (200, &["Cache-Control: s-maxage, max-age=10"], 120.0),
            (200, &["Expires: Sun, 06 Nov 1994 08:49:57 GMT"], 20.0),
            (200, &["Expires: Sun, 06 Nov 1994 08:49:07 GMT"], 0.0),
            (200, &["Expires: 0"], 120.0),
            (200, &["Expires: Sun, 06 Nov 1994 08:49:57 GMT", "Date: Sun, 06 Nov 1994 08:49:40 GMT"], 20.0),
            (200, &["Expires: Sun, 06 Nov 1994 07:50:07 GMT", "Date: Sun, 06 Nov 1994 07:49:37 GMT"], 30.0),
            (200, &["Expires: Sun, 06 Nov 1994 07:49:07 GMT", "Date: Sun, 06 Nov 1994 07:49:37 GMT"], 0.0),
        ];
        for (status, lines, ttl) in table {
            assert_eq!(verdict(*status, lines).ttl, *ttl, "{status} {lines:?}");
        }
    }

    #[test]
    fn stale_use_after_errors_needs_a_permission() {
        let table: &[(u16, &[&str], Option<f64>, f32, f32)] = &[
            // The parameter, the seconds, keep
            (200, &["Cache-Control: stale-if-error=60"], None, 0.0, 5.0),
            (200, &["Cache-Control: stale-if-error=60"], Some(0.0), 60.0, 60.0),
            (200, &["Cache-Control: stale-if-error=60"], Some(90.0), 60.0, 60.0),
            (200, &["Cache-Control: stale-if-error=0"], Some(90.0), 0.0, 5.0),
            (200, &["Cache-Control: s-maxage=9"], Some(90.0), 90.0, 90.0),
            (200, &[], Some(90.0), 90.0, 90.0),
            (200, &[], Some(0.0), 0.0, 5.0),
            // The default is for responses that are fresh for a time.
            (200, &["Cache-Control: max-age=0"], Some(90.0), 0.0, 5.0),
            (200, &["Cache-Control: max-age=0, stale-if-error=60"], Some(90.0), 60.0, 60.0),
            (200, &["Cache-Control: max-age=9, must-revalidate"], Some(90.0), 0.0, 5.0),
            (200, &["Cache-Control: stale-if-error=60, proxy-revalidate"], Some(90.0), 0.0, 5.0),
            (200, &["Cache-Control: stale-if-error=60, no-cache"], Some(90.0), 0.0, 5.0),
            (503, &["Cache-Control: stale-if-error=60"], Some(90.0), 0.0, 5.0),
        ];
        for (status, lines, default, seconds, keep) in table {
            let f = verdict_with(*status, lines, &Defaults { stale_if_error: *default, ..D });
            assert_eq!((f.stale_if_error, f.keep), (*seconds, *keep), "{status} {lines:?} {default:?}");
        }
    }

    #[test]
    fn age_and_grace_are_derived_and_logged() {
        let f = verdict(200, &["Age: 7", "Cache-Control: max-age=9, stale-while-revalidate=33"]);
        assert_eq!((f.origin, f.grace, f.keep), (NOW - 7.0, 33.0, 5.0));
        let mut log = Vec::new();
        f.write_log(NOW, false, &mut log);
        assert_eq!(String::from_utf8_lossy(&log), "RFC 9 33 5 784111777 784111770 0 0 9 cacheable");
        assert_eq!(verdict(500, &["Cache-Control: stale-while-revalidate=33"]).grace, 10.0);
        let mut log = Vec::new();
        verdict(500, &[]).write_log(NOW, true, &mut log);
        assert_eq!(String::from_utf8_lossy(&log), "RFC -1 10 5 784111777 784111777 0 0 0 uncacheable");
    }
}
