//! The VCL variables of a client's request, including `bereq` of `vcl_pipe`, by type.

use lacquer_cache::BodyState;
use lacquer_deliver::Source;
use lacquer_http::{Slot, conditional};
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, Blob, HostResult};

use super::Req;
use crate::vars::{
    HASH_BLOB, assign, headers, keep, listed, misplaced, object, params, session, shown, start_text,
};

/// Returns the time that `obj.age` and `obj.ttl` refer to: when the request was received, or in `vcl_deliver` the
/// time when that was entered.
fn ttl_now(req: &Req) -> f64 {
    if req.task.method() == Method::Deliver { req.task.now() } else { req.request.received }
}

/// Returns an error if VCL has set `resp.filters`, so that this variable no longer has an effect.
fn filters_are_fixed(req: &mut Req, var: Var) -> Option<String> {
    let fixed = req.response.filters.is_some();
    fixed.then(|| format!("resp.filters are already fixed, {} is undefined", var.name()))
}

pub fn get_bool(req: &mut Req, var: Var) -> bool {
    match var {
        Var::ReqCanGzip => conditional::accepts_gzip(&req.request.http, req.task.ws()),
        Var::ReqEsi => req.response.can_esi,
        Var::RespDoEsi => match filters_are_fixed(req, var) {
            Some(fault) => {
                req.task.fail(&fault);
                false
            }
            None => req.response.can_esi,
        },
        Var::ReqHashAlwaysMiss => req.request.rules.always_miss,
        Var::ReqHashIgnoreBusy => req.request.rules.ignore_busy,
        Var::ReqHashIgnoreVary => req.request.rules.ignore_vary,
        Var::ReqIsHitmiss => req.found.is_hitmiss,
        Var::ReqIsHitpass => req.found.is_hitpass,
        Var::ReqTrace => req.task.is_traced(),
        Var::ParamRfc9111 => req.follows_rfc9111(),
        Var::RespIsStreaming => req.found.object.as_ref().is_some_and(|o| o.state() == BodyState::Fetching),
        _ => req.found.object.as_ref().is_some_and(|o| object::get_bool(o, var)),
    }
}

pub fn get_int(req: &Req, var: Var) -> i64 {
    match var {
        Var::ReqEsiLevel => i64::from(req.inclusion.level),
        Var::ReqRestarts => i64::from(req.request.restarts),
        Var::ReqXid => req.task.vxid().number() as i64,
        Var::SessXid => req.task.sess().vxid().number() as i64,
        Var::BereqXid => req.pipe.as_ref().map_or(0, |pipe| pipe.log.vxid().number() as i64),
        Var::RespStatus => i64::from(req.response.http.status()),
        // A miss delivers an object whose hits belong to other requests.
        Var::ObjHits if req.task.method() != Method::Hit && !req.found.is_hit => 0,
        Var::ObjHits | Var::ObjStatus => req.found.object.as_ref().map_or(0, |o| object::get_int(o, var)),
        _ => session::int(&req.task, var).or_else(|| params::int(req.task.params(), var)).unwrap_or(0),
    }
}

pub fn get_real(req: &Req, var: Var) -> f64 {
    match var {
        Var::Now => req.task.now(),
        Var::ReqGrace => req.request.rules.grace,
        Var::ReqTtl | Var::ReqMaxAge => req.request.rules.ttl,
        Var::ReqTime | Var::ReqTopTime => req.request.received,
        Var::RespTime => req.response.entered,
        Var::ObjAge | Var::ObjGrace | Var::ObjKeep | Var::ObjTime | Var::ObjTtl => {
            req.found.object.as_ref().map_or(0.0, |o| object::get_real(o, var, ttl_now(req)))
        }
        Var::BereqTime | Var::BereqConnectTimeout | Var::BereqTaskDeadline => pipe_real(req, var),
        _ => session::timeout(&req.task, var)
            .or_else(|| params::duration(req.task.params(), var))
            .unwrap_or(0.0),
    }
}

