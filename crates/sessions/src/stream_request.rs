//! The request of a stream of HTTP/2 or HTTP/3. It gets a task of its own only if it has to wait.

use std::pin::pin;
use std::rc::Rc;
use std::task::Context;

use lacquer_engine::activity::{Work, track_polls};
use lacquer_engine::client::Req;
use lacquer_engine::{Services, TransactionSlot};
use lacquer_shm::Tag;

use crate::address_limit::TOO_MANY_REQUESTS;

/// A stream that carries one request and its response.
pub trait RequestStream: 'static {
    fn services(&self) -> &Rc<Services>;

    /// Resets a stream whose response is incomplete, so that its client does not wait for the rest.
    fn reset_if_incomplete(&self);

    /// Ends the stream after its request.
    fn close(&self);
}

/// Starts the request. Most hits are complete when this returns. If many requests wait, the request starts only after
/// what was already received is handled, because that may reset the stream. Returns whether the request is complete.
pub fn start<S: RequestStream>(stream: Rc<S>, slot: TransactionSlot<Req>, cx: &mut Context<'_>) -> bool {
    let services = stream.services().clone();
    let bound = services.bound(&services.params());
    let is_under_pressure = services.admission().is_under_pressure(bound);
    let watched = services.watched().clone();
    let mut work = Box::pin(run(stream, slot));
    let is_served = !is_under_pressure && work.as_mut().poll(cx).is_ready();
    if !is_served {
        tokio::task::spawn_local(async move {
            track_polls(&watched.activity, Work::Request, work.as_mut()).await;
        });
    }
    is_served
}

/// Runs the request. A panic ends only this stream.
async fn run<S: RequestStream>(stream: Rc<S>, mut slot: TransactionSlot<Req>) {
    let services = stream.services().clone();
    if let Some(req) = slot.transaction() {
        let work = (req.vxid(), Work::Request);
        let fault = lacquer_engine::faults::caught(&services, work, pin!(serve(req))).await;
        if let Err(text) = fault {
            req.log(Tag::Error, format!("Fault in this request: {text}").as_bytes());
        }
        services.counters().client_req.add(1);
    }
    stream.reset_if_incomplete();
    finish(&services, slot);
    stream.close();
}

/// Runs the request, unless its client address has reached `client_max_requests`.
async fn serve(req: &mut Req) {
    if req.is_within_address_limit() {
        return req.run().await;
    }
    Box::pin(async {
        lacquer_engine::client::log_start(req);
        req.req_headers().log_all();
        req.minimal_response(TOO_MANY_REQUESTS).await;
    })
    .await;
}

/// Ends the transaction of a request that is refused before it starts. Its records name the client.
#[cold]
pub fn refuse(services: &Services, mut slot: TransactionSlot<Req>) {
    if let Some(req) = slot.transaction() {
        lacquer_engine::client::log_start(req);
    }
    finish(services, slot);
}

/// Ends a request's transaction, and recycles its slot.
pub fn finish(services: &Services, mut slot: TransactionSlot<Req>) {
    if let Some(req) = slot.transaction() {
        req.end();
        services.flush_if_due(req.last_event());
    }
    slot.recycle(services);
}
