//! A stream's request: it runs as a task of its own, unless it needs to wait for nothing.

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

/// Sets the request going. Most hits are over when this returns. Where many requests wait it does not begin before
/// the frames that are there were read: one of them may reset the stream.
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

/// A fault in it costs this stream only.
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
        // The client is not left waiting for the rest.
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

/// The end of a request's transaction, whatever became of it.
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
