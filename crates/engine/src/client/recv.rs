//! The first steps of a request: the protocol's rules, `vcl_recv` and `vcl_hash`.

use lacquer_flow::request::{self, Expectation};
use lacquer_flow::rfc9111::status::Forward;
use lacquer_http::{BodyStatus, SessClose, conditional, h1, header_table as h};
use lacquer_params::bits::FeatureBits;
use lacquer_shm::vsl::Field;
use lacquer_shm::{Numbering, Tag};
use lacquer_vcl::types::{Action, Method};

use super::challenge;
use super::early;
use super::parts::LookupRules;
use super::{Req, Step};
use crate::task::TaskParts;

/// Handles `Expect` and `Connection` before VCL sees the request.
pub async fn transport(req: &mut Req) -> Step {
    if req.task.sess().handshake().is_pending() && !Box::pin(early::admit(req)).await {
        return Step::Done;
    }
    let expect = req.request.http.get(req.task.ws(), h::EXPECT);
    let has_surplus = || req.request.body.has_surplus();
    match request::expectation(expect, req.request.http.version(), has_surplus) {
        Expectation::None => {}
        Expectation::Refused => {
            req.client.close = Some(SessClose::RxJunk);
            Box::pin(req.minimal_response(417)).await;
            req.task.services().counters().client_req_417.add(1);
            return Step::Done;
        }
        expectation @ (Expectation::Continue | Expectation::Ignored) => {
            req.request.expects.is_waiting |= expectation == Expectation::Continue;
            req.req_headers().unset(h::EXPECT);
        }
    }
    let decided = h1::decide_connection(&mut req.request.http, req.task.ws_mut(), SessClose::ReqClose);
    req.client.close = decided.unwrap_or(Some(SessClose::RxBad));
    if req.client.close == Some(SessClose::RxBad) {
        req.task.services().counters().client_req_400.add(1);
        Box::pin(req.minimal_response(400)).await;
        return Step::Done;
    }
    req.request.snapshot = req.task.ws().mark();
    req.request.original.clone_from(&req.request.http);
    Step::Recv
}

/// Logs `ReqStart`: the client's address, the listening socket, and the scheme. Varnish 7 logs no scheme; its readers
/// get that of TLS connections alone.
pub fn log_start(req: &mut Req) {
    let TaskParts { sess, log, .. } = req.task.parts();
    let is_tls = sess.tls().is_some();
    let [ip, port, name] = [sess.client_ip(), &sess.ends().client.port, sess.listener().name()];
    if is_tls || log.numbering() == Numbering::Varnish9 {
        let scheme = if is_tls { "https" } else { "http" };
        log.put_fields(Tag::ReqStart, &[ip, port, name, scheme].map(|s| Field::Text(s.as_bytes())));
    } else {
        log.put_fields(Tag::ReqStart, &[ip, port, name].map(|s| Field::Text(s.as_bytes())));
    }
}

async fn refuse(req: &mut Req, why: &str) -> Step {
    req.task.log_mut().put(Tag::BogoHeader, why.as_bytes());
    req.task.services().counters().client_req_400.add(1);
    req.client.close = Some(SessClose::RxBad);
    req.minimal_response(400).await;
    Step::Done
}

/// Sets the initial values that VCL sees and may change.
fn prepare(req: &mut Req) {
    if req.request.restarts == 0 {
        let sess = req.task.sess().clone();
        req.req_headers().append_value(h::X_FORWARDED_FOR, sess.client_ip().as_bytes());
        let via = req.task.services().via();
        req.req_headers().append_value(h::VIA, via.as_bytes());
        let _ = req.request.http.collect(req.task.ws_mut(), h::CACHE_CONTROL, b", ");
        req.request.backend_hint = req.task.vcl().loaded.instance().default_backend;
        req.request.rules = LookupRules::default();
        req.response.can_esi = true;
        req.request.identity = lacquer_http::Text::NONE;
        req.request.storage = 0;
    }
    req.found.is_hit = false;
    req.found.is_hitmiss = false;
    req.found.is_hitpass = false;
    req.found.forward = Forward::None;
    req.response.status = 0;
    req.response.reason = lacquer_http::Text::NONE;
    req.request.filters = lacquer_http::Text::NONE;
}

/// Returns whether the body is empty, whose length its head does not announce.
async fn proves_empty(req: &mut Req) -> bool {
    // Boxed: this is rare, and the future is large.
    Box::pin(req.request.body.proves_empty(req.task.params())).await
}