fn pipe_real(req: &Req, var: Var) -> f64 {
    let (Some(pipe), p) = (&req.pipe, req.task.params()) else { return 0.0 };
    match var {
        Var::BereqTime => pipe.t_first,
        Var::BereqConnectTimeout => shown(pipe.connect_timeout.unwrap_or(p.connect_timeout)),
        _ => shown(pipe.task_deadline.unwrap_or(p.pipe_task_deadline)),
    }
}

#[cold]
fn transport(req: &Req) -> &[u8] {
    req.client.tx.protocol().name.as_bytes()
}

pub fn get_str(req: &mut Req, var: Var) -> Option<&[u8]> {
    match var {
        Var::ClientIdentity => session::identity(&req.task, req.request.identity),
        Var::ReqMethod => start_text(&req.request.http, req.task.ws(), Slot::Method),
        Var::ReqUrl => start_text(&req.request.http, req.task.ws(), Slot::Url),
        Var::ReqProto => start_text(&req.request.http, req.task.ws(), Slot::Proto),
        Var::ReqTopMethod => top_text(req, Slot::Method),
        Var::ReqTopUrl => top_text(req, Slot::Url),
        Var::ReqTopProto => top_text(req, Slot::Proto),
        Var::ReqFilters if req.request.filters.is_none() => Some(b""),
        Var::ReqFilters => req.task.ws().get_opt(req.request.filters),
        Var::ReqTransport => Some(transport(req)),
        Var::RespProto => start_text(&req.response.http, req.task.ws(), Slot::Proto),
        Var::RespReason => start_text(&req.response.http, req.task.ws(), Slot::Reason),
        Var::RespFilters if req.response.filters.is_some() => req.task.ws().get_opt(req.response.filters),
        Var::RespFilters => Some(default_filters(req)),
        Var::BereqMethod => pipe_text(req, Slot::Method),
        Var::BereqUrl => pipe_text(req, Slot::Url),
        Var::BereqProto => pipe_text(req, Slot::Proto),
        Var::ObjProto | Var::ObjReason => match &req.found.object {
            Some(object) => object::get_str(object, var, req.task.ws_mut()),
            None => None,
        },
        _ => session::text(&req.task, var),
    }
}

/// Returns a field of the start line of the client's own request, which may be this request.
fn top_text(req: &Req, slot: Slot) -> Option<&[u8]> {
    match req.inclusion.top.as_ref().filter(|_| req.inclusion.level > 0) {
        Some(top) => start_text(&top.http, &top.ws, slot),
        None => start_text(&req.request.http, req.task.ws(), slot),
    }
}

fn pipe_text(req: &Req, slot: Slot) -> Option<&[u8]> {
    req.pipe.as_ref().and_then(|pipe| start_text(&pipe.bereq, req.task.ws(), slot))
}

/// Returns the filters that the response would get now. Varnish begins the list with a space.
fn default_filters(req: &mut Req) -> &[u8] {
    let source = match &req.found.object {
        Some(object) => Source::Object(object.clone()),
        None => Source::Bytes(Vec::new()),
    };
    let list = req.default_filters(&source).as_bytes();
    listed(req.task.ws_mut(), list)
}

pub fn get_blob(req: &Req, var: Var) -> Option<Blob<'_>> {
    matches!(var, Var::ReqHash | Var::BereqHash).then(|| Blob::new(req.key.digest(), HASH_BLOB))
}

pub fn get_backend(req: &Req, var: Var) -> BackendId {
    match (var, &req.pipe) {
        (Var::ReqBackendHint, _) => req.request.backend_hint,
        (Var::BereqBackend, Some(pipe)) => pipe.backend,
        _ => BackendId::NONE,
    }
}

pub fn get_stevedore(req: &Req, var: Var) -> u32 {
    match (var, &req.found.object) {
        (Var::ReqStorage, _) => req.request.storage,
        (Var::ObjStorage, Some(object)) => object::storage(object),
        _ => 0,
    }
}

