//! The variables of a client's request, by class. They include `bereq` of `vcl_pipe`.

use lacquer_cache::BodyState;
use lacquer_deliver::Source;
use lacquer_http::{Message, Slot, Text, Workspace, conditional};
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, Blob, HostResult};

use super::{headers, keep, misplaced, object, params, session, shown};
use crate::client::Req;

/// The type number of a BLOB that is a hash.
pub const HASH_BLOB: u32 = 0x00d1_6357;

/// Returns the time from which lifetimes count: the begin of the request, or in `vcl_deliver` the time when
/// that was entered.
fn ttl_now(req: &Req) -> f64 {
    if req.task.method == Method::Deliver { req.task.now } else { req.t_request }
}

/// Returns the error for a variable that has no effect any more, because VCL has set the list of filters.
fn filters_are_fixed(req: &mut Req, var: Var) -> Option<String> {
    let fixed = req.resp_filters.is_some();
    fixed.then(|| format!("resp.filters are already fixed, {} is undefined", var.name()))
}

pub fn get_bool(req: &mut Req, var: Var) -> bool {
    match var {
        Var::ReqCanGzip => conditional::accepts_gzip(&req.http, &req.task.ws),
        Var::ReqEsi => req.can_esi,
        Var::RespDoEsi => match filters_are_fixed(req, var) {
            Some(fault) => {
                req.task.fail(&fault);
                false
            }
            None => req.can_esi,
        },
        Var::ReqHashAlwaysMiss => req.rules.always_miss,
        Var::ReqHashIgnoreBusy => req.rules.ignore_busy,
        Var::ReqHashIgnoreVary => req.rules.ignore_vary,
        Var::ReqIsHitmiss => req.is_hitmiss,
        Var::ReqIsHitpass => req.is_hitpass,
        Var::ReqTrace => req.task.trace,
        Var::RespIsStreaming => req.object.as_ref().is_some_and(|o| o.state() == BodyState::Fetching),
        _ => req.object.as_ref().is_some_and(|o| object::get_bool(o, var)),
    }
}

pub fn get_int(req: &Req, var: Var) -> i64 {
    match var {
        Var::ReqEsiLevel => i64::from(req.esi_level),
        Var::ReqRestarts => i64::from(req.restarts),
        Var::ReqXid => req.task.vxid().number() as i64,
        Var::SessXid => req.task.sess.vxid as i64,
        Var::BereqXid => req.bereq.as_ref().map_or(0, |pipe| pipe.log.vxid().number() as i64),
        Var::RespStatus => i64::from(req.resp.status()),
        // A miss delivers an object whose hits belong to other requests.
        Var::ObjHits if req.task.method != Method::Hit && !req.is_hit => 0,
        Var::ObjHits | Var::ObjStatus => req.object.as_ref().map_or(0, |o| object::get_int(o, var)),
        _ => session::int(&req.task, var).or_else(|| params::int(&req.task.params, var)).unwrap_or(0),
    }
}

pub fn get_real(req: &Req, var: Var) -> f64 {
    match var {
        Var::Now => req.task.now,
        Var::ReqGrace => req.rules.grace,
        Var::ReqTtl => req.rules.ttl,
        Var::ReqMaxAge => req.rules.max_age,
        Var::ReqTime | Var::ReqTopTime => req.t_request,
        Var::RespTime => req.t_resp,
        Var::ObjAge | Var::ObjGrace | Var::ObjKeep | Var::ObjTime | Var::ObjTtl => {
            req.object.as_ref().map_or(0.0, |o| object::get_real(o, var, ttl_now(req)))
        }
        Var::BereqTime | Var::BereqConnectTimeout | Var::BereqTaskDeadline => pipe_real(req, var),
        _ => session::timeout(&req.task, var)
            .or_else(|| params::duration(&req.task.params, var))
            .unwrap_or(0.0),
    }
}

fn pipe_real(req: &Req, var: Var) -> f64 {
    let (Some(pipe), p) = (&req.bereq, &req.task.params) else { return 0.0 };
    match var {
        Var::BereqTime => pipe.t_first,
        Var::BereqConnectTimeout => shown(pipe.connect_timeout.unwrap_or(p.connect_timeout)),
        _ => shown(pipe.task_deadline.unwrap_or(p.pipe_task_deadline)),
    }
}

