//! Synthetic responses: `vcl_synth`, and the response after a VCL failure.

use lacquer_deliver::Source;
use lacquer_flow::retry;
use lacquer_flow::rfc9111::status::SYNTHETIC;
use lacquer_http::{Message, SessClose, header_table as h};
use lacquer_sources::clock;
use lacquer_vcl::types::{Action, Method};

use super::{Req, Step};

/// Prepares the response to a request for which VCL failed (503) or whose client is gone (408). Rolls the request
/// back.
pub fn vcl_fail(req: &mut Req) -> Step {
    req.rollback();
    let (code, reason) = if req.client.is_reset { (408, "Client disconnected") } else { (503, "VCL failed") };
    req.response.status = code;
    req.response.reason = req.task.ws_mut().copy(reason.as_bytes()).unwrap_or_default();
    req.client.close = Some(failure(req));
    req.response.filters = lacquer_http::Text::NONE;
    Step::Synth
}

/// Returns the reason why the session closes after VCL failed or was interrupted.
fn failure(req: &Req) -> SessClose {
    if req.client.is_reset { SessClose::RemClose } else { SessClose::VclFailure }
}

pub(super) fn set_up(req: &mut Req) {
    let code = req.response.status;
    let reason = req.response.reason;
    req.response.http.clear();
    let now = clock::real();
    let date = req.task.services().http_date(now);
    let vxid = req.task.vxid().number().to_string();
    let expects = req.request.expects.is_waiting;
    let reason = req.task.ws().get_opt(reason).map(<[u8]>::to_vec);
    let has_status = req.follows_rfc9111();
    let mut headers = req.resp_headers();
    headers.respond(code, reason.as_deref());
    headers.add(h::DATE, &date);
    headers.add(h::SERVER, b"Varnish");
    headers.add(crate::logged::names::X_VARNISH, vxid.as_bytes());
    if has_status {
        headers.add(h::CACHE_STATUS, SYNTHETIC.as_bytes());
    }
    // If the client still waits for 100 (Continue), closing the connection saves both sides the body. VCL may remove
    // this header.
    if expects {
        headers.add(h::CONNECTION, b"close");
    }
}

pub async fn synth(req: &mut Req) -> Step {
    req.task.services().counters().s_synth.add(1);
    if req.response.status < 100 {
        req.response.status = 501;
    }
    set_up(req);
    req.response.filters = lacquer_http::Text::NONE;
    req.response.body.clear();
    req.response.entered = clock::real();
    let mut handling = req.vcl(Method::Synth).await;
    req.task.stamp("Process");

    if handling == Action::Fail {
        req.ignore_body().await;
        let status = if req.client.is_reset { 408 } else { 500 };
        req.minimal_response(status).await;
        req.client.close = Some(failure(req));
        req.task.stamp("Resp");
        return Step::Done;
    }
    if handling == Action::Restart && !retry::is_within(req.request.restarts, req.task.params().max_restarts)
    {
        handling = Action::Deliver;
    }
    if handling == Action::Restart {
        req.response.http.clear();
        return Step::Restart;
    }
    let length = req.response.body.len().to_string();
    let mut headers = req.resp_headers();
    headers.unset(h::CONTENT_LENGTH);
    headers.add(h::CONTENT_LENGTH, length.as_bytes());
    let ws = req.task.ws();
    let closes = |message: &Message| message.value_is(ws, h::CONNECTION, b"close");
    if req.client.close.is_none() && (closes(&req.response.http) || closes(&req.request.http)) {
        req.client.close = Some(SessClose::RespClose);
    }
    req.ignore_body().await;
    let body = std::mem::take(&mut req.response.body);
    if !has_room(req, body.len()) {
        req.log_error("Could not get storage");
        req.client.close = Some(SessClose::Overload);
        req.task.stamp("Resp");
        return Step::Done;
    }
    req.log_storage(req.task.services().stevedores().transient());
    req.task.services().counters().transit_stored.add(body.len() as u64);
    Step::Transmit(Source::Bytes(body))
}

/// Returns whether Transient has room for the body. Synthetic bodies are subject to its limit, like bodies from
/// origins.
fn has_room(req: &Req, body: usize) -> bool {
    let stevedores = req.task.services().stevedores();
    let Some(transient) = stevedores.get(stevedores.transient()) else { return true };
    let fits = transient.has_free(body as u64);
    if !fits {
        transient.counters().c_fail.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    fits
}
