//! Serves a client's connection from accept to close: one request after the other.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_backend::Stream;
use lacquer_flow::persistence;
use lacquer_http::SessClose;
use lacquer_http::h1;
use lacquer_shm::{Tag, Vxid};
use lacquer_sources::clock;

use super::begin::{Begun, begin};
use super::connection::Connection;
use super::receive::{Received, receive_head, wait_idle};
use super::{Listener, Sess, address_limit, count_close, proxy_header};
use crate::client::Req;
use crate::client_socket::ClientSocket;
use crate::faults::apart;
use crate::h2;
use crate::linger;
use crate::pool_counters;
use crate::reactor::Reactor;
use crate::req_body::Rx;
use crate::sender::write_message;
use crate::transaction_slot::TransactionSlot;
use crate::turn::Place;

/// Serves a connection to its end.
pub async fn run(reactor: Rc<Reactor>, stream: Stream, listener: Arc<Listener>) {
    let opened = clock::real();
    reactor.counters.s_sess.add(1);
    pool_counters::taken(&reactor.pool_counters.sess);
    let (half, tx) = stream.split();
    let mut sess = Box::new(Sess::new(reactor.vxid(), listener, &half, opened));
    sess.log_open(&reactor.shared.log);
    let mut rx = Rx::new(half);
    let settled = if sess.listener.proxy {
        Box::pin(proxy_header::receive(&reactor, &mut sess, &mut rx)).await
    } else {
        Ok(())
    };
    let sess = Rc::<Sess>::from(sess);
    let mut lingering = None;
    let reason = match settled.and_then(|()| address_limit::admit(&reactor, &sess)) {
        Ok(()) => {
            let mut connection = Connection {
                sess: sess.clone(),
                tx: Rc::new(ClientSocket::new(tx)),
                rx: Some(rx),
                idle: reactor.deadlines.enlist(),
                received: 0,
                unread: false,
                served: false,
            };
            let reason = serve(&reactor, &mut connection).await;
            if linger::is_due(reason, connection.unread) {
                lingering = Some(Box::new(connection));
            } else {
                connection.close();
            }
            reason
        }
        Err(reason) => {
            tx.forget();
            drop(rx);
            reason
        }
    };
    pool_counters::given(&reactor.pool_counters.sess);
    reactor.counters.ws_session_overflow.add(u64::from(sess.workspace_overflowed()));
    count_close(&reactor.counters, reason);
    sess.log_close(&reactor.shared.log, reason, clock::real());
    reactor.flush_counters();
    if let Some(connection) = lingering {
        Box::pin(connection.close_lingering(&reactor)).await;
    }
}

async fn serve(reactor: &Rc<Reactor>, connection: &mut Connection) -> SessClose {
    loop {
        let idle_since = connection.idle.now();
        let mut herded = false;
        if connection.rx.as_ref().is_some_and(Rx::has_pending) {
            // Bytes behind a PROXY header belong to the first request, and do not count as read ahead.
            reactor.counters.sess_readahead.add(u64::from(connection.served));
        } else {
            match wait_idle(reactor, connection).await {
                Ok(long) => herded = long,
                Err(reason) => return reason,
            }
        }
        if herded && crate::control::knobs::take_refusal() {
            return SessClose::Overload;
        }
        let params = reactor.params();
        let mut slot = TransactionSlot::take(reactor);
        let memory = slot.prepare(&reactor.shared.log, &params);
        let limit = connection.sess.idle_limit(&params);
        connection.idle.arm(idle_since, limit);
        let received = receive_head(&params, connection, memory).await;
        connection.idle.disarm();
        if herded && !matches!(received, Received::Nothing) {
            let w = &reactor.pool_counters.waiter;
            let gone = connection.received == 0 && matches!(received, Received::Closed(_));
            if gone { w.remclose.add(1) } else { w.action.add(1) }
        }
        let head_came = matches!(received, Received::Head(_));
        let ended = match received {
            Received::Nothing => {
                slot.give(reactor);
                None
            }
            Received::Closed(reason) => {
                if reason == SessClose::RxTimeout {
                    connection.sess.log_late(&reactor.shared.log, "request head");
                }
                charge_partial(reactor, connection);
                slot.give(reactor);
                Some(reason)
            }
            Received::Overflow(limit) => {
                Box::pin(refuse_overflow(reactor, connection, limit)).await;
                charge_partial(reactor, connection);
                slot.give(reactor);
                Some(SessClose::RxOverflow)
            }
            Received::Head(head) => match begin(reactor, params, connection, slot, &head) {
                Begun::Request(slot) => process(reactor, connection, slot).await,
                Begun::Refused(slot, status) => Box::pin(refuse(reactor, connection, slot, status)).await,
                Begun::Http2 => return apart(|| speak_http2(reactor, connection)).await,
                Begun::Upgrade(slot) => return apart(|| upgrade(reactor, connection, slot)).await,
                Begun::Closed(reason) => Some(reason),
            },
        };
        if let Some(reason) = ended {
            // Sessions that end while they are idle count by the reason alone.
            reactor.counters.sess_closed.add(u64::from(head_came));
            return reason;
        }
        connection.served = true;
    }
}

