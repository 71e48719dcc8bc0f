//! A fetch: the request to the origin, its response, and the object that it becomes in the cache, with the
//! `vcl_backend_*` subroutines.
//!
//! A fetch runs on the reactor of the request that started it, and may outlive that request. It sends two events to
//! the request: the request's body, once the fetch no longer needs it, and the object, once it can be delivered (or
//! that there will be none).

mod abandon;
mod body;
mod completion;
mod confirmed;
mod connect;
mod connection;
mod draft;
mod driver;
mod early;
mod ending;
mod error;
mod events;
mod filters;
mod gone;
mod head;
mod host;
mod limits;
mod multiplexed;
mod object;
mod overlap;
mod overlapping;
mod parts;
mod pipe;
mod queue;
mod refresh;
mod repeat;
mod reply;
mod reserve;
mod response;
mod retry;
mod run;
mod sent_part;
mod skip;
mod spill;
mod stale;
mod start;
mod state;
mod too_early;
mod transit;
mod tunnel;
mod upgrade;
mod upgraded;
mod upload;
mod variables;

use std::pin::pin;
use std::sync::Arc;

pub use connect::resolve;
pub use connection::{OriginConnection, log_close};
pub use driver::FetchDriver;
use events::{BodyEvent, FetchEvents, Handshake, Progress, Started};
use lacquer_cache::{BodyState, Busy, Object};
use lacquer_net::disconnect::HalfClosed;
use lacquer_shm::{Tag, Vxid};
pub use parts::Mode;
pub use pipe::PipeCall;
pub use state::Fetch;
pub use tunnel::Tunnel;
pub use upgraded::{Ended, Upgraded};

use crate::client::{Req, while_fetching, while_waiting};
use crate::notes::Observation;
use crate::spans::Span;

/// The result of a fetch for the waiting request.
pub enum Outcome {
    /// The object can be delivered.
    Object(Arc<Object>),
    /// The connection to the origin has become a tunnel.
    Tunnel(Tunnel),
    /// There is no object.
    Nothing,
    /// The client left before there was a result.
    ClientGone,
}

/// Starts a fetch for a request, and waits until the object can be delivered, the fetch fails, or the client is gone.
pub async fn for_request(req: &mut Req, mode: Mode) -> Outcome {
    let is_pass = matches!(mode, Mode::Pass);
    let (mut driver, lent) = start(req, mode, if is_pass { "pass" } else { "fetch" }, false);
    let (tx, params, later) = (req.transport().clone(), req.task.params().clone(), driver.presence());
    let shared = req.task.services().shared();
    // If many requests wait, a request whose client is gone is ended at once.
    let is_under_pressure = shared.admission().is_under_pressure(shared.bound(&params));
    let treatment = HalfClosed::of_waiting(req.is_included(), is_pass, is_under_pressure);
    let started = {
        let waiting = pin!(async {
            if lent {
                Box::pin(lend_request_body(req, &mut driver)).await;
            }
            loop {
                match driver.until(FetchEvents::progress).await {
                    Some(Progress::Interim(responses)) => {
                        // Others may need the response, however slow this client is.
                        if !Box::pin(driver.run_during(req.send_interim(responses))).await {
                            break None;
                        }
                    }
                    Some(Progress::TooEarly) => Box::pin(complete_handshake(req, &mut driver)).await,
                    Some(Progress::Started(started)) => break Some(Some(started)),
                    None => break Some(None),
                }
            }
        });
        if is_under_pressure {
            // Boxed: this is rare, and the future is large.
            Box::pin(while_waiting(&tx, &params, treatment, waiting)).await
        } else {
            while_fetching(&tx, &params, treatment, &later, waiting).await
        }
    };
    let Some(started) = started.flatten() else {
        driver.abandon().await;
        driver.detach(req.task.services());
        return Outcome::ClientGone;
    };
    if let Some(upgraded) = driver.events().upgraded.take() {
        return Outcome::Tunnel(Tunnel::new(driver, upgraded));
    }
    req.response.trailers = driver.events().trailers.take();
    driver.detach(req.task.services());
    req.task.stamp("Fetch");
    let object = started.and_then(|Started(object)| object);
    // The bytes received with the head may already have shown that the body is malformed.
    match object.filter(|object| object.state() != BodyState::Failed) {
        Some(object) => Outcome::Object(object),
        None => Outcome::Nothing,
    }
}

/// Waits for the end of the client's handshake, and reports it to the fetch, unless the fetch gives up the wait.
async fn complete_handshake(req: &mut Req, driver: &mut FetchDriver) {
    let events = driver.events();
    let given_up = |events: &FetchEvents| (events.handshake.get() != Handshake::Awaited).then_some(());
    let is_complete = tokio::select! {
        biased;
        is_complete = req.awaits_handshake() => Some(is_complete),
        _ = driver.until(given_up) => None,
    };
    if let Some(is_complete) = is_complete {
        events.handshake.set(if is_complete { Handshake::Complete } else { Handshake::Failed });
    }
}

/// Starts a fetch that refreshes a stale object while that is delivered. Does nothing if the request cannot get a
/// permit.
pub async fn in_background(req: &mut Req, busy: Busy, stale: Arc<Object>) {
    let shared = req.task.services().shared();
    let permit = shared.admission().enter(shared.bound(req.task.params()));
    let c = req.task.services().counters();
    let Some(permit) = permit else {
        c.bgfetch_no_thread.add(1);
        req.log_error("No room for a background fetch");
        return req.ignore_body().await;
    };
    c.s_fetch.add(1);
    c.s_bgfetch.add(1);
    req.set_permit(permit);
    let (mut driver, lent) = start(req, Mode::Fetch { busy, stale: Some(stale) }, "bgfetch", true);
    if lent {
        Box::pin(lend_request_body(req, &mut driver)).await;
    }
    // A client that has received the stale object may check whether the origin was contacted, so the fetch starts
    // now.
    driver.advance().await;
    driver.detach(req.task.services());
    req.ignore_body().await;
    req.task.stamp("Fetch");
}

/// Lends the request's body to the fetch until the fetch no longer needs it.
async fn lend_request_body(req: &mut Req, driver: &mut FetchDriver) {
    while let Some(events) = driver.until(FetchEvents::body).await {
        match events {
            BodyEvent::Begun => {
                req.begin_reading().await;
            }
            BodyEvent::Back(body) => {
                return req.take_body_back(body);
            }
        }
    }
}

/// Starts a fetch. Also returns whether it borrowed the request's body.
fn start(req: &mut Req, mode: Mode, how: &str, background: bool) -> (FetchDriver, bool) {
    let vxid = Vxid::backend(req.task.services().vxid());
    let services = req.task.services().clone();
    let (driver, params) = (FetchDriver::take(&services), services.params());
    let mut slot = driver.slot();
    slot.prepare(services.log(), &params);
    let mailbox = (driver.events(), driver.deadline());
    let fetch = slot.occupy(|memory| start::from_request(req, mode, vxid, params, memory, mailbox));
    let Some(fetch) = fetch else { return (driver, false) };
    fetch.purpose.is_background = background;
    fetch.task.log_mut().put_relation(Tag::Begin, "bereq", req.task.vxid(), how);
    if req.task.observation().has(Observation::SPANS) {
        fetch.task.set_span(Span::of_exchange(*req.task.span()));
    }
    fetch.task.log_vcl();
    req.task.link("bereq", vxid, how);
    let lent = fetch.request.body.is_some();
    driver.begin(slot);
    (driver, lent)
}
