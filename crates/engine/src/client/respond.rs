//! Sends the response to the client: the head, the body as planned, and the end. A failure closes the connection or
//! aborts the stream. Only the sink depends on the protocol.

use std::io::{self, ErrorKind};
use std::rc::Rc;

use lacquer_deliver::{Head, MessageHead, ResponseSink, SendError, Sink, Source};
use lacquer_flow::delivery::{self, End};
use lacquer_flow::persistence::{self, Carrier, Consequence, Missing, Sent};
use lacquer_flow::upgrade;
use lacquer_http::header_table::{self as h, HeaderName};
use lacquer_http::{Message, SessClose, Workspace, h1};
use lacquer_net::disconnect::DisconnectPolicy;
use lacquer_shm::Tag;

use super::Req;
use super::deliver::settle_connection;
use super::pipeline::send_through_pipeline;
use super::plan::Plan;
use crate::client_sink::ClientSink;
use crate::emulated::workspaces;
use crate::interim::Interim;
use crate::send_limits::SendLimits;
use crate::session::Timeout;
use crate::task::TaskParts;
use crate::trailers::Trailers;

pub(super) async fn send(req: &mut Req, source: &Source, mut plan: Plan, mut send_body: bool) {
    let carrier = req.client.tx.carrier();
    let trailers = req.response.trailers.take();
    let is_followed = match &trailers {
        Some(trailers) => leave_room_for_trailers(req, (source, trailers), &mut plan, send_body),
        None => send_body,
    };
    let end = delivery::end(carrier, is_followed, plan.length, req.request.http.version());
    if end == End::Close {
        // Decided first, so that the head says so.
        req.client.close = Some(SessClose::TxEof);
    }
    settle_head(req, carrier);
    if end == End::Chunked {
        req.resp_headers().add(h::TRANSFER_ENCODING, b"chunked");
    }
    let mut sink = open(req);
    let head_len = write_head(req, &mut sink, carrier, end);
    if let Some(which) = exhausted(req, carrier, head_len) {
        out_of_workspace(req, &mut sink, carrier, which);
        send_body = false;
    }
    if let Some(trailers) = trailers {
        follow_with(&mut sink, source, trailers);
    }
    let (length, is_range) = (plan.length, plan.ranged);
    let result = if !send_body {
        sink.end().await
    } else if plan.needs_pipeline() {
        let (back, sent) = Box::pin(send_through_pipeline(req, source, plan, sink)).await;
        let Some(back) = back else { return fail(req, SessClose::RemClose, end) };
        sink = back;
        sent
    } else {
        sink.send(source, plan.from, plan.to).await
    };
    let sent = sink.sent();
    if send_body && sent.head > 0 {
        req.task.log_sent(req.client.tx.protocol().sink, sent.pieces, sent.body);
    }
    req.client.account.resp_header += sent.head;
    req.client.account.resp_body += sent.body;
    if let Some(limit) = sink.limit_hit() {
        req.log_error(&format!("Hit {limit}"));
    }
    let missing = match length {
        Some(length) if send_body && sent.body < length => {
            if is_range {
                Missing::OfRange
            } else {
                Missing::OfBody
            }
        }
        _ => Missing::Nothing,
    };
    match persistence::after_sending(carrier, outcome(req, carrier, result, head_len), missing) {
        Consequence::Nothing => {}
        Consequence::Close(reason) => {
            sink.abort();
            fail(req, reason, end);
        }
        Consequence::Abort => sink.abort(),
    }
    req.task.return_output(sink.into_buffer());
}

/// Makes room for trailers behind the body, or behind the head if the body is empty. Over HTTP/1.1, such a response ends
/// with the last chunk, because trailers can follow nothing else. Returns whether anything follows the head.
#[cold]
fn leave_room_for_trailers(
    req: &mut Req,
    (source, trailers): (&Source, &Trailers),
    plan: &mut Plan,
    send_body: bool,
) -> bool {
    let is_stream = req.client.tx.carrier() == Carrier::Stream;
    let has_room = !plan.ranged && (is_stream || req.request.http.version() >= 11);
    let is_followed = send_body || has_room && follow_empty_body(req, source, trailers);
    if has_room && is_followed && !(is_stream && send_body) {
        plan.length = None;
        req.resp_headers().unset(h::CONTENT_LENGTH);
    }
    is_followed
}

