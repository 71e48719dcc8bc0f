//! Admission of requests that cannot be served from the cache at once; see [`crate::admission`].

use std::pin::pin;

use lacquer_flow::persistence::Carrier;
use lacquer_http::SessClose;
use lacquer_net::disconnect::HalfClosed;
use lacquer_shm::Tag;
use lacquer_sources::clock;

use super::{Req, Step, presence};
use crate::admission::Bound;

/// Acquires the permit to wait for an origin, another request's fetch, or a body. Without a permit, returns the step
/// that ends the request.
pub async fn admit(req: &mut Req) -> Result<(), Step> {
    if req.client.permit.is_some() {
        return Ok(());
    }
    let shared = req.task.services().shared();
    let bound = shared.bound(req.task.params());
    if shared.admission().is_under_pressure(bound) && Box::pin(presence::is_gone(req)).await {
        return Err(presence::abandon(req));
    }
    let shared = req.task.services().shared();
    req.client.permit = shared.admission().enter(bound);
    if req.client.permit.is_some() {
        return Ok(());
    }
    if req.inclusion.level > 0 {
        // An included request was admitted with the request that includes it.
        req.client.permit = Some(shared.admission().force());
        return Ok(());
    }
    Box::pin(queue(req, bound)).await
}

async fn queue(req: &mut Req, bound: Bound) -> Result<(), Step> {
    let shared = req.task.services().shared().clone();
    let Some(place) = shared.admission().queue(bound) else { return Err(refuse(req, bound)) };
    req.task.services().counters().sess_queued.add(1);
    let max_wait = clock::seconds(clock::limit(bound.max_wait()));
    let permit = tokio::time::timeout(max_wait, shared.admission().wait(bound, &place));
    let treatment = HalfClosed::of_waiting(req.inclusion.level > 0, true, true);
    let Some(permit) =
        presence::while_waiting(&req.client.tx, req.task.params(), treatment, pin!(permit)).await
    else {
        return Err(presence::abandon(req));
    };
    drop(place);
    req.client.permit = permit.ok();
    if req.client.permit.is_some() { Ok(()) } else { Err(refuse(req, bound)) }
}

/// Ends a request that gets no permit: with 503, or, under the thread limits of Varnish, by dropping it.
#[cold]
fn refuse(req: &mut Req, bound: Bound) -> Step {
    req.log_error("Too many requests wait for an origin or a body");
    let counters = req.task.services().counters();
    match req.client.tx.carrier() {
        Carrier::Connection => counters.sess_dropped.add(1),
        Carrier::Stream => counters.req_dropped.add(1),
    }
    if req.client.close.is_none() {
        req.client.close = Some(SessClose::Overload);
    }
    if !bound.drops() {
        req.response.status = 503;
        return Step::Synth;
    }
    req.client.tx.refuse();
    req.task.log_mut().put(Tag::Debug, b"Dropped by the limits of the thread parameters");
    Step::Done
}