pub async fn recv(req: &mut Req) -> Step {
    log_start(req);
    req.req_headers().log_all();
    if let Some(why) = h1::request_fault(&req.request.original, req.task.ws()) {
        return Box::pin(refuse(req, why)).await;
    }
    // HTTP/2 and HTTP/3 allow a body with HEAD. An origin that ignores the body would parse it as the next request.
    let is_head = || req.request.original.method(req.task.ws()) == b"HEAD";
    if req.request.body.is_available() && is_head() && !proves_empty(req).await {
        return Box::pin(refuse(req, "Body in a HEAD request")).await;
    }
    if req.task.services().shared().challenges().is_pending()
        && let Some(step) = challenge::respond(req)
    {
        return step;
    }
    prepare(req);
    if req.request.body.status() == BodyStatus::Error {
        req.client.close = Some(SessClose::Overload);
        return Step::Done;
    }

    let mut handling = req.vcl(Method::Recv).await;
    if handling == Action::Fail {
        return Step::VclFail;
    }
    if handling == Action::Vcl
        && req.request.restarts == 0
        && let Some(next) = req.programs.next.take()
    {
        let first = req.task.switch_vcl(next);
        if req.inclusion.level == 0 {
            req.programs.first = Some(first);
        }
        start_again(req);
        handling = req.vcl(Method::Recv).await;
        if handling == Action::Fail {
            return Step::VclFail;
        }
    }
    if req.request.expects.is_waiting && !req.request.expects.is_late {
        req.request.expects.is_waiting = false;
        if !Box::pin(req.minimal_response(100)).await {
            req.client.close = Some(SessClose::RemClose);
            return Step::Done;
        }
    }
    if req.request.body.status() == BodyStatus::Error {
        req.client.close = Some(SessClose::RxBody);
        Box::pin(req.minimal_response(400)).await;
        return Step::Done;
    }
    if req.task.params().http_gzip_support && !matches!(handling, Action::Pipe | Action::Pass) {
        let TaskParts { ws, log, .. } = req.task.parts();
        let unset = |line: &[u8]| log.put(Tag::ReqUnset, line);
        let change = conditional::normalise_accept_encoding(&mut req.request.http, ws, unset);
        if let Ok(conditional::EncodingChange::Set(line)) = change {
            req.task.put_text(Tag::ReqHeader, line);
        }
    }
    if !hash(req).await {
        return Step::VclFail;
    }
    match next_step(req, handling) {
        Step::Lookup | Step::Pass if request::needs_tunnel(req.request.original.method(req.task.ws())) => {
            refuse_connect(req)
        }
        step => step,
    }
}

/// Prepares the request for another VCL, as if it had just arrived.
fn start_again(req: &mut Req) {
    req.rollback();
    req.task.set_trace(req.task.params().feature.has(FeatureBits::TRACE));
    prepare(req);
}

/// Rejects a CONNECT that VCL did not pipe, with 405.
#[cold]
fn refuse_connect(req: &mut Req) -> Step {
    req.log_error("CONNECT is refused, because VCL did not pipe it");
    req.response.status = 405;
    req.client.close = Some(SessClose::RxBad);
    Step::Synth
}

/// Runs `vcl_hash`, which computes the lookup key. Returns false if VCL failed.
pub(super) async fn hash(req: &mut Req) -> bool {
    req.key.open();
    let outcome = req.vcl(Method::Hash).await;
    req.key.close();
    outcome != Action::Fail
}

fn next_step(req: &mut Req, handling: Action) -> Step {
    match handling {
        Action::Purge => Step::Purge,
        // A request for another protocol has no use for an object.
        Action::Hash if req.wanted_protocol().is_some() => Step::Pass,
        Action::Hash => Step::Lookup,
        Action::Pass => Step::Pass,
        Action::Synth => Step::Synth,
        Action::Restart => Step::Restart,
        Action::Pipe => match request::pipe(req.inclusion.level > 0, req.request.original.version()) {
            Ok(()) => Step::Pipe,
            Err(why) => {
                req.task.log_mut().put(Tag::VCL_Error, why.as_bytes());
                Step::Pass
            }
        },
        Action::Vcl => {
            if let Err(why) = request::switch_vcl(req.request.restarts, true) {
                req.task.log_mut().put(Tag::VCL_Error, why.as_bytes());
            }
            req.response.status = 503;
            Step::Synth
        }
        _ => Step::VclFail,
    }
}