/// Returns whether these trailers follow an empty body.
fn follow_empty_body(req: &Req, source: &Source, trailers: &Trailers) -> bool {
    let is_head = req.request.original.method(req.task.ws()) == b"HEAD";
    delivery::allows_body(is_head, req.response.http.status())
        && source.is_empty()
        && belong_to(source, trailers)
        && !trailers.lines().is_empty()
}

/// Returns whether the trailers belong to the body: VCL may have replaced the response by another.
fn belong_to(source: &Source, trailers: &Trailers) -> bool {
    source.object().is_some_and(|object| object.vxid() == trailers.object())
}

/// Makes trailers follow the body, if they belong to it.
#[cold]
fn follow_with(sink: &mut ClientSink, source: &Source, trailers: Rc<Trailers>) {
    if belong_to(source, &trailers) {
        sink.follow_with(trailers);
    }
}

/// Ends the session after a response that was not sent to its end. `end` is how that would have been indicated.
fn fail(req: &mut Req, reason: SessClose, end: End) {
    if end == End::Close {
        req.client.tx.cut_unframed();
    } else {
        req.client.tx.cut();
    }
    req.fail_session(reason);
}

/// Opens the sink of a response.
#[inline]
pub(super) fn open(req: &mut Req) -> ClientSink {
    let limits = SendLimits {
        total: req.task.sess().timeout(Timeout::Send, req.task.params()),
        since: req.task.last_event(),
        idle: req.task.sess().send_idle_limit(req.task.params()),
        disconnect: DisconnectPolicy::of(req.task.params()),
    };
    req.client.tx.open(req.task.take_output(), limits)
}

/// Decides whether the connection stays open, and sets the `Connection` header accordingly. A stream needs no such
/// header.
#[inline]
fn settle_head(req: &mut Req, carrier: Carrier) {
    match carrier {
        Carrier::Connection => settle_connection(req),
        Carrier::Stream => {
            if req.client.is_extended {
                deny_tunnel(req);
            }
            req.task.log_mut().put(Tag::RespProtocol, req.client.tx.protocol().version.as_bytes());
            let _ = h1::decide_connection(&mut req.response.http, req.task.ws_mut(), SessClose::RespClose);
        }
    }
    if req.task.sess().listener().alternative().is_some() {
        announce_alternative(req);
    }
}

/// Changes a success in response to an extended CONNECT, which its client would take for the beginning of a tunnel.
#[cold]
fn deny_tunnel(req: &mut Req) {
    let status = req.response.http.status();
    let allowed = upgrade::status_without_tunnel(status);
    if allowed != status {
        req.log_error("The origin does not speak the protocol of the extended CONNECT");
        req.resp_headers().respond(allowed, None);
    }
}

const ALT_SVC: HeaderName<'static> = HeaderName::new(b"Alt-Svc");

/// Announces that the service is available by another protocol, unless VCL or the origin announces something.
#[cold]
fn announce_alternative(req: &mut Req) {
    let sess = req.task.sess().clone();
    if let Some(value) = sess.listener().alternative()
        && !req.response.http.has(req.task.ws(), ALT_SVC)
    {
        req.resp_headers().add(ALT_SVC, value.as_bytes());
    }
}

/// Passes the head to the sink. Returns its length.
#[inline]
fn write_head(req: &mut Req, sink: &mut ClientSink, carrier: Carrier, end: End) -> usize {
    let TaskParts { ws, log, .. } = req.task.parts();
    let has_notes = carrier == Carrier::Stream && !log.is_masked(Tag::Debug);
    let mut note = |text: String| log.put(Tag::Debug, text.as_bytes());
    let notes: Option<&mut dyn FnMut(String)> = if has_notes { Some(&mut note) } else { None };
    sink.head(Head::Message(MessageHead { message: &req.response.http, ws, end, notes }))
}

/// Returns the name of the workspace that is too small for the response, for the log.
fn exhausted(req: &mut Req, carrier: Carrier, head_len: usize) -> Option<&'static str> {
    // The header block of a stream does not use the workspace. In Varnish it does, and a workspace size chosen for
    // Varnish must have the same effect here.
    if carrier == Carrier::Stream && req.task.ws().free_space() < head_len {
        req.task.ws_mut().set_overflowed();
    }
    if req.task.ws().overflowed() { Some("workspace_client") } else { workspaces::exhausted(&mut req.task) }
}

