//! The use of a stale object because its origin fails (`stale-if-error`, RFC 5861 section 4). Each object has a time
//! for which this is allowed after its lifetime: its headers, a parameter or VCL set it.

use crate::lifetime::Lifetime;

/// After a failure that took long, an object is used like one in grace for this multiple of that time.
const RELIEF: f64 = 2.0;
/// The seconds from which on a failure takes long.
const LONG: f64 = 0.1;

/// Returns whether a response with this status is an error of the origin.
#[inline]
pub fn is_error(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// Returns whether an object with this status may be used at `now` instead of an error, if that is allowed for
/// `seconds` after its lifetime.
pub fn is_usable(status: u16, seconds: f64, lifetime: Lifetime, now: f64) -> bool {
    !is_error(status) && seconds > 0.0 && stale_for(lifetime, now) <= seconds
}

/// Returns the grace of an object that is used because of a failure. `took` is the duration of the failed fetch in
/// seconds. If that is long, requests use the object for a while without waiting for an origin that may be dead, and one
/// of them repeats the fetch in the background. If it is short, each request asks the origin first.
pub fn grace_after_failure(seconds: f64, lifetime: Lifetime, now: f64, took: f64) -> f64 {
    let relief = if took >= LONG { RELIEF * took } else { return lifetime.grace };
    (stale_for(lifetime, now) + relief).min(seconds).max(lifetime.grace)
}

/// Returns the seconds since the end of the lifetime.
fn stale_for(lifetime: Lifetime, now: f64) -> f64 {
    lifetime.age(now) - lifetime.ttl
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1000.0;
    /// Stale for 10 seconds.
    const STALE: Lifetime = Lifetime { origin: NOW - 20.0, ttl: 10.0, grace: 2.0, keep: 60.0 };

    #[test]
    fn a_good_object_may_be_used_for_its_time() {
        assert_eq!([499, 500, 501, 502, 503, 504].map(is_error), [false, true, false, true, true, true]);
        for (status, seconds, expected) in [
            (200, 10.0, true),
            (200, 9.0, false),
            (404, 10.0, true),
            (503, 10.0, false),
            (200, 0.0, false),
            (200, f64::NAN, false),
        ] {
            assert_eq!(is_usable(status, seconds, STALE, NOW), expected, "{status} {seconds}");
        }
        let fresh = Lifetime { origin: NOW, ..STALE };
        assert!(is_usable(200, 1.0, fresh, NOW) && !is_usable(200, 0.0, fresh, NOW));
    }

    #[test]
    fn a_long_failure_extends_the_grace_within_the_time() {
        for (seconds, took, expected) in [
            (600.0, 30.0, 70.0),
            (600.0, 0.25, 10.5),
            (15.0, 30.0, 15.0),
            // A short one does not.
            (600.0, 0.01, 2.0),
            (600.0, -1.0, 2.0),
            // It never shortens it.
            (1.0, 30.0, 2.0),
        ] {
            assert_eq!(grace_after_failure(seconds, STALE, NOW, took), expected, "{seconds} {took}");
        }
    }
}