#[cold]
fn transport(req: &Req) -> &[u8] {
    req.tx.name().as_bytes()
}

/// Returns a text of a start line.
pub fn start_text<'w>(message: &Message, ws: &'w Workspace, slot: Slot) -> Option<&'w [u8]> {
    ws.get_opt(message.text(slot))
}

pub fn get_str(req: &mut Req, var: Var) -> Option<&[u8]> {
    match var {
        Var::ClientIdentity => session::identity(&req.task, req.identity),
        Var::ReqMethod => start_text(&req.http, &req.task.ws, Slot::Method),
        Var::ReqUrl => start_text(&req.http, &req.task.ws, Slot::Url),
        Var::ReqProto => start_text(&req.http, &req.task.ws, Slot::Proto),
        Var::ReqTopMethod => top_text(req, Slot::Method),
        Var::ReqTopUrl => top_text(req, Slot::Url),
        Var::ReqTopProto => top_text(req, Slot::Proto),
        Var::ReqFilters if req.filters.is_none() => Some(b""),
        Var::ReqFilters => req.task.ws.get_opt(req.filters),
        Var::ReqTransport => Some(transport(req)),
        Var::RespProto => start_text(&req.resp, &req.task.ws, Slot::Proto),
        Var::RespReason => start_text(&req.resp, &req.task.ws, Slot::Reason),
        Var::RespFilters if req.resp_filters.is_some() => req.task.ws.get_opt(req.resp_filters),
        Var::RespFilters => Some(default_filters(req)),
        Var::BereqMethod => pipe_text(req, Slot::Method),
        Var::BereqUrl => pipe_text(req, Slot::Url),
        Var::BereqProto => pipe_text(req, Slot::Proto),
        Var::ObjProto | Var::ObjReason => match &req.object {
            Some(object) => object::get_str(object, var, &mut req.task.ws),
            None => None,
        },
        _ => session::text(&req.task, var),
    }
}

/// Returns a text of the client's own request, which may be this one.
fn top_text(req: &Req, slot: Slot) -> Option<&[u8]> {
    match req.top.as_ref().filter(|_| req.esi_level > 0) {
        Some(top) => start_text(&top.http, &top.ws, slot),
        None => start_text(&req.http, &req.task.ws, slot),
    }
}

fn pipe_text(req: &Req, slot: Slot) -> Option<&[u8]> {
    req.bereq.as_ref().and_then(|pipe| start_text(&pipe.bereq, &req.task.ws, slot))
}

/// Returns the list of filters that the response would get now. Varnish begins it with a blank.
fn default_filters(req: &mut Req) -> &[u8] {
    let source = match &req.object {
        Some(object) => Source::Object(object.clone()),
        None => Source::Bytes(Vec::new()),
    };
    let list = req.default_filters(&source).as_bytes();
    listed(&mut req.task.ws, list)
}

/// Returns a list of filters with a blank before it. It is empty if there are none, or no room for it.
pub fn listed<'w>(ws: &'w mut Workspace, list: &[u8]) -> &'w [u8] {
    let list = list.trim_ascii_start();
    if list.is_empty() {
        return b"";
    }
    ws.copy_parts(&[b" ", list]).map_or(&[], |text| ws.get(text))
}

pub fn get_blob(req: &Req, var: Var) -> Option<Blob<'_>> {
    matches!(var, Var::ReqHash | Var::BereqHash).then(|| Blob::new(&req.digest, HASH_BLOB))
}

pub fn get_backend(req: &Req, var: Var) -> BackendId {
    match (var, &req.bereq) {
        (Var::ReqBackendHint, _) => req.backend_hint,
        (Var::BereqBackend, Some(pipe)) => pipe.backend,
        _ => BackendId::NONE,
    }
}

pub fn get_stevedore(req: &Req, var: Var) -> u32 {
    match (var, &req.object) {
        (Var::ReqStorage, _) => req.storage,
        (Var::ObjStorage, Some(object)) => object::storage(object),
        _ => 0,
    }
}

