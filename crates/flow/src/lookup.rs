//! The meaning of a lookup: the object under a key that satisfies a request, or the next step if none does. The order
//! of the checks is Varnish's (HSH_Lookup), because VCL authors rely on it. It is RFC 9111 section 4, where grace
//! decides on the use of stale responses (section 4.2.4).

use crate::lifetime::Lifetime;
use crate::storing::Storing;

/// The limits of a request on the objects that may satisfy it, in seconds: `req.ttl` (none unless positive) and
/// `req.grace` (none if negative). They never extend an object's lifetime.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub ttl: f64,
    pub grace: f64,
}

impl Limits {
    pub const NONE: Limits = Limits { ttl: -1.0, grace: -1.0 };
}

/// Returns the time until which an object whose response was generated at `origin` is fresh for a request.
#[inline]
pub fn fresh_until(origin: f64, ttl: f64, limits: Limits) -> f64 {
    origin + if limits.ttl > 0.0 && limits.ttl < ttl { limits.ttl } else { ttl }
}

/// Returns the time until which an object may be used stale for a request.
#[inline]
pub fn in_grace_until(lifetime: Lifetime, limits: Limits) -> f64 {
    let Lifetime { origin, ttl, grace, .. } = lifetime;
    let grace = if limits.grace >= 0.0 && limits.grace < grace { limits.grace } else { grace };
    fresh_until(origin, ttl, limits) + grace
}

/// Returns whether a stale object is good enough for a request that came at `t_req`.
#[inline]
pub fn is_in_grace(lifetime: Lifetime, limits: Limits, t_req: f64) -> bool {
    in_grace_until(lifetime, limits) >= t_req
}

/// The age of an object that matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It satisfies the request.
    Fresh,
    /// It is older than the request allows, but not stale: it neither satisfies the request nor serves as a
    /// stale object.
    TooOld,
    /// It may be used within its grace, or be validated.
    Stale,
}

/// Judges an object's age at `t_req`.
#[inline]
pub fn standing(origin: f64, ttl: f64, limits: Limits, t_req: f64) -> Standing {
    if fresh_until(origin, ttl, limits) > t_req {
        Standing::Fresh
    } else if fresh_until(origin, ttl, Limits::NONE) <= t_req {
        Standing::Stale
    } else {
        Standing::TooOld
    }
}

/// The newest stale object that matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    pub storing: Storing,
    /// The result of [`is_in_grace`].
    pub is_in_grace: bool,
}

/// The objects that were found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first fresh object that matches.
    pub fresh: Option<Storing>,
    pub stale: Option<Stale>,
    /// Another request fetches an object that may match.
    pub is_fetched: bool,
}

/// The next step for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Deliver the fresh object.
    Hit,
    /// Deliver the stale object. With `refresh`, fetch a new one meanwhile.
    Grace { refresh: bool },
    /// Wait for the fetch of another request.
    Wait,
    /// Fetch; the stale object may be validated.
    Miss,
    /// Fetch for this request alone, because the last response was uncacheable. The mark that records this is the fresh
    /// object, or else the stale one.
    HitMiss { is_expired: bool },
    /// Pass, because the fresh object is a hit-for-pass mark.
    HitPass,
}

