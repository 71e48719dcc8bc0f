//! The variables of a fetch, by class.

use std::borrow::Cow;
use std::net::SocketAddr;

use lacquer_flow::Lifetime;
use lacquer_http::{BodyStatus, Slot};
use lacquer_shm::Tag;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, HostResult};

use super::client::{assign, listed, start_text};
use super::{headers, keep, misplaced, object, params, session, shown, storage};
use crate::fetch::Fetch;

/// Returns the error for a variable that has no effect any more, because VCL has set the list of filters.
fn filters_are_fixed(f: &Fetch, var: Var) -> Option<String> {
    let matters = matches!(var, Var::BerespDoEsi | Var::BerespDoGunzip | Var::BerespDoGzip);
    let fixed = matters && f.filters.is_some();
    fixed.then(|| format!("beresp.filters are already fixed, {} is undefined", var.name()))
}

pub fn get_bool(f: &mut Fetch, var: Var) -> bool {
    if let Some(fault) = filters_are_fixed(f, var) {
        f.task.fail(&fault);
        return false;
    }
    match var {
        Var::BereqIsBgfetch => f.is_bgfetch,
        Var::BereqIsHitmiss => f.is_hitmiss,
        Var::BereqIsHitpass => f.is_hitpass,
        Var::BereqRetryConnect => f.retry_connect,
        Var::BereqTrace => f.task.trace,
        Var::BereqUncacheable | Var::BerespUncacheable => f.uncacheable,
        Var::BerespDoEsi => f.attempt.do_esi,
        Var::BerespDoGunzip => f.do_gunzip,
        Var::BerespDoGzip => f.do_gzip,
        Var::BerespDoStream => f.attempt.do_stream,
        Var::BerespWas304 => f.attempt.was_304,
        _ => f.stale.as_ref().is_some_and(|o| object::get_bool(o, var)),
    }
}

pub fn get_int(f: &Fetch, var: Var) -> i64 {
    match var {
        Var::BereqRetries => i64::from(f.retries),
        Var::BereqXid => f.task.vxid().number() as i64,
        Var::SessXid => f.task.sess.vxid as i64,
        Var::BerespStatus => i64::from(f.beresp.status()),
        Var::BerespTransitBuffer => i64::try_from(f.transit_buffer).unwrap_or(i64::MAX),
        Var::ObjStaleHits | Var::ObjStaleStatus => f.stale.as_ref().map_or(0, |o| object::get_int(o, var)),
        _ => session::int(&f.task, var).or_else(|| params::int(&f.task.params, var)).unwrap_or(0),
    }
}

pub fn get_real(f: &Fetch, var: Var) -> f64 {
    let (p, lifetime, now) = (&f.task.params, f.lifetime, f.task.now);
    match var {
        Var::Now => f.task.now,
        Var::BereqTime => f.task.t_first,
        Var::BereqBetweenBytesTimeout => {
            shown(f.attempt.between_bytes_timeout.unwrap_or(p.between_bytes_timeout))
        }
        Var::BereqConnectTimeout => shown(f.attempt.connect_timeout.unwrap_or(p.connect_timeout)),
        Var::BereqFirstByteTimeout => shown(f.attempt.first_byte_timeout.unwrap_or(p.first_byte_timeout)),
        Var::BerespAge => lifetime.age(now),
        Var::BerespTtl => lifetime.ttl_left(now),
        Var::BerespGrace => lifetime.grace.max(0.0),
        Var::BerespKeep => lifetime.keep.max(0.0),
        Var::BerespTime => f.t_resp,
        Var::ObjStaleAge | Var::ObjStaleGrace | Var::ObjStaleKeep | Var::ObjStaleTime | Var::ObjStaleTtl => {
            f.stale.as_ref().map_or(0.0, |o| object::get_real(o, var, f.task.now))
        }
        _ => params::duration(p, var).unwrap_or(0.0),
    }
}

pub fn get_str(f: &mut Fetch, var: Var) -> Option<&[u8]> {
    match var {
        Var::ClientIdentity => session::identity(&f.task, f.identity),
        Var::BereqMethod => start_text(&f.bereq, &f.task.ws, Slot::Method),
        Var::BereqUrl => start_text(&f.bereq, &f.task.ws, Slot::Url),
        Var::BereqProto => start_text(&f.bereq, &f.task.ws, Slot::Proto),
        Var::BereqFilters if f.bereq_filters.is_none() => Some(b""),
        Var::BereqFilters => f.task.ws.get_opt(f.bereq_filters),
        Var::BerespProto => start_text(&f.beresp, &f.task.ws, Slot::Proto),
        Var::BerespReason => start_text(&f.beresp, &f.task.ws, Slot::Reason),
        Var::BerespFilters if f.filters.is_some() => f.task.ws.get_opt(f.filters),
        Var::BerespFilters => Some(default_filters(f)),
        Var::BerespBackendName => backend_name(f),
        Var::BerespStorageHint => {
            storage::name(f.task.services.stevedores(), get_stevedore(f, Var::BerespStorage))
        }
        Var::ObjStaleProto | Var::ObjStaleReason => match &f.stale {
            Some(object) => object::get_str(object, var, &mut f.task.ws),
            None => None,
        },
        _ => session::text(&f.task, var),
    }
}

/// Returns the list of filters that the response would get now. Varnish begins it with a blank.
fn default_filters(f: &mut Fetch) -> &[u8] {
    let framing = f.origin.as_ref().map(|origin| origin.framing);
    let has_body = framing.is_some_and(|framing| framing.status != BodyStatus::None);
    let list = if has_body { f.filter_list() } else { Cow::default() };
    listed(&mut f.task.ws, &list)
}

