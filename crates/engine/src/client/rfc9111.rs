//! The request's part of the mode `feature=+rfc9111`: applies the directives of the request (RFC 9111 section 5.2.1) to
//! the result of a lookup.

use lacquer_cache::{Lookup, ObjRef, Object, flag};
use lacquer_flow::rfc9111::Control;
use lacquer_flow::rfc9111::request::Wishes;
use lacquer_flow::rfc9111::status::{Forward, LONGEST, Report};
use lacquer_http::{header_table as h, pack};
use lacquer_params::bits::FeatureBits;

use super::{Req, Step};

/// The use of what a lookup found.
pub enum Use {
    /// As without the mode.
    Found(Lookup),
    /// The stale object is delivered.
    Stale(ObjRef),
    /// The object is validated before it is used.
    Validate(ObjRef),
    /// The request ends with this step.
    End(Step),
}

impl Req {
    /// Returns whether responses are cached as RFC 9111 defines it.
    #[inline]
    pub(super) fn follows_rfc9111(&self) -> bool {
        self.task.params().feature.has(FeatureBits::RFC9111)
    }
}

/// Returns the directives of the request, as VCL has left them. They do not apply to the parts of a page, so that one
/// request does not demand the validation of many objects.
fn wishes(req: &Req) -> Wishes {
    if req.inclusion.level > 0 {
        return Wishes::default();
    }
    req.request.http.get(req.task.ws(), h::CACHE_CONTROL).map(Wishes::of).unwrap_or_default()
}

/// Returns whether the object that a lookup found satisfies the request.
#[inline]
pub fn accepts(req: &Req, object: &Object) -> bool {
    !req.follows_rfc9111() || satisfies(req, object)
}

/// Returns whether a part is fresh, and its age satisfies the request.
pub fn is_fresh_enough(req: &Req, part: &Object) -> bool {
    part.fresh_until(req.request.rules.limits()) > req.request.received && satisfies(req, part)
}

/// A response that was stale when it arrived must be validated for each other request: it may be for its own request only
/// (RFC 9111 section 3.5). One that arrived after this request is fresh by the time of the request, which is that of the
/// page for its parts.
fn satisfies(req: &Req, object: &Object) -> bool {
    let lifetime = object.lifetime();
    lifetime.ttl >= MOMENT && wishes(req).accept_usable(lifetime, req.request.received)
}

/// A lifetime below this means that the object was stale when it arrived, in seconds.
const MOMENT: f64 = 1e-3;

/// Applies the directives of the request to a lookup that found no fresh object. `has_variants` means that there are
/// objects for other requests.
pub fn without_hit(req: &mut Req, found: Lookup, has_variants: bool) -> Use {
    let wishes = wishes(req);
    let found = match found {
        Lookup::Miss { busy, stale: Some(stale) }
            if wishes.accept_stale(stale.lifetime(), forbids_stale(&stale), req.request.received) =>
        {
            busy.release();
            return Use::Stale(ObjRef::shared(stale));
        }
        found => found,
    };
    let is_accepted = match &found {
        Lookup::Grace { object, .. } => wishes.accept_usable(object.lifetime(), req.request.received),
        _ => false,
    };
    if wishes.only_if_cached && !is_accepted {
        release(found);
        return Use::End(not_cached(req));
    }
    if wishes.no_store && !is_accepted && !matches!(found, Lookup::HitPass(_)) {
        release(found);
        return Use::End(Step::Pass);
    }
    let found = match found {
        Lookup::Grace { object, busy } if !is_accepted => match busy {
            Some(busy) => Lookup::Miss { busy, stale: Some(object.to_shared()) },
            None => return Use::Validate(object),
        },
        found => found,
    };
    if req.found.forward == Forward::None {
        req.found.forward = match &found {
            Lookup::Miss { stale: Some(_), .. } => Forward::Stale,
            Lookup::Miss { .. } if has_variants => Forward::VaryMiss,
            Lookup::Miss { .. } => Forward::UriMiss,
            _ => Forward::Miss,
        };
    }
    Use::Found(found)
}

/// Records why a request is passed.
pub fn note_pass(req: &mut Req) {
    let method = req.request.http.method(req.task.ws());
    req.found.forward = if matches!(method, b"GET" | b"HEAD") { Forward::Bypass } else { Forward::Method };
}

/// Adds `Cache-Status` to the response that is made from an object.
pub fn report(req: &mut Req, object: &Object) {
    let lifetime = object.lifetime();
    let report = Report {
        forward: req.found.forward,
        is_hit: req.found.is_hit,
        is_stored: !object.is(flag::HFM) && lifetime.ttl > 0.0,
        ttl: lifetime.ttl - lifetime.age(req.task.last_event()),
    };
    req.resp_headers().append_value(h::CACHE_STATUS, report.write(&mut [0; LONGEST]));
}

/// Returns the step that ends a request that may not be forwarded.
fn not_cached(req: &mut Req) -> Step {
    req.response.status = 504;
    Step::Synth
}

/// Returns the step that ends the request instead of a wait for the fetch of another request.
pub fn instead_of_wait(req: &mut Req) -> Option<Step> {
    (req.follows_rfc9111() && wishes(req).only_if_cached).then(|| not_cached(req))
}

fn release(found: Lookup) {
    match found {
        Lookup::Miss { busy, .. } | Lookup::HitMiss { busy, .. } | Lookup::Grace { busy: Some(busy), .. } => {
            busy.release();
        }
        _ => {}
    }
}

fn forbids_stale(object: &Object) -> bool {
    pack::PackedHead::new(object.head()).is_none_or(|head| Control::of_stored(&head).forbids_stale())
}
