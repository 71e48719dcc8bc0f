//! The decision of a lookup: which object under a key satisfies a request, or the next step if none does. The order
//! of the checks is Varnish's (HSH_Lookup), because VCL authors rely on it. The rules are those of RFC 9111 section
//! 4, where grace determines the use of stale responses (section 4.2.4).

use crate::lifetime::Lifetime;
use crate::storing::Storing;

/// The limits of a request on the objects that may satisfy it, in seconds: `req.ttl` (no limit unless positive) and
/// `req.grace` (no limit if negative). They never extend an object's lifetime.
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

/// Returns whether a stale object may be used for a request that arrived at `t_req`.
#[inline]
pub fn is_in_grace(lifetime: Lifetime, limits: Limits, t_req: f64) -> bool {
    in_grace_until(lifetime, limits) >= t_req
}

/// The age class of an object that matches a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It satisfies the request.
    Fresh,
    /// It is older than the request allows, but not stale: it neither satisfies the request nor may it be used as a
    /// stale object.
    TooOld,
    /// It may be used within its grace, or validated.
    Stale,
}

/// Returns the age class of an object at `t_req`.
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

/// The objects that a lookup found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The first fresh object that matches.
    pub fresh: Option<Storing>,
    pub stale: Option<Stale>,
    /// Another request is fetching an object that may match.
    pub is_fetched: bool,
}

/// The next step for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Deliver the fresh object.
    Hit,
    /// Deliver the stale object. With `refresh`, fetch a new one in the background.
    Grace { refresh: bool },
    /// Wait for the fetch of another request.
    Wait,
    /// Fetch; the stale object may be validated.
    Miss,
    /// Fetch for this request only, because the last response was uncacheable. The marker that records this is the
    /// fresh object, or else the stale one.
    HitMiss { is_expired: bool },
    /// Pass, because the fresh object is a hit-for-pass marker.
    HitPass,
}

/// Decides the next step of a request from the objects that were found. An expired marker causes a miss without
/// waiting, because the last response was uncacheable.
#[inline]
pub fn decide(found: Found) -> Decision {
    match found.fresh {
        Some(Storing::HitForPass) => return Decision::HitPass,
        Some(Storing::HitForMiss | Storing::Private) => return Decision::HitMiss { is_expired: false },
        Some(Storing::Cached) => return Decision::Hit,
        None => {}
    }
    match found.stale {
        Some(stale) if stale.storing != Storing::Cached => Decision::HitMiss { is_expired: true },
        Some(stale) if stale.is_in_grace => Decision::Grace { refresh: !found.is_fetched },
        _ if found.is_fetched => Decision::Wait,
        _ => Decision::Miss,
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
    fn requests_can_shorten_lifetimes() {
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
    fn a_lookup_decides_the_next_step() {
        let stale = |storing, is_in_grace| Some(Stale { storing, is_in_grace });
        let table = [
            // fresh, stale, fetched by another
            ((Some(Cached), None, false), Decision::Hit),
            ((Some(Cached), stale(Cached, true), true), Decision::Hit),
            ((Some(HitForMiss), None, false), Decision::HitMiss { is_expired: false }),
            ((Some(HitForMiss), None, true), Decision::HitMiss { is_expired: false }),
            ((Some(HitForPass), None, true), Decision::HitPass),
            ((None, stale(Cached, true), false), Decision::Grace { refresh: true }),
            ((None, stale(Cached, true), true), Decision::Grace { refresh: false }),
            ((None, stale(Cached, false), false), Decision::Miss),
            ((None, stale(Cached, false), true), Decision::Wait),
            ((None, stale(HitForMiss, true), true), Decision::HitMiss { is_expired: true }),
            ((None, stale(HitForPass, false), false), Decision::HitMiss { is_expired: true }),
            // The index has no private objects. If it had, no other request would get one.
            ((Some(Private), None, false), Decision::HitMiss { is_expired: false }),
            ((None, stale(Private, true), false), Decision::HitMiss { is_expired: true }),
            ((None, None, true), Decision::Wait),
            ((None, None, false), Decision::Miss),
        ];
        for ((fresh, stale, is_fetched), expected) in table {
            let found = Found { fresh, stale, is_fetched };
            assert_eq!(decide(found), expected, "{found:?}");
        }
    }
}