/// Returns the name of the backend. Directors and their names live as long as the VCL.
fn backend_name(f: &Fetch) -> Option<&[u8]> {
    let directors = &f.task.vcl.loaded.instance().directors;
    directors.get(f.backend_resp).map(|cell| cell.director.name().as_bytes())
}

/// Returns `beresp.backend.ip`, the address that the connection leads to.
pub fn get_ip(f: &Fetch, var: Var) -> Option<&SocketAddr> {
    match var {
        Var::BerespBackendIp => f.origin.as_ref().and(f.origin_addr.as_ref()),
        _ => session::ip(&f.task.sess, var),
    }
}

pub fn get_backend(f: &Fetch, var: Var) -> BackendId {
    match var {
        Var::BereqBackend => f.backend,
        Var::BerespBackend => f.backend_resp,
        _ => BackendId::NONE,
    }
}

pub fn get_stevedore(f: &Fetch, var: Var) -> u32 {
    match (var, &f.stale) {
        (Var::BerespStorage, _) => f.attempt.storage.map_or(0, |index| index + 1),
        (Var::ObjStaleStorage, Some(object)) => object::storage(object),
        _ => 0,
    }
}

pub fn set_bool(f: &mut Fetch, var: Var, value: bool) -> HostResult<()> {
    if let Some(fault) = filters_are_fixed(f, var) {
        return Err(fault);
    }
    match var {
        Var::BereqRetryConnect => f.retry_connect = value,
        Var::BereqTrace => f.task.trace = value,
        Var::BerespDoEsi => f.attempt.do_esi = value,
        Var::BerespDoGunzip => f.do_gunzip = value,
        Var::BerespDoGzip => f.do_gzip = value,
        Var::BerespDoStream => f.attempt.do_stream = value,
        Var::BerespUncacheable => {
            if f.uncacheable && !value {
                f.task.log.put(Tag::VCL_Error, b"Ignoring attempt to reset beresp.uncacheable");
            }
            f.uncacheable |= value;
            log_lifetime(f);
        }
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_real(f: &mut Fetch, var: Var, value: f64) -> HostResult<()> {
    match var {
        Var::BereqBetweenBytesTimeout => f.attempt.between_bytes_timeout = Some(value),
        Var::BereqConnectTimeout => f.attempt.connect_timeout = Some(value),
        Var::BereqFirstByteTimeout => f.attempt.first_byte_timeout = Some(value),
        Var::BerespTtl => f.lifetime.set_ttl(value, f.task.now),
        Var::BerespGrace => f.lifetime.set_grace(value),
        Var::BerespKeep => f.lifetime.set_keep(value),
        _ => return misplaced(var),
    }
    if matches!(var, Var::BerespTtl | Var::BerespGrace | Var::BerespKeep) {
        log_lifetime(f);
    }
    Ok(())
}

/// Logs the lifetime of the object as VCL has left it.
fn log_lifetime(f: &mut Fetch) {
    let cacheable = if f.uncacheable { "uncacheable" } else { "cacheable" };
    let Lifetime { ttl, grace, keep, origin } = f.lifetime;
    let text = format_args!("VCL {ttl:.0} {grace:.0} {keep:.0} {origin:.0} {cacheable}");
    f.task.log.put_fmt(Tag::TTL, text);
}

/// Carries out `return (pass(duration))`: requests for this object are passed for so long.
pub fn pass_for(f: &mut Fetch, seconds: f64) {
    f.lifetime = f.lifetime.of_pass(seconds);
    let origin = f.lifetime.origin;
    f.task.log.put_fmt(Tag::TTL, format_args!("HFP {seconds:.0} 0 0 {origin:.0} uncacheable"));
}

/// Sets the lifetime by the headers again, without VCL's changes.
pub fn rfc_ttl(f: &mut Fetch) {
    let now = f.t_resp;
    let fresh = f.set_lifetimes(now);
    f.log_lifetimes(now, &fresh);
}

pub fn unset(f: &mut Fetch, var: Var) -> HostResult<()> {
    match var {
        Var::BereqBetweenBytesTimeout => f.attempt.between_bytes_timeout = None,
        Var::BereqConnectTimeout => f.attempt.connect_timeout = None,
        Var::BereqFirstByteTimeout => f.attempt.first_byte_timeout = None,
        Var::BereqBody => {
            f.bereq_headers().unset(lacquer_http::header_table::CONTENT_LENGTH);
            f.cached_body = None;
            f.release_request();
        }
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_str(f: &mut Fetch, var: Var, value: Option<&[u8]>) -> HostResult<()> {
    match var {
        Var::BereqMethod => headers::set_start(&mut f.bereq_headers(), Slot::Method, var, value),
        Var::BereqUrl => headers::set_start(&mut f.bereq_headers(), Slot::Url, var, value),
        Var::BereqProto => headers::set_start(&mut f.bereq_headers(), Slot::Proto, var, value),
        Var::BerespProto => headers::set_start(&mut f.beresp_headers(), Slot::Proto, var, value),
        Var::BerespReason => headers::set_start(&mut f.beresp_headers(), Slot::Reason, var, value),
        Var::BereqFilters => {
            let said = keep(&mut f.task.ws, value);
            assign(&mut f.bereq_filters, said);
            Ok(())
        }
        Var::BerespFilters => {
            let said = keep(&mut f.task.ws, value);
            assign(&mut f.filters, said);
            Ok(())
        }
        // A name of no storage has no effect.
        Var::BerespStorageHint => {
            let name = String::from_utf8_lossy(value.unwrap_or_default());
            f.attempt.storage = f.task.services.stevedores().by_name(&name).or(f.attempt.storage);
            Ok(())
        }
        _ => misplaced(var),
    }
}
