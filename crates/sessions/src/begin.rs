//! Makes a request of a head, or refuses it.

use std::rc::Rc;

use lacquer_engine::client::{Req, Start};
use lacquer_engine::{ClientTransport, ReqBody, Services, TransactionSlot};
use lacquer_flow::request;
use lacquer_http::{BodyStatus, SessClose, Text, h1, header_table as h};
use lacquer_params::{FeatureBits, Params};
use lacquer_shm::{Tag, Vxid};

use crate::address_limit::{TOO_MANY_REQUESTS, begin_request};
use crate::connection::Connection;
use crate::h2;
use crate::receive::Head;

/// The result of [`begin`].
pub enum Begun {
    Request(TransactionSlot<Req>),
    /// The head is malformed, or its address has too many requests at work. The response has this status.
    Refused(TransactionSlot<Req>, u16),
    /// The client uses HTTP/2 without an upgrade.
    Http2,
    /// The client asks for an upgrade to HTTP/2.
    Upgrade(TransactionSlot<Req>),
    Closed(SessClose),
}

/// Makes a request of a head whose bytes are in the slot's memory.
pub fn begin(
    services: &Rc<Services>,
    params: Rc<Params>,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
    head: &Head,
) -> Begun {
    let Some(vcl) = services.vcl() else {
        slot.give(services);
        return Begun::Closed(SessClose::Overload);
    };
    let max_line = params.http_req_hdr_len as usize;
    let start = Start {
        services: services.clone(),
        params,
        sess: connection.sess.clone(),
        vcl,
        tx: ClientTransport::Socket(connection.tx.clone()),
        t_first: head.first,
        t_req: head.complete,
    };
    let Some(req) = slot.occupy(|memory| Req::new(start, memory)) else {
        return Begun::Closed(SessClose::Overload);
    };
    if req.task.ws.get(head.rx).starts_with(h1::H2_PREFACE) {
        if !req.task.params.feature.has(FeatureBits::HTTP2) {
            slot.give(services);
            return Begun::Closed(SessClose::ReqHttp20);
        }
        let behind = req.task.ws.get(head.rx.tail(h1::H2_PREFACE.len()));
        if let Some(rx) = connection.rx.as_mut().filter(|_| !behind.is_empty()) {
            rx.unread(behind);
        }
        slot.give(services);
        return Begun::Http2;
    }
    let session = Vxid::client(connection.sess.vxid);
    let log = &mut req.task.log;
    log.begin(Vxid::client(services.vxid()));
    log.link_from(session, "req", "rxreq");
    log.put_relation(Tag::Begin, "req", session, "rxreq");
    log.put_timestamp("Start", head.first, head.first, head.first);
    log.put_timestamp("Req", head.complete, head.first, head.first);
    req.task.t_prev = head.complete;
    match h1::parse_request(&mut req.task.ws, head.rx, &mut req.http, max_line) {
        Ok(parsed) => {
            if !begin_request(req) {
                log_unserved(req, head);
                return Begun::Refused(slot, TOO_MANY_REQUESTS);
            }
            accept(req, connection, head, &parsed);
            if h2::is_wanted(req) && may_upgrade(req) {
                return Begun::Upgrade(slot);
            }
        }
        Err(bad) => {
            log_garbage(req, head, &bad);
            return Begun::Refused(slot, bad.status);
        }
    }
    Begun::Request(slot)
}

/// Accepts a head: keeps the bytes behind it, and sets up the request's body.
fn accept(req: &mut Req, connection: &mut Connection, head: &Head, parsed: &h1::RequestHead) {
    let memory = &mut req.task.ws;
    let surplus = head.rx.tail(parsed.len);
    if !surplus.is_empty()
        && let Some(rx) = connection.rx.as_mut()
    {
        rx.unread(memory.get(surplus));
    }
    let mut rehosted = parsed.rehosted;
    if req.task.params.feature.has(FeatureBits::HTTPS_SCHEME)
        && let Ok(Some(old)) = h1::rehost_https(memory, &mut req.http)
    {
        rehosted = Some(old);
    }
    if let Some(old) = rehosted {
        req.task.services.counters().http1_absolute_form.add(1);
        log_rehost(req, old);
    }
    req.body = ReqBody::new(connection.rx.take(), parsed.framing);
    req.account.req_header += parsed.len as u64;
    req.task.log.put(Tag::VCL_use, req.task.vcl.name.as_bytes());
}

/// Logs that the target's authority replaced Host.
fn log_rehost(req: &mut Req, old: Text) {
    let (ws, log) = (&req.task.ws, &mut req.task.log);
    if old.is_some() {
        log.put(Tag::ReqUnset, ws.get(old));
    }
    for field in req.http.fields().iter().filter(|f| f.is(ws, h::HOST)) {
        log.put(Tag::ReqHeader, field.line(ws));
    }
}

/// Logs a request that is refused before its body is read. The connection ends with it.
#[cold]
fn log_unserved(req: &mut Req, head: &Head) {
    lacquer_engine::client::log_start(req);
    req.req_headers().log_all();
    req.account.req_header += head.rx.len() as u64;
    req.close = Some(SessClose::Overload);
}

/// Logs a malformed head as it came.
fn log_garbage(req: &mut Req, head: &Head, bad: &h1::BadHead) {
    let (ws, log) = (&req.task.ws, &mut req.task.log);
    if let Some(bogo) = &bad.bogo {
        let mut text = Vec::new();
        bogo.write(ws, "http_req_hdr_len", &mut text);
        log.put(Tag::BogoHeader, &text);
    }
    log.put(Tag::HttpGarbage, h1::garbage(ws.get(head.rx)));
    req.task.services.counters().client_req_400.add(1);
    req.account.req_header += head.rx.len() as u64;
    lacquer_engine::client::log_start(req);
    req.close = Some(SessClose::RxJunk);
}

/// Returns whether the connection may be upgraded to HTTP/2. Logs the reason if not.
fn may_upgrade(req: &mut Req) -> bool {
    let is_enabled = req.task.params.feature.has(FeatureBits::HTTP2);
    let decided = request::upgrade_to_h2(is_enabled, req.body.status() != BodyStatus::None);
    if let Err(why) = decided {
        req.task.log.put(Tag::Debug, why.as_bytes());
    }
    decided.is_ok()
}
