//! Stale objects that are delivered because their origin has failed (RFC 5861 section 4), and the report on a failure.

use std::mem;
use std::sync::Arc;

use lacquer_cache::{BodyState, Object};
use lacquer_flow::rfc9111::status::{NAME, proxy_error};
use lacquer_flow::stale_if_error;
use lacquer_http::{HeaderName, pack};
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::parts::{Step, Target};
use super::{Fetch, gone};

/// Delivers a stale object that [`usable`] has returned. Returns the step that ends the fetch.
pub fn deliver_stale(f: &mut Fetch, stale: Arc<Object>) -> Step {
    f.task.log_mut().put(Tag::Notice, b"stale-if-error: the stale object is delivered");
    f.task.services().counters().fetch_stale.add(1);
    let now = clock::real();
    let took = now - f.task.first_event();
    let grace = stale_if_error::grace_after_failure(seconds(&stale), stale.lifetime(), now, took);
    let is_extended = f.task.services().cache().extend_grace(&stale, grace);
    match mem::replace(&mut f.product.target, Target::Delivered) {
        // All requests that wait find the object in grace.
        Target::Cache(busy) if is_extended => busy.release_all(),
        // Dropping the right to fetch wakes some of the requests that wait. Each of them asks the origin once.
        target => drop(target),
    }
    f.announce(Some(stale));
    Step::Done(None)
}

/// Ends a fetch that VCL has abandoned, which is a failure like any other: a stale object is delivered if one may be.
pub async fn abandoned(f: &mut Fetch) -> Step {
    match usable(f).await {
        Some(stale) => deliver_stale(f, stale),
        None => Step::Fail,
    }
}

/// Returns whether the response is an error, and there is a stale object that [`usable`] might return.
#[inline]
pub fn is_error(f: &Fetch) -> bool {
    f.product.stale.is_some() && stale_if_error::is_error(f.response.http.status())
}

/// Returns the stale object if it may be used after an error (RFC 5861 section 4), and is still in the cache.
pub async fn usable(f: &Fetch) -> Option<Arc<Object>> {
    if f.waiter.is_notified {
        return None;
    }
    let stale = f.product.stale.clone().filter(|stale| is_usable(stale))?;
    if gone::is_gone(f, &stale).await { None } else { Some(stale) }
}

fn is_usable(stale: &Object) -> bool {
    // It was for one request only, whose client may have been another.
    if stale.has_one_reader() {
        return false;
    }
    // Its fetch may have failed since the lookup.
    if stale.state() == BodyState::Failed {
        return false;
    }
    let Some(head) = pack::PackedHead::new(stale.head()) else { return false };
    stale_if_error::is_usable(head.status(), seconds(stale), stale.lifetime(), clock::real())
}

/// Returns the seconds after its lifetime for which an object may be used.
fn seconds(object: &Object) -> f64 {
    pack::stale_if_error(object.head()).map_or(0.0, f64::from)
}

/// Adds `Proxy-Status` to the response that the cache makes after a failure of the origin (RFC 9209).
pub fn report_failure(f: &mut Fetch) {
    let failure = if f.exchange.failure.is_empty() { proxy_error("") } else { f.exchange.failure };
    let value = format!("{NAME}; error={failure}");
    f.beresp_headers().add(PROXY_STATUS, value.as_bytes());
}

const PROXY_STATUS: HeaderName<'static> = HeaderName::new(b"Proxy-Status");
