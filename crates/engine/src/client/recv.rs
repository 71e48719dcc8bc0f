//! The first steps: the protocol's rules for the request, `vcl_recv` and `vcl_hash`.

use lacquer_flow::request::{self, Expectation};
use lacquer_http::{BodyStatus, SessClose, conditional, h1, header_table as h};
use lacquer_net::Rx;
use lacquer_shm::Tag;
use lacquer_shm::vsl::Field;
use lacquer_vcl::types::{Action, Method};
use sha2::{Digest, Sha256};

use super::{LookupRules, Req, Step};

/// Handles Expect and Connection before VCL sees the request.
pub async fn transport(req: &mut Req) -> Step {
    let expect = req.http.get(&req.task.ws, h::EXPECT);
    let has_surplus = || req.body.rx.as_ref().is_some_and(Rx::has_pending);
    match request::expectation(expect, req.http.version(), has_surplus) {
        Expectation::None => {}
        Expectation::Refused => {
            req.close = Some(SessClose::RxJunk);
            Box::pin(req.minimal_response(417)).await;
            req.task.services.counters().client_req_417.add(1);
            return Step::Done;
        }
        expectation @ (Expectation::Continue | Expectation::Ignored) => {
            req.want_100 |= expectation == Expectation::Continue;
            req.req_headers().unset(h::EXPECT);
        }
    }
    let decided = h1::decide_connection(&mut req.http, &mut req.task.ws, SessClose::ReqClose);
    req.close = decided.unwrap_or(Some(SessClose::RxBad));
    if req.close == Some(SessClose::RxBad) {
        req.task.services.counters().client_req_400.add(1);
        Box::pin(req.minimal_response(400)).await;
        return Step::Done;
    }
    req.snapshot = req.task.ws.mark();
    req.http0.clone_from(&req.http);
    Step::Recv
}

/// Logs `ReqStart`: the client's address, and the listening socket.
pub fn log_start(req: &mut Req) {
    let sess = &req.task.sess;
    let fields = [&sess.client.ip, &sess.client.port, &sess.listener.name].map(|s| Field::Text(s.as_bytes()));
    req.task.log.put_fields(Tag::ReqStart, &fields);
}

async fn refuse(req: &mut Req, why: &str) -> Step {
    req.task.log.put(Tag::BogoHeader, why.as_bytes());
    req.task.services.counters().client_req_400.add(1);
    req.close = Some(SessClose::RxBad);
    req.minimal_response(400).await;
    Step::Done
}

/// Sets the values that a request has before VCL changes it.
fn prepare(req: &mut Req) {
    if req.restarts == 0 {
        let sess = req.task.sess.clone();
        append_value(req, h::X_FORWARDED_FOR, sess.client.ip.as_bytes());
        let via = req.task.services.via();
        append_value(req, h::VIA, via.as_bytes());
        let _ = req.http.collect(&mut req.task.ws, h::CACHE_CONTROL, b", ");
        req.backend_hint = req.task.vcl.loaded.instance().default_backend;
        req.rules = LookupRules::default();
        req.can_esi = true;
        req.identity = lacquer_http::Text::NONE;
        req.storage = 0;
        req.task.trace = req.task.params.feature.has(lacquer_params::bits::FeatureBits::TRACE);
    }
    req.is_hit = false;
    req.is_hitmiss = false;
    req.is_hitpass = false;
    req.err_code = 0;
    req.err_reason = lacquer_http::Text::NONE;
    req.filters = lacquer_http::Text::NONE;
}

/// Adds a value to a header that is a list. The log shows the removal of the old line and the new one.
fn append_value(req: &mut Req, name: lacquer_http::HeaderName<'_>, value: &[u8]) {
    let log = &mut req.task.log;
    let line = req.http.append_value(&mut req.task.ws, name, value, |old| log.put(Tag::ReqUnset, old));
    match line {
        Ok(line) => req.task.log.put(Tag::ReqHeader, req.task.ws.get(line)),
        Err(_) => req.req_headers().lost(&[name.as_bytes(), b":"]),
    }
}