pub fn set_bool(req: &mut Req, var: Var, value: bool) -> HostResult<()> {
    match var {
        Var::ReqHashAlwaysMiss => req.request.rules.always_miss = value,
        Var::ReqHashIgnoreBusy => req.request.rules.ignore_busy = value,
        Var::ReqHashIgnoreVary => req.request.rules.ignore_vary = value,
        Var::ReqTrace => req.task.set_trace(value),
        // This variable exists only in VCL 4.0, where only the client's own request can turn ESI off.
        Var::ReqEsi if req.inclusion.level == 0 => req.response.can_esi = value,
        Var::RespDoEsi => match filters_are_fixed(req, var) {
            Some(fault) => return Err(fault),
            None => req.response.can_esi = value,
        },
        // `req.can_gzip` is derived from the request's `Accept-Encoding`.
        Var::ReqEsi | Var::ReqCanGzip => {}
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_real(req: &mut Req, var: Var, value: f64) -> HostResult<()> {
    // NaN becomes 0 too.
    let positive = if value > 0.0 { value } else { 0.0 };
    match (var, &mut req.pipe) {
        (Var::ReqTtl | Var::ReqMaxAge, _) => req.request.rules.ttl = positive,
        (Var::ReqGrace, _) => req.request.rules.grace = positive,
        (Var::BereqConnectTimeout, Some(pipe)) => pipe.connect_timeout = Some(value),
        (Var::BereqTaskDeadline, Some(pipe)) => pipe.task_deadline = Some(value),
        _ if session::set_timeout(req.task.sess(), var, Some(value)) => {}
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn unset(req: &mut Req, var: Var) -> HostResult<()> {
    match (var, &mut req.pipe) {
        (Var::ReqTtl | Var::ReqMaxAge, _) => req.request.rules.ttl = -1.0,
        (Var::ReqGrace, _) => req.request.rules.grace = -1.0,
        (Var::BereqConnectTimeout, Some(pipe)) => pipe.connect_timeout = None,
        (Var::BereqTaskDeadline, Some(pipe)) => pipe.task_deadline = None,
        _ if session::set_timeout(req.task.sess(), var, None) => {}
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_str(req: &mut Req, var: Var, value: Option<&[u8]>) -> HostResult<()> {
    let features = req.task.params().feature;
    match var {
        Var::ReqMethod => headers::set_start(&mut req.req_headers(), Slot::Method, var, value, features),
        Var::ReqUrl => headers::set_start(&mut req.req_headers(), Slot::Url, var, value, features),
        Var::ReqProto => headers::set_start(&mut req.req_headers(), Slot::Proto, var, value, features),
        Var::RespProto => headers::set_start(&mut req.resp_headers(), Slot::Proto, var, value, features),
        Var::RespReason => headers::set_start(&mut req.resp_headers(), Slot::Reason, var, value, features),
        Var::BereqMethod => set_pipe_text(req, Slot::Method, var, value),
        Var::BereqUrl => set_pipe_text(req, Slot::Url, var, value),
        Var::BereqProto => set_pipe_text(req, Slot::Proto, var, value),
        Var::ClientIdentity => {
            let copied = keep(req.task.ws_mut(), value);
            assign(&mut req.request.identity, copied);
            if copied.is_none() {
                req.task.log_mut().put(lacquer_shm::Tag::LostHeader, b"client.identity");
            }
            Ok(())
        }
        Var::ReqFilters if !req.request.body.is_available() => {
            Err("req.request.filters not settable".to_owned())
        }
        Var::ReqFilters => {
            let copied = keep(req.task.ws_mut(), value);
            assign(&mut req.request.filters, copied);
            Ok(())
        }
        Var::RespFilters => {
            let copied = keep(req.task.ws_mut(), value);
            assign(&mut req.response.filters, copied);
            Ok(())
        }
        _ => misplaced(var),
    }
}

fn set_pipe_text(req: &mut Req, slot: Slot, var: Var, value: Option<&[u8]>) -> HostResult<()> {
    let features = req.task.params().feature;
    match req.pipe_headers() {
        Some(mut bereq) => headers::set_start(&mut bereq, slot, var, value, features),
        None => misplaced(var),
    }
}