/// Replaces the head by one that needs no workspace.
#[cold]
fn out_of_workspace(req: &mut Req, sink: &mut ClientSink, carrier: Carrier, which: &str) {
    req.log_error(&format!("{which} overflow"));
    let log = req.task.log_mut();
    if carrier == Carrier::Connection {
        log.put(Tag::RespProtocol, req.client.tx.protocol().version.as_bytes());
    }
    log.put(Tag::RespStatus, b"500");
    log.put(Tag::RespReason, b"Internal Server Error");
    req.task.services().counters().client_resp_500.add(1);
    sink.head(Head::OutOfWorkspace);
    if carrier == Carrier::Connection {
        req.client.close = Some(SessClose::TxEof);
    }
}

/// Converts the result of sending to a fact for [`persistence::after_sending`]. Logs the error of a failed connection;
/// a failed stream is logged elsewhere.
fn outcome(req: &mut Req, carrier: Carrier, result: Result<(), SendError>, head_len: usize) -> Sent {
    match result {
        Ok(()) | Err(SendError::Enough) => Sent::Whole,
        Err(SendError::Source) => Sent::SourceFailed,
        Err(SendError::Filter | SendError::Include) => Sent::PipelineFailed,
        Err(SendError::Io(e)) => {
            if carrier == Carrier::Connection {
                let why = e.raw_os_error().map_or_else(|| e.to_string(), lacquer_system::error_text);
                let text = format_args!("Write error, retval = -1, len = {head_len}, errno = {why}");
                req.task.log_mut().put_fmt(Tag::Debug, text);
                if req.task.sess().tls().is_some() {
                    log_tls_error(req, &e);
                }
            }
            let is_gone = matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
            if is_gone { Sent::ClientGone } else { Sent::ConnectionFailed }
        }
    }
}

/// Logs a failed write to a TLS connection like Varnish 9, with the name of OpenSSL's class of errors.
#[cold]
fn log_tls_error(req: &mut Req, e: &io::Error) {
    match e.raw_os_error() {
        Some(number) => {
            let why = lacquer_system::error_text(number);
            req.task.log_mut().put_fmt(Tag::Error, format_args!("ssl:-1:SSL_ERROR_SYSCALL:{why}"));
        }
        None => req.task.log_mut().put_fmt(Tag::Error, format_args!("ssl:-1:SSL_ERROR_SSL:{e}")),
    }
}

/// The largest interim response that is forwarded, in bytes.
const INTERIM_MOST: usize = 16384;

impl Req {
    /// Sends interim responses of the origin to the client, unless its protocol has none. Returns false if one was sent only
    /// in part: the client would read what follows as the rest of it.
    pub async fn send_interim(&mut self, responses: Vec<Interim>) -> bool {
        let is_old = self.client.tx.carrier() == Carrier::Connection && self.request.original.version() < 11;
        if is_old || self.inclusion.into.is_some() {
            return true;
        }
        for Interim { status, fields } in responses {
            let mut ws = Workspace::new(INTERIM_MOST);
            let mut message = Message::new(h1::MOST_INTERIM_FIELDS);
            let made = message.set_response(&mut ws, status).is_ok()
                && fields
                    .iter()
                    .all(|(name, value)| message.append(&mut ws, HeaderName::new(name), value).is_ok());
            if !made {
                self.log_error("An interim response is too large to be forwarded");
                continue;
            }
            let mut sink = open(self);
            sink.head(Head::Interim { message: &message, ws: &ws });
            let is_sent = sink.flush().await.is_ok();
            if is_sent {
                self.client.account.resp_header += sink.sent().head;
            }
            self.task.return_output(sink.into_buffer());
            if !is_sent {
                self.client.tx.cut();
                self.client.close = Some(SessClose::RemClose);
                return false;
            }
        }
        true
    }

    /// Sends a response that has no body and did not come from VCL. Returns false if the client is gone.
    pub async fn minimal_response(&mut self, status: u16) -> bool {
        if self.inclusion.into.is_some() {
            return true;
        }
        self.log_minimal(status);
        let mut sink = open(self);
        sink.head(Head::Status(status));
        let is_sent = if status < 200 { sink.flush().await } else { sink.end().await }.is_ok();
        if is_sent {
            self.client.account.resp_header += sink.sent().head;
        } else if self.client.close.is_none() {
            self.client.close = Some(SessClose::RemClose);
        }
        self.task.return_output(sink.into_buffer());
        is_sent
    }
}
