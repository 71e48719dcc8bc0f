//! Serves a client's connection from accept to close, one request after another.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_engine::activity::Work;
use lacquer_engine::client::Req;
use lacquer_engine::emulated::pool_counters;
use lacquer_engine::faults::boxed_cold;
use lacquer_engine::{Services, Sess, TransactionSlot, count_close, write_message};
use lacquer_flow::persistence;
use lacquer_http::{SessClose, h1};
use lacquer_net::{HttpVersion, Listener, Rx, Stream, linger};
use lacquer_params::FeatureBits;
use lacquer_shm::Tag;
use lacquer_sources::clock;

use crate::arrival::Arrival;
use crate::begin::{Begun, begin};
use crate::connection::Connection;
use crate::receive::{Received, receive_head, wait_idle};
use crate::stages::pass_stages;
use crate::{address_limit, h2, stream_request, tls_handshake};

/// The number of pipelined requests after which other tasks of the reactor run. Hits that the client has sent in
/// advance never wait.
const REQUESTS_AT_ONCE: u32 = 50;

/// Serves a connection until its end.
pub async fn run(services: Rc<Services>, stream: Stream, listener: Arc<Listener>) {
    let opened = clock::real();
    services.counters().s_sess.add(1);
    pool_counters::taken(&services.pool_counters().sess);
    let mut sess = Box::new(Sess::new(services.vxid(), listener, &stream, opened));
    sess.log_open(services.log(), sess.listener().protocol());
    let arrival = if sess.listener().stages().is_empty() {
        Ok(Arrival { stream, ahead: Vec::new() })
    } else {
        Box::pin(pass_stages(&services, &mut sess, stream)).await
    };
    if let Ok(arrival) = &arrival {
        sess.settle(arrival.stream.negotiated());
        if arrival.stream.is_handshaking() {
            sess.handshake().begin();
        }
    }
    let sess = Rc::<Sess>::from(sess);
    let mut lingering = None;
    let admitted = arrival.and_then(|arrival| address_limit::admit(&services, &sess).map(|()| arrival));
    let reason = match admitted {
        Ok(arrival) => {
            let (rx, tx) = arrival.split();
            let mut connection = Connection::new(&services, sess.clone(), rx, tx);
            let reason = match sess.negotiated_protocol() {
                Some(HttpVersion::Http2) => {
                    boxed_cold(|| speak_negotiated_http2(&services, &mut connection)).await
                }
                Some(HttpVersion::Http1) | None => serve(&services, &mut connection).await,
            };
            tls_handshake::log_failure(&services, &connection);
            if linger::is_due(reason, connection.has_unread()) {
                lingering = Some(Box::new(connection));
            } else {
                connection.close(&services).await;
            }
            reason
        }
        Err(reason) => reason,
    };
    pool_counters::given(&services.pool_counters().sess);
    services.counters().ws_session_overflow.add(u64::from(sess.workspace_overflowed()));
    count_close(services.counters(), reason);
    sess.log_close(services.log(), reason, clock::real());
    services.flush_counters();
    if let Some(connection) = lingering {
        Box::pin(connection.close_lingering(&services)).await;
    }
}

async fn serve(services: &Rc<Services>, connection: &mut Connection) -> SessClose {
    let mut pipelined = 0u32;
    loop {
        let idle_since = connection.idle().now();
        let herded = match wait_for_request(services, connection, &mut pipelined).await {
            Ok(long) => long,
            Err(reason) => return reason,
        };
        if herded && lacquer_engine::knobs::take_refusal() {
            return SessClose::Overload;
        }
        let params = services.params();
        let mut slot = TransactionSlot::take(services);
        let memory = slot.prepare(services.log(), &params);
        let limit = connection.sess().idle_limit(&params);
        connection.idle().arm(idle_since, limit);
        let received = receive_head(&params, connection, memory).await;
        connection.idle().disarm();
        if herded && !matches!(received, Received::Nothing) {
            let w = &services.pool_counters().waiter;
            let gone = connection.received() == 0 && matches!(received, Received::Closed(_));
            if gone { w.remclose.add(1) } else { w.action.add(1) }
        }
        let has_head = matches!(received, Received::Head(_) | Received::Http2Preface);
        let ended = match received {
            Received::Nothing => {
                slot.recycle(services);
                None
            }
            Received::Closed(reason) => {
                if reason == SessClose::RxTimeout {
                    connection.sess().log_late(services.log(), "request head");
                }
                count_partial_head(services, connection);
                slot.recycle(services);
                Some(reason)
            }
            Received::Overflow(limit) => {
                Box::pin(reject_overflow(services, connection, limit)).await;
                count_partial_head(services, connection);
                slot.recycle(services);
                Some(SessClose::RxOverflow)
            }
            Received::Http2Preface => {
                slot.recycle(services);
                match preface_error(services, connection) {
                    None => return boxed_cold(|| speak_http2(services, connection)).await,
                    error => error,
                }
            }
            Received::Head(head) => match begin(services, params, connection, slot, &head) {
                Begun::Request(slot) => process(services, connection, slot).await,
                Begun::Rejected(slot, status) => Box::pin(reject(services, connection, slot, status)).await,
                Begun::Upgrade(slot) => return boxed_cold(|| upgrade(services, connection, slot)).await,
                Begun::Closed(reason) => Some(reason),
            },
        };
        if let Some(reason) = ended {
            // Sessions that end while they are idle are counted only by their reason.
            services.counters().sess_closed.add(u64::from(has_head));
            return reason;
        }
        connection.mark_served();
    }
}

