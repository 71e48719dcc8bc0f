//! The request of a stream. It gets a task of its own only if it has to wait.

use std::pin::pin;
use std::rc::Rc;
use std::task::Context;

use lacquer_engine::activity::{Work, track_polls};
use lacquer_engine::client::Req;
use lacquer_engine::h2::{FrameQuota, Stream};
use lacquer_engine::{Services, TransactionSlot};
use lacquer_h2::{Error, Reason};
use lacquer_shm::Tag;

use crate::address_limit::TOO_MANY_REQUESTS;

/// Starts the request. Most hits are complete when this returns. If many requests wait, the request starts only after
/// the frames that were already received are handled, because one of them may reset the stream.
pub fn start(stream: Rc<Stream>, slot: TransactionSlot<Req>, quota: &mut FrameQuota, cx: &mut Context<'_>) {
    let services = stream.conn().services().clone();
    let bound = services.bound(&services.params());
    let is_under_pressure = services.admission().is_under_pressure(bound);
    let watched = services.watched().clone();
    let mut work = Box::pin(run(stream, slot));
    let is_served = !is_under_pressure && work.as_mut().poll(cx).is_ready();
    quota.count_request(is_served);
    if !is_served {
        tokio::task::spawn_local(async move {
            track_polls(&watched.activity, Work::Request, work.as_mut()).await;
        });
    }
}

/// Runs the request. A panic ends only this stream.
async fn run(stream: Rc<Stream>, mut slot: TransactionSlot<Req>) {
    let services = stream.conn().services().clone();
    if let Some(req) = slot.transaction() {
        let work = (req.vxid(), Work::Request);
        let fault = lacquer_engine::faults::caught(&services, work, pin!(serve(req))).await;
        if let Err(text) = fault {
            req.log(Tag::Error, format!("Fault in this request: {text}").as_bytes());
        }
        services.counters().client_req.add(1);
    }
    if !stream.is_answered() && stream.error().is_none() {
        // The response is incomplete. The reset keeps the client from waiting for the rest.
        stream.reset(Error::Stream(Reason::InternalError));
    }
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

/// Ends a request's transaction, and recycles its slot.
pub fn finish(services: &Services, mut slot: TransactionSlot<Req>) {
    if let Some(req) = slot.transaction() {
        req.end();
        services.flush_if_due(req.last_event());
    }
    slot.recycle(services);
}