pub fn set_bool(req: &mut Req, var: Var, value: bool) -> HostResult<()> {
    match var {
        Var::ReqHashAlwaysMiss => req.rules.always_miss = value,
        Var::ReqHashIgnoreBusy => req.rules.ignore_busy = value,
        Var::ReqHashIgnoreVary => req.rules.ignore_vary = value,
        Var::ReqTrace => req.task.trace = value,
        // This is VCL 4.0, where only the outermost request can turn ESI off.
        Var::ReqEsi if req.esi_level == 0 => req.can_esi = value,
        Var::RespDoEsi => match filters_are_fixed(req, var) {
            Some(fault) => return Err(fault),
            None => req.can_esi = value,
        },
        // `req.can_gzip` follows from the request's header.
        Var::ReqEsi | Var::ReqCanGzip => {}
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_real(req: &mut Req, var: Var, value: f64) -> HostResult<()> {
    // NaN counts as 0 too.
    let positive = if value > 0.0 { value } else { 0.0 };
    match (var, &mut req.bereq) {
        (Var::ReqTtl, _) => req.rules.ttl = positive,
        (Var::ReqGrace, _) => req.rules.grace = positive,
        (Var::ReqMaxAge, _) => req.rules.max_age = positive,
        (Var::BereqConnectTimeout, Some(pipe)) => pipe.connect_timeout = Some(value),
        (Var::BereqTaskDeadline, Some(pipe)) => pipe.task_deadline = Some(value),
        _ if session::set_timeout(&req.task.sess, var, Some(value)) => {}
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn unset(req: &mut Req, var: Var) -> HostResult<()> {
    match (var, &mut req.bereq) {
        (Var::ReqTtl, _) => req.rules.ttl = -1.0,
        (Var::ReqGrace, _) => req.rules.grace = -1.0,
        (Var::ReqMaxAge, _) => req.rules.max_age = -1.0,
        (Var::BereqConnectTimeout, Some(pipe)) => pipe.connect_timeout = None,
        (Var::BereqTaskDeadline, Some(pipe)) => pipe.task_deadline = None,
        _ if session::set_timeout(&req.task.sess, var, None) => {}
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_str(req: &mut Req, var: Var, value: Option<&[u8]>) -> HostResult<()> {
    match var {
        Var::ReqMethod => headers::set_start(&mut req.req_headers(), Slot::Method, var, value),
        Var::ReqUrl => headers::set_start(&mut req.req_headers(), Slot::Url, var, value),
        Var::ReqProto => headers::set_start(&mut req.req_headers(), Slot::Proto, var, value),
        Var::RespProto => headers::set_start(&mut req.resp_headers(), Slot::Proto, var, value),
        Var::RespReason => headers::set_start(&mut req.resp_headers(), Slot::Reason, var, value),
        Var::BereqMethod => set_pipe_text(req, Slot::Method, var, value),
        Var::BereqUrl => set_pipe_text(req, Slot::Url, var, value),
        Var::BereqProto => set_pipe_text(req, Slot::Proto, var, value),
        Var::ClientIdentity => {
            let said = keep(&mut req.task.ws, value);
            assign(&mut req.identity, said);
            if said.is_none() {
                req.task.log.put(lacquer_shm::Tag::LostHeader, b"client.identity");
            }
            Ok(())
        }
        Var::ReqFilters if !req.body.is_available() => Err("req.filters not settable".to_owned()),
        Var::ReqFilters => {
            let said = keep(&mut req.task.ws, value);
            assign(&mut req.filters, said);
            Ok(())
        }
        Var::RespFilters => {
            let said = keep(&mut req.task.ws, value);
            assign(&mut req.resp_filters, said);
            Ok(())
        }
        _ => misplaced(var),
    }
}

/// Sets a text. Without room for the new text the old one stays, and the workspace records the overflow.
pub fn assign(place: &mut Text, said: Text) {
    if said.is_some() {
        *place = said;
    }
}

fn set_pipe_text(req: &mut Req, slot: Slot, var: Var, value: Option<&[u8]>) -> HostResult<()> {
    match req.pipe_headers() {
        Some(mut bereq) => headers::set_start(&mut bereq, slot, var, value),
        None => misplaced(var),
    }
}