fn charge_partial(reactor: &Reactor, connection: &Connection) {
    reactor.counters.s_req_hdrbytes.add(connection.received as u64);
}

/// Refuses a request whose head exceeds the parameter `limit`.
async fn refuse_overflow(reactor: &Reactor, connection: &Connection, limit: &str) {
    let text = format_args!("Request head exceeds {limit}");
    reactor.shared.log.write_fmt(Tag::SessError, Vxid::client(connection.sess.vxid), text);
    let status = reactor.params().http_req_overflow_status as u16;
    if status != 0 {
        let mut out = Vec::new();
        h1::minimal_response(status, &mut out);
        let idle = connection.sess.send_idle_limit(&reactor.params());
        let _ = write_message(&connection.tx, &out, idle).await;
    }
}

/// Hands the parts of the connection over to HTTP/2.
fn arrive(reactor: &Rc<Reactor>, connection: &mut Connection, rx: Rx) -> h2::Arrival {
    h2::Arrival {
        reactor: reactor.clone(),
        sess: connection.sess.clone(),
        tx: connection.tx.clone(),
        rx,
        idle: connection.idle.clone(),
    }
}

fn log_debug(reactor: &Reactor, connection: &Connection, text: &str) {
    reactor.shared.log.write(Tag::Debug, Vxid::client(connection.sess.vxid), text.as_bytes());
}

async fn speak_http2(reactor: &Rc<Reactor>, connection: &mut Connection) -> SessClose {
    log_debug(reactor, connection, "H2 Prior Knowledge Upgrade");
    let Some(rx) = connection.rx.take() else { return SessClose::RxBody };
    h2::serve(arrive(reactor, connection, rx), None).await
}

async fn upgrade(
    reactor: &Rc<Reactor>,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
) -> SessClose {
    log_debug(reactor, connection, "H2 Optimistic Upgrade");
    let rx = slot.transaction().and_then(|req| req.body.rx.take());
    let Some(rx) = rx else { return SessClose::RxBody };
    let mut arrival = arrive(reactor, connection, rx);
    match h2::upgrade(&mut arrival, slot).await {
        Ok(upgraded) => h2::serve(arrival, Some(upgraded)).await,
        Err(slot) => {
            h2::finish(reactor, slot);
            SessClose::RxJunk
        }
    }
}

/// Runs the request. A panic ends this connection only.
async fn process(
    reactor: &Reactor,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
) -> Option<SessClose> {
    let req = slot.transaction()?;
    let fault = crate::faults::caught(reactor, (req.task.vxid(), Place::Request), pin!(req.run())).await;
    if let Err(text) = fault {
        req.task.log.put(Tag::Error, format!("Fault in this request: {text}").as_bytes());
        req.close = Some(SessClose::VclFailure);
    }
    reactor.counters.client_req.add(1);
    finish(reactor, connection, slot)
}

/// Sends a response with this status to a head that is not served.
async fn refuse(
    reactor: &Reactor,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
    status: u16,
) -> Option<SessClose> {
    let req = slot.transaction()?;
    req.body.rx = connection.rx.take();
    req.minimal_response(status).await;
    finish(reactor, connection, slot)
}

fn finish(
    reactor: &Reactor,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
) -> Option<SessClose> {
    let req = slot.transaction()?;
    req.account.req_body += req.body.take_counted().1;
    req.charge();
    req.task.log.end();
    if req.task.ws.overflowed() {
        reactor.counters.ws_client_overflow.add(1);
    }
    let is_body_read = req.body.rx.is_some() && req.body.is_settled();
    let reason = persistence::after_request(req.close, is_body_read);
    connection.rx = req.body.rx.take();
    connection.unread = !req.body.is_settled() || connection.rx.as_ref().is_some_and(Rx::has_pending);
    reactor.flush_if_due(req.task.t_prev);
    slot.give(reactor);
    reason
}