/// Decides the next step of a request by the objects that were found. A mark that expired makes a miss without waiting,
/// because the response was not cacheable the last time.
#[inline]
pub fn meaning(found: Found) -> Meaning {
    match found.fresh {
        Some(Storing::HitForPass) => return Meaning::HitPass,
        Some(Storing::HitForMiss | Storing::Private) => return Meaning::HitMiss { is_expired: false },
        Some(Storing::Cached) => return Meaning::Hit,
        None => {}
    }
    match found.stale {
        Some(stale) if stale.storing != Storing::Cached => Meaning::HitMiss { is_expired: true },
        Some(stale) if stale.is_in_grace => Meaning::Grace { refresh: !found.is_fetched },
        _ if found.is_fetched => Meaning::Wait,
        _ => Meaning::Miss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Storing::{Cached, HitForMiss, HitForPass, Private};

    /// Fresh until 100, in grace until 110, kept until 115.
    const OBJECT: Lifetime = Lifetime { origin: 0.0, ttl: 100.0, grace: 10.0, keep: 5.0 };

    fn limits(ttl: f64, grace: f64) -> Limits {
        Limits { ttl, grace }
    }

    #[test]
    fn requests_shorten_lifetimes() {
        let table = [
            // req.ttl, req.grace: fresh until, in grace until
            (Limits::NONE, 100.0, 110.0),
            (limits(0.0, -1.0), 100.0, 110.0),
            (limits(60.0, -1.0), 60.0, 70.0),
            (limits(200.0, -1.0), 100.0, 110.0),
            (limits(0.0, 3.0), 100.0, 103.0),
            (limits(0.0, 0.0), 100.0, 100.0),
            (limits(0.0, 20.0), 100.0, 110.0),
            (limits(60.0, 3.0), 60.0, 63.0),
        ];
        for (limits, fresh, graced) in table {
            let found = (fresh_until(OBJECT.origin, OBJECT.ttl, limits), in_grace_until(OBJECT, limits));
            assert_eq!(found, (fresh, graced), "{limits:?}");
        }
    }

    #[test]
    fn an_object_is_fresh_then_stale() {
        let table = [
            // req.ttl, time: standing, and whether it may be used stale
            (0.0, 0.0, Standing::Fresh, true),
            (0.0, 99.9, Standing::Fresh, true),
            (0.0, 100.0, Standing::Stale, true),
            (0.0, 110.0, Standing::Stale, true),
            (0.0, 110.1, Standing::Stale, false),
            (60.0, 59.9, Standing::Fresh, true),
            (60.0, 60.0, Standing::TooOld, true),
            (60.0, 71.0, Standing::TooOld, false),
            (60.0, 100.0, Standing::Stale, false),
        ];
        for (ttl, t_req, expected, in_grace) in table {
            let limits = limits(ttl, -1.0);
            assert_eq!(standing(0.0, OBJECT.ttl, limits, t_req), expected, "req.ttl {ttl} at {t_req}");
            assert_eq!(is_in_grace(OBJECT, limits, t_req), in_grace, "req.ttl {ttl} at {t_req}");
        }
    }

    #[test]
    fn a_lookup_means() {
        let stale = |storing, is_in_grace| Some(Stale { storing, is_in_grace });
        let table = [
            // fresh, stale, fetched by another
            ((Some(Cached), None, false), Meaning::Hit),
            ((Some(Cached), stale(Cached, true), true), Meaning::Hit),
            ((Some(HitForMiss), None, false), Meaning::HitMiss { is_expired: false }),
            ((Some(HitForMiss), None, true), Meaning::HitMiss { is_expired: false }),
            ((Some(HitForPass), None, true), Meaning::HitPass),
            ((None, stale(Cached, true), false), Meaning::Grace { refresh: true }),
            ((None, stale(Cached, true), true), Meaning::Grace { refresh: false }),
            ((None, stale(Cached, false), false), Meaning::Miss),
            ((None, stale(Cached, false), true), Meaning::Wait),
            ((None, stale(HitForMiss, true), true), Meaning::HitMiss { is_expired: true }),
            ((None, stale(HitForPass, false), false), Meaning::HitMiss { is_expired: true }),
            // The index has no private objects. If it had, no other request would get one.
            ((Some(Private), None, false), Meaning::HitMiss { is_expired: false }),
            ((None, stale(Private, true), false), Meaning::HitMiss { is_expired: true }),
            ((None, None, true), Meaning::Wait),
            ((None, None, false), Meaning::Miss),
        ];
        for ((fresh, stale, is_fetched), expected) in table {
            let found = Found { fresh, stale, is_fetched };
            assert_eq!(meaning(found), expected, "{found:?}");
        }
    }
}
