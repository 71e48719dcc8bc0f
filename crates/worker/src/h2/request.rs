//! A stream's request. It becomes a task of its own only if it has to wait.

use std::pin::pin;
use std::rc::Rc;
use std::task::Context;

use lacquer_h2::{Error, Reason};
use lacquer_shm::Tag;

use super::stream::Stream;
use super::turns::Turn;
use crate::client::Req;
use crate::reactor::Reactor;
use crate::session;
use crate::transaction_slot::TransactionSlot;
use crate::turn::{Place, in_turns};

/// Starts the request. Most hits are complete when this returns. If many requests wait, it begins only after the frames
/// at hand were read, because one of them may reset the stream.
pub fn start(stream: Rc<Stream>, slot: TransactionSlot<Req>, turn: &mut Turn, cx: &mut Context<'_>) {
    let reactor = stream.conn.reactor.clone();
    let bound = reactor.shared.bound(&reactor.params());
    let is_pressed = reactor.shared.admission.is_pressed(bound);
    let watched = reactor.watched.clone();
    let mut work = Box::pin(run(stream, slot));
    let is_served = !is_pressed && work.as_mut().poll(cx).is_ready();
    turn.count_request(is_served);
    if !is_served {
        tokio::task::spawn_local(async move { in_turns(&watched.turn, Place::Request, work.as_mut()).await });
    }
}

/// Runs the request. A panic ends this stream only.
async fn run(stream: Rc<Stream>, mut slot: TransactionSlot<Req>) {
    let reactor = stream.conn.reactor.clone();
    if let Some(req) = slot.transaction() {
        let work = (req.task.vxid(), Place::Request);
        let fault = crate::faults::caught(&reactor, work, pin!(serve(req))).await;
        if let Err(text) = fault {
            req.task.log.put(Tag::Error, format!("Fault in this request: {text}").as_bytes());
        }
        reactor.counters.client_req.add(1);
    }
    if !stream.is_answered() && stream.error().is_none() {
        // The reset spares the client waiting for the rest.
        stream.reset(Error::Stream(Reason::InternalError));
    }
    finish(&reactor, slot);
    stream.close();
}

/// Runs the request, unless its address has as many at work as it may.
async fn serve(req: &mut Req) {
    if session::begin_request(req) {
        return req.run().await;
    }
    Box::pin(async {
        crate::client::log_start(req);
        req.req_headers().log_all();
        req.minimal_response(session::TOO_MANY_REQUESTS).await;
    })
    .await;
}

/// Ends a request's transaction, whatever its result.
pub fn finish(reactor: &Reactor, mut slot: TransactionSlot<Req>) {
    if let Some(req) = slot.transaction() {
        req.account.req_body += req.body.take_counted().1;
        req.charge();
        req.task.log.end();
        if req.task.ws.overflowed() {
            reactor.counters.ws_client_overflow.add(1);
        }
        reactor.flush_if_due(req.task.t_prev);
    }
    slot.give(reactor);
}