/// Waits for the next request. Returns true if the wait was longer than `timeout_linger`. `pipelined` counts the
/// requests that the client has sent in advance; once every [`REQUESTS_AT_ONCE`], other tasks run.
async fn wait_for_request(
    services: &Services,
    connection: &mut Connection,
    pipelined: &mut u32,
) -> Result<bool, SessClose> {
    if !connection.rx().is_some_and(Rx::has_pending) {
        return wait_idle(services, connection).await;
    }
    // Bytes after a PROXY header belong to the first request, and do not count as read ahead.
    services.counters().sess_readahead.add(u64::from(connection.has_served()));
    *pipelined += 1;
    if *pipelined >= REQUESTS_AT_ONCE {
        *pipelined = 0;
        tokio::task::yield_now().await;
    }
    Ok(false)
}

fn count_partial_head(services: &Services, connection: &Connection) {
    services.counters().s_req_hdrbytes.add(connection.received() as u64);
}

/// Rejects a request whose head exceeds the parameter `limit`.
async fn reject_overflow(services: &Services, connection: &Connection, limit: &str) {
    let text = format_args!("Request head exceeds {limit}");
    services.log().write_fmt(Tag::SessError, connection.sess().vxid(), text);
    let status = services.params().http_req_overflow_status as u16;
    if status != 0 {
        let mut out = Vec::new();
        h1::minimal_response(status, &mut out);
        let idle = connection.sess().send_idle_limit(&services.params());
        let _ = write_message(connection.tx(), &out, idle).await;
    }
}

/// Hands the connection over to HTTP/2.
fn hand_over(services: &Rc<Services>, connection: &mut Connection, rx: Rx) -> h2::Handover {
    h2::Handover {
        services: services.clone(),
        sess: connection.sess().clone(),
        tx: connection.tx().clone(),
        rx,
        idle: connection.idle().clone(),
    }
}

fn log_debug(services: &Services, connection: &Connection, text: &str) {
    services.log().write(Tag::Debug, connection.sess().vxid(), text.as_bytes());
}

/// Returns the reason to close a connection whose client begins HTTP/2; `None` if it may.
fn preface_error(services: &Services, connection: &Connection) -> Option<SessClose> {
    if connection.sess().negotiated_protocol().is_some() {
        // The client does not use the protocol that it has negotiated (RFC 9113 section 3.2).
        return Some(SessClose::RxJunk);
    }
    (!services.params().feature.has(FeatureBits::HTTP2)).then_some(SessClose::ReqHttp20)
}

async fn speak_http2(services: &Rc<Services>, connection: &mut Connection) -> SessClose {
    log_debug(services, connection, "H2 Prior Knowledge Upgrade");
    let Some(rx) = connection.take_rx() else { return SessClose::RxBody };
    h2::serve(hand_over(services, connection, rx), None).await
}

/// Serves a connection whose transport has negotiated HTTP/2. It begins with the client's preface (RFC 9113
/// section 3.4).
async fn speak_negotiated_http2(services: &Rc<Services>, connection: &mut Connection) -> SessClose {
    let Some(rx) = connection.take_rx() else { return SessClose::RxBody };
    let mut handover = hand_over(services, connection, rx);
    match h2::receive_preface(&mut handover).await {
        Ok(()) => h2::serve(handover, None).await,
        Err(reason) => {
            connection.restore_rx(handover.rx);
            reason
        }
    }
}

async fn upgrade(
    services: &Rc<Services>,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
) -> SessClose {
    log_debug(services, connection, "H2 Optimistic Upgrade");
    let rx = slot.transaction().and_then(Req::take_rx);
    let Some(rx) = rx else { return SessClose::RxBody };
    let mut handover = hand_over(services, connection, rx);
    match h2::upgrade(&mut handover, slot).await {
        Ok(upgraded) => h2::serve(handover, Some(upgraded)).await,
        Err(slot) => {
            stream_request::finish(services, slot);
            SessClose::RxJunk
        }
    }
}

/// Runs the request. A panic ends only this connection.
async fn process(
    services: &Services,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
) -> Option<SessClose> {
    let req = slot.transaction()?;
    let fault = lacquer_engine::faults::caught(services, (req.vxid(), Work::Request), pin!(req.run())).await;
    if let Err(text) = fault {
        req.log(Tag::Error, format!("Fault in this request: {text}").as_bytes());
        connection.tx().cut();
        req.fail_session(SessClose::VclFailure);
    }
    services.counters().client_req.add(1);
    finish(services, connection, slot)
}

/// Rejects a request with this status.
async fn reject(
    services: &Services,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
    status: u16,
) -> Option<SessClose> {
    let req = slot.transaction()?;
    req.set_rx(connection.take_rx());
    req.minimal_response(status).await;
    finish(services, connection, slot)
}

fn finish(
    services: &Services,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
) -> Option<SessClose> {
    let req = slot.transaction()?;
    req.end();
    let (rx, is_settled) = (req.take_rx(), req.is_body_settled());
    let reason = persistence::after_request(req.close_reason(), rx.is_some() && is_settled);
    connection.give_back(rx, is_settled);
    services.flush_if_due(req.last_event());
    slot.recycle(services);
    reason
}
