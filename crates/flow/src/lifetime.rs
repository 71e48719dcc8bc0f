//! The lifetime of a response: as its headers specify it, and as VCL and the cache change it afterwards.

use lacquer_http::freshness::Freshness;

/// The lifetime of an error page while other requests wait for it: ttl, grace and keep, in seconds. They share the
/// page instead of requesting the origin one after the other.
const SHARED_ERROR: (f64, f64, f64) = (1.0, 5.0, 5.0);

/// The lifetime of a response. It is fresh for `ttl` from `origin` on, may then be used stale for `grace`, and is
/// then kept for a conditional fetch for `keep`. All are in seconds. A negative `ttl` forbids caching.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lifetime {
    /// The time when the origin generated the response (RFC 9111 section 4.2.3): its arrival minus its age.
    pub origin: f64,
    pub ttl: f64,
    pub grace: f64,
    pub keep: f64,
}

impl Lifetime {
    /// Returns the lifetime of a response that must not be used again.
    pub fn none(origin: f64) -> Lifetime {
        Lifetime { origin, ..Lifetime::default() }
    }

    /// Returns the lifetime that headers and parameters specify (RFC 9111 section 4.2.1).
    #[inline]
    pub fn of_headers(fresh: &Freshness) -> Lifetime {
        let [ttl, grace, keep] = [fresh.ttl, fresh.grace, fresh.keep].map(f64::from);
        Lifetime { origin: fresh.origin, ttl, grace, keep }
    }

    /// Returns the lifetime that a page of `vcl_backend_error` has before VCL changes it. `is_awaited` means that
    /// other requests wait for this fetch.
    pub fn of_error(now: f64, is_awaited: bool) -> Lifetime {
        let (ttl, grace, keep) = if is_awaited { SHARED_ERROR } else { (0.0, 0.0, 0.0) };
        Lifetime { origin: now, ttl, grace, keep }
    }

    /// Returns the lifetime of a hit-for-pass object, as `return (pass(duration))` sets it.
    #[must_use]
    pub fn of_pass(self, seconds: f64) -> Lifetime {
        Lifetime { ttl: seconds, ..Lifetime::none(self.origin) }
    }

    /// Returns the lifetime of an object that fit only into Transient: at most `shortlived` seconds. The response is
    /// used, but such objects must not fill that storage.
    #[must_use]
    pub fn salvaged(self, shortlived: f64) -> Lifetime {
        Lifetime { ttl: self.ttl.min(shortlived), ..Lifetime::none(self.origin) }
    }

    /// Sets `beresp.ttl`. VCL counts it from `now`, the object counts it from its origin.
    pub fn set_ttl(&mut self, seconds: f64, now: f64) {
        self.ttl = (seconds + self.age(now)).max(0.0);
    }

    /// Sets `beresp.grace`.
    pub fn set_grace(&mut self, seconds: f64) {
        self.grace = seconds.max(0.0);
    }

    /// Sets `beresp.keep`.
    pub fn set_keep(&mut self, seconds: f64) {
        self.keep = seconds.max(0.0);
    }

    /// Keeps the object for at least so many seconds after its grace.
    pub fn keep_for(&mut self, seconds: f64) {
        self.keep = self.keep.max(seconds);
    }

    /// Returns the seconds since the origin generated the response.
    pub fn age(self, now: f64) -> f64 {
        now - self.origin
    }

    /// Returns the seconds for which the response is still fresh, as VCL reads them from `beresp.ttl`.
    pub fn ttl_left(self, now: f64) -> f64 {
        self.ttl.max(0.0) - self.age(now)
    }

    /// Returns the seconds from the origin until the object must be removed.
    #[inline]
    pub fn total(self) -> f64 {
        self.ttl + self.grace + self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1000.0;

    fn lifetime(origin: f64, ttl: f64, grace: f64, keep: f64) -> Lifetime {
        Lifetime { origin, ttl, grace, keep }
    }

    #[test]
    fn each_source_gives_its_lifetime() {
        let old = lifetime(990.0, 120.0, 10.0, 5.0);
        let fresh = Freshness {
            origin: 990.0,
            ttl: 120.0,
            grace: 10.0,
            keep: 5.0,
            stale_if_error: 0.0,
            date: 0.0,
            expires: 0.0,
            max_age: 0,
        };
        let table = [
            ("headers and parameters", Lifetime::of_headers(&fresh), old),
            ("an error for its request", Lifetime::of_error(NOW, false), lifetime(NOW, 0.0, 0.0, 0.0)),
            ("an error that others wait for", Lifetime::of_error(NOW, true), lifetime(NOW, 1.0, 5.0, 5.0)),
            ("return (pass(30s))", old.of_pass(30.0), lifetime(990.0, 30.0, 0.0, 0.0)),
            ("fits only into Transient", old.salvaged(10.0), lifetime(990.0, 10.0, 0.0, 0.0)),
            ("the same, short already", old.of_pass(3.0).salvaged(10.0), lifetime(990.0, 3.0, 0.0, 0.0)),
        ];
        for (case, found, expected) in table {
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn vcl_counts_the_ttl_from_now() {
        // The age of the response, the value that VCL sets, the object's value, the value that VCL reads afterwards.
        let table = [(0.0, 60.0, 60.0, 60.0), (10.0, 60.0, 70.0, 60.0), (10.0, -60.0, 0.0, -10.0)];
        for (age, set, ttl, left) in table {
            let mut l = Lifetime::none(NOW - age);
            l.set_ttl(set, NOW);
            assert_eq!((l.ttl, l.ttl_left(NOW)), (ttl, left), "age {age}, beresp.ttl = {set}");
        }
        let mut l = Lifetime::none(NOW);
        l.set_grace(-1.0);
        l.set_keep(7.0);
        assert_eq!((l.grace, l.keep, l.total()), (0.0, 7.0, 7.0));
        l.keep_for(3.0);
        assert_eq!(l.keep, 7.0);
        l.keep_for(9.0);
        assert_eq!(l.keep, 9.0);
        assert_eq!(lifetime(NOW - 3.0, -1.0, 0.0, 0.0).ttl_left(NOW), -3.0, "not cacheable and 3 s old");
    }
}
