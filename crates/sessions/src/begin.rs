//! Creates a request from a received head, or rejects the head.

use std::rc::Rc;

use lacquer_engine::client::{Req, Start, log_start};
use lacquer_engine::{BodyInput, ClientTransport, Logged, ReqBody, Services, TaskContext, TransactionSlot};
use lacquer_flow::request;
use lacquer_http::{SessClose, Text, h1, header_table as h};
use lacquer_params::{FeatureBits, Params};
use lacquer_shm::Tag;

use crate::address_limit::TOO_MANY_REQUESTS;
use crate::connection::Connection;
use crate::h2;
use crate::receive::Head;

/// The result of [`begin`].
pub enum Begun {
    Request(TransactionSlot<Req>),
    /// The head is malformed, or the client address has too many active requests. Contains the response status.
    Rejected(TransactionSlot<Req>, u16),
    /// The client requests an upgrade to HTTP/2.
    Upgrade(TransactionSlot<Req>),
    Closed(SessClose),
}

/// Creates a request from a head, whose bytes are in the slot's memory.
pub fn begin(
    services: &Rc<Services>,
    params: Rc<Params>,
    connection: &mut Connection,
    mut slot: TransactionSlot<Req>,
    head: &Head,
) -> Begun {
    let Some(vcl) = services.vcl() else {
        slot.recycle(services);
        return Begun::Closed(SessClose::Overload);
    };
    let max_line = params.http_req_hdr_len as usize;
    let start = Start {
        context: TaskContext { services: services.clone(), params, sess: connection.sess().clone(), vcl },
        tx: ClientTransport::Http1(connection.tx().clone()),
        t_first: head.first,
        t_req: head.complete,
    };
    let Some(req) = slot.occupy(|memory| Req::new(start, memory)) else {
        return Begun::Closed(SessClose::Overload);
    };
    req.begin(head.first);
    req.head_complete(head.complete);
    let Logged { message, ws, .. } = req.req_headers();
    let mut parsed = h1::parse_request(ws, head.rx, message, max_line);
    if let Ok(https) = &parsed
        && https.is_https
    {
        let is_allowed = req.params().feature.has(FeatureBits::HTTPS_SCHEME);
        let Logged { message, ws, .. } = req.req_headers();
        parsed = h1::rehost_https(ws, message, *https, is_allowed);
    }
    match parsed {
        Ok(parsed) => {
            if !req.is_within_address_limit() {
                log_unserved(req, head);
                return Begun::Rejected(slot, TOO_MANY_REQUESTS);
            }
            accept(req, connection, head, &parsed);
            if h2::is_wanted(req) && may_upgrade(connection, req) {
                return Begun::Upgrade(slot);
            }
        }
        Err(bad) => {
            log_garbage(req, head, &bad);
            return Begun::Rejected(slot, bad.status);
        }
    }
    Begun::Request(slot)
}

/// Accepts a head: returns the bytes after it to the connection, and sets up the request's body.
fn accept(req: &mut Req, connection: &mut Connection, head: &Head, parsed: &h1::RequestHead) {
    let Logged { ws, log, .. } = req.req_headers();
    let surplus = head.rx.tail(parsed.len);
    if !surplus.is_empty() {
        connection.unread(ws.get(surplus));
    }
    log.put(Tag::ReqTarget, ws.get(parsed.target));
    if let Some(old) = parsed.rehosted {
        log_rehost(req, old);
    }
    req.charge_head(parsed.len as u64);
    req.accept(ReqBody::new(BodyInput::of_connection(connection.take_rx(), parsed.framing), parsed.framing));
}

/// Logs and counts that the authority of the request target has replaced `Host`.
#[cold]
fn log_rehost(req: &mut Req, old: Text) {
    req.services().counters().http1_absolute_form.add(1);
    let Logged { message, ws, log, tags } = req.req_headers();
    if old.is_some() {
        log.put(tags.unset, ws.get(old));
    }
    for field in message.fields().iter().filter(|f| f.is(ws, h::HOST)) {
        log.put(tags.header, field.line(ws));
    }
}

/// Logs a request that is rejected before its body is read. The connection closes after it.
#[cold]
fn log_unserved(req: &mut Req, head: &Head) {
    log_start(req);
    req.req_headers().log_all();
    req.charge_head(head.rx.len() as u64);
    req.fail_session(SessClose::Overload);
}

/// Logs a malformed head with its raw bytes.
fn log_garbage(req: &mut Req, head: &Head, bad: &h1::BadHead) {
    let Logged { ws, log, .. } = req.req_headers();
    if let Some(bogo) = &bad.bogo {
        let mut text = Vec::new();
        bogo.write(ws, "http_req_hdr_len", &mut text);
        log.put(Tag::BogoHeader, &text);
    }
    log.put(Tag::HttpGarbage, h1::garbage(ws.get(head.rx)));
    req.services().counters().client_req_400.add(1);
    req.charge_head(head.rx.len() as u64);
    log_start(req);
    req.fail_session(SessClose::RxJunk);
}

/// Returns whether the connection may be upgraded to HTTP/2. Logs the reason if it may not. A transport that negotiates
/// the protocol has no upgrade to HTTP/2 (RFC 9113 section 3.1).
fn may_upgrade(connection: &Connection, req: &mut Req) -> bool {
    if connection.sess().negotiated_protocol().is_some() {
        return false;
    }
    let is_enabled = req.params().feature.has(FeatureBits::HTTP2);
    let decided = request::upgrade_to_h2(is_enabled, req.has_body());
    if let Err(why) = decided {
        req.log(Tag::Debug, why.as_bytes());
    }
    decided.is_ok()
}