pub async fn recv(req: &mut Req) -> Step {
    log_start(req);
    req.req_headers().log_all();
    if let Some(why) = h1::request_fault(&req.http0, &req.task.ws) {
        return Box::pin(refuse(req, why)).await;
    }
    // Only HTTP/2 allows a body with HEAD. An origin that ignores it would take it for the next request.
    if req.body.is_available() && req.http0.method(&req.task.ws) == b"HEAD" {
        return Box::pin(refuse(req, "Body in a HEAD request")).await;
    }
    prepare(req);
    if req.body.status() == BodyStatus::Error {
        req.close = Some(SessClose::Overload);
        return Step::Done;
    }

    let mut handling = req.vcl(Method::Recv).await;
    if handling == Action::Fail {
        return Step::VclFail;
    }
    if handling == Action::Vcl
        && req.restarts == 0
        && let Some(next) = req.next_vcl.take()
    {
        let first = std::mem::replace(&mut req.task.vcl, next);
        if req.esi_level == 0 {
            req.first_vcl = Some(first);
        }
        req.rollback();
        prepare(req);
        handling = req.vcl(Method::Recv).await;
        if handling == Action::Fail {
            return Step::VclFail;
        }
    }
    if req.want_100 && !req.late_100 {
        req.want_100 = false;
        if !Box::pin(req.minimal_response(100)).await {
            req.close = Some(SessClose::RemClose);
            return Step::Done;
        }
    }
    if req.body.status() == BodyStatus::Error {
        req.close = Some(SessClose::RxBody);
        return Step::Done;
    }
    if req.task.params.http_gzip_support && !matches!(handling, Action::Pipe | Action::Pass) {
        let log = &mut req.task.log;
        let unset = |line: &[u8]| log.put(Tag::ReqUnset, line);
        let change = conditional::normalise_accept_encoding(&mut req.http, &mut req.task.ws, unset);
        if let Ok(conditional::EncodingChange::Set(line)) = change {
            req.task.log.put(Tag::ReqHeader, req.task.ws.get(line));
        }
    }
    if !hash(req).await {
        return Step::VclFail;
    }
    match next_step(req, handling) {
        Step::Lookup | Step::Pass if request::needs_tunnel(req.http0.method(&req.task.ws)) => {
            refuse_connect(req)
        }
        step => step,
    }
}

/// Ends a CONNECT that is not piped.
#[cold]
fn refuse_connect(req: &mut Req) -> Step {
    req.log_error("CONNECT is refused, because VCL did not pipe it");
    req.err_code = 405;
    req.close = Some(SessClose::RxBad);
    Step::Synth
}

/// Runs `vcl_hash`, which makes the key under which the request is looked up.
async fn hash(req: &mut Req) -> bool {
    req.hasher = Some(Sha256::new());
    let outcome = req.vcl(Method::Hash).await;
    if let Some(hasher) = req.hasher.take() {
        req.digest = hasher.finalize().into();
    }
    outcome != Action::Fail
}

fn next_step(req: &mut Req, handling: Action) -> Step {
    match handling {
        Action::Purge => Step::Purge,
        Action::Hash => Step::Lookup,
        Action::Pass => Step::Pass,
        Action::Synth => Step::Synth,
        Action::Restart => Step::Restart,
        Action::Pipe => match request::pipe(req.esi_level > 0, req.http0.version()) {
            Ok(()) => Step::Pipe,
            Err(why) => {
                req.task.log.put(Tag::VCL_Error, why.as_bytes());
                Step::Pass
            }
        },
        Action::Vcl => {
            if let Err(why) = request::switch_vcl(req.restarts, true) {
                req.task.log.put(Tag::VCL_Error, why.as_bytes());
            }
            req.err_code = 503;
            Step::Synth
        }
        _ => Step::VclFail,
    }
}
