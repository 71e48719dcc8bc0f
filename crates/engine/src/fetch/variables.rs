//! The VCL variables of a fetch, by type.

use std::borrow::Cow;
use std::net::SocketAddr;

use lacquer_flow::Lifetime;
use lacquer_http::{BodyStatus, Slot};
use lacquer_shm::Tag;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, HostResult};

use crate::fetch::Fetch;
use crate::vars::{
    assign, headers, keep, listed, misplaced, object, params, session, shown, start_text, storage,
};

/// The largest value of `beresp.stale_if_error`, in seconds, so that the time of an object is finite.
const LONGEST_STALE_USE: f64 = 1e9;

/// Returns an error if VCL has set `beresp.filters`, so that this variable no longer has an effect.
fn filters_are_fixed(f: &Fetch, var: Var) -> Option<String> {
    let matters = matches!(var, Var::BerespDoEsi | Var::BerespDoGunzip | Var::BerespDoGzip);
    let fixed = matters && f.response.filters.is_some();
    fixed.then(|| format!("beresp.filters are already fixed, {} is undefined", var.name()))
}

pub fn get_bool(f: &mut Fetch, var: Var) -> bool {
    if let Some(fault) = filters_are_fixed(f, var) {
        f.task.fail(&fault);
        return false;
    }
    match var {
        Var::BereqIsBgfetch => f.purpose.is_background,
        Var::BereqIsHitmiss => f.purpose.is_hitmiss,
        Var::BereqIsHitpass => f.purpose.is_hitpass,
        Var::BereqRetryConnect => f.request.may_reconnect,
        Var::BereqTrace => f.task.is_traced(),
        Var::BereqUncacheable | Var::BerespUncacheable => f.response.is_uncacheable,
        Var::BerespDoEsi => f.attempt.do_esi,
        Var::BerespDoGunzip => f.response.do_gunzip,
        Var::BerespDoGzip => f.response.do_gzip,
        Var::BerespDoStream => f.attempt.do_stream,
        Var::BerespWas304 => f.attempt.was_304,
        Var::BerespIsStorable => f.is_storable(),
        Var::ParamRfc9111 => f.follows_rfc9111(),
        _ => f.product.stale.as_ref().is_some_and(|o| object::get_bool(o, var)),
    }
}

pub fn get_int(f: &Fetch, var: Var) -> i64 {
    match var {
        Var::BereqRetries => i64::from(f.retries.count),
        Var::BereqXid => f.task.vxid().number() as i64,
        Var::SessXid => f.task.sess().vxid().number() as i64,
        Var::BerespStatus => i64::from(f.response.http.status()),
        Var::BerespTransitBuffer => i64::try_from(f.product.transit_buffer).unwrap_or(i64::MAX),
        Var::ObjStaleHits | Var::ObjStaleStatus => {
            f.product.stale.as_ref().map_or(0, |o| object::get_int(o, var))
        }
        _ => session::int(&f.task, var).or_else(|| params::int(f.task.params(), var)).unwrap_or(0),
    }
}

pub fn get_real(f: &Fetch, var: Var) -> f64 {
    let (p, lifetime, now) = (f.task.params(), f.response.lifetime, f.task.now());
    match var {
        Var::Now => f.task.now(),
        Var::BereqTime => f.task.first_event(),
        Var::BereqBetweenBytesTimeout => {
            shown(f.attempt.timeouts.between_bytes.unwrap_or(p.between_bytes_timeout))
        }
        Var::BereqConnectTimeout => shown(f.attempt.timeouts.connect.unwrap_or(p.connect_timeout)),
        Var::BereqFirstByteTimeout => shown(f.attempt.timeouts.first_byte.unwrap_or(p.first_byte_timeout)),
        Var::BerespAge => lifetime.age(now),
        Var::BerespTtl => lifetime.ttl_left(now),
        Var::BerespGrace => lifetime.grace.max(0.0),
        Var::BerespKeep => lifetime.keep.max(0.0),
        Var::BerespStaleIfError => f64::from(f.product.stale_if_error),
        Var::BerespTime => f.response.entered,
        Var::ObjStaleAge | Var::ObjStaleGrace | Var::ObjStaleKeep | Var::ObjStaleTime | Var::ObjStaleTtl => {
            f.product.stale.as_ref().map_or(0.0, |o| object::get_real(o, var, f.task.now()))
        }
        _ => params::duration(p, var).unwrap_or(0.0),
    }
}

pub fn get_str(f: &mut Fetch, var: Var) -> Option<&[u8]> {
    match var {
        Var::ClientIdentity => session::identity(&f.task, f.request.identity),
        Var::BereqMethod => start_text(&f.request.http, f.task.ws(), Slot::Method),
        Var::BereqUrl => start_text(&f.request.http, f.task.ws(), Slot::Url),
        Var::BereqProto => start_text(&f.request.http, f.task.ws(), Slot::Proto),
        Var::BereqFilters if f.request.filters.is_none() => Some(b""),
        Var::BereqFilters => f.task.ws().get_opt(f.request.filters),
        Var::BerespProto => start_text(&f.response.http, f.task.ws(), Slot::Proto),
        Var::BerespReason => start_text(&f.response.http, f.task.ws(), Slot::Reason),
        Var::BerespFilters if f.response.filters.is_some() => f.task.ws().get_opt(f.response.filters),
        Var::BerespFilters => Some(default_filters(f)),
        Var::BerespBackendName => backend_name(f),
        Var::BerespStorageHint => {
            storage::name(f.task.services().stevedores(), get_stevedore(f, Var::BerespStorage))
        }
        Var::ObjStaleProto | Var::ObjStaleReason => match &f.product.stale {
            Some(object) => object::get_str(object, var, f.task.ws_mut()),
            None => None,
        },
        _ => session::text(&f.task, var),
    }
}

/// Returns the filters that the response would get now. Varnish begins the list with a space.
fn default_filters(f: &mut Fetch) -> &[u8] {
    let has_body = f.lent_framing() != BodyStatus::None;
    let list = if has_body { f.filter_list() } else { Cow::default() };
    listed(f.task.ws_mut(), &list)
}

/// Returns a copy of the backend's name, because the backend can be removed.
fn backend_name(f: &mut Fetch) -> Option<&[u8]> {
    let cell = f.task.vcl().loaded.instance().directors.get(f.response.backend)?;
    f.task.copy(cell.director.name().as_bytes())
}

/// Returns an address: `beresp.backend.ip`, or one of the session's.
pub fn get_ip(f: &Fetch, var: Var) -> Option<&SocketAddr> {
    match var {
        Var::BerespBackendIp => f.exchange.lent.as_ref()?.facts().remote(),
        _ => session::ip(f.task.sess(), var),
    }
}

pub fn get_backend(f: &Fetch, var: Var) -> BackendId {
    match var {
        Var::BereqBackend => f.exchange.backend,
        Var::BerespBackend => f.response.backend,
        _ => BackendId::NONE,
    }
}

pub fn get_stevedore(f: &Fetch, var: Var) -> u32 {
    match (var, &f.product.stale) {
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
        Var::BereqRetryConnect => f.request.may_reconnect = value,
        Var::BereqTrace => f.task.set_trace(value),
        Var::BerespDoEsi => f.attempt.do_esi = value,
        Var::BerespDoGunzip => f.response.do_gunzip = value,
        Var::BerespDoGzip => f.response.do_gzip = value,
        Var::BerespDoStream => f.attempt.do_stream = value,
        Var::BerespUncacheable => {
            if f.response.is_uncacheable && !value {
                f.task.log_mut().put(Tag::VCL_Error, b"Ignoring attempt to reset beresp.uncacheable");
            }
            f.response.is_uncacheable |= value;
            let method = f.task.method();
            f.task.note(|notes| {
                notes.uncacheable = notes.place(method, &|line| line.contains("uncacheable")).into();
            });
            log_lifetime(f);
        }
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_real(f: &mut Fetch, var: Var, value: f64) -> HostResult<()> {
    match var {
        Var::BereqBetweenBytesTimeout => f.attempt.timeouts.between_bytes = Some(value),
        Var::BereqConnectTimeout => f.attempt.timeouts.connect = Some(value),
        Var::BereqFirstByteTimeout => f.attempt.timeouts.first_byte = Some(value),
        Var::BerespTtl => {
            f.response.lifetime.set_ttl(value, f.task.now());
            f.product.is_ttl_set = true;
            let method = f.task.method();
            f.task.note(|notes| {
                notes.ttl = notes.place(method, &|line| line.contains("beresp.ttl")).into();
            });
        }
        Var::BerespGrace => f.response.lifetime.set_grace(value),
        Var::BerespKeep => f.response.lifetime.set_keep(value),
        Var::BerespStaleIfError => {
            let seconds = value.clamp(0.0, LONGEST_STALE_USE);
            f.product.stale_if_error = seconds as f32;
            f.response.lifetime.keep_for(seconds);
        }
        _ => return misplaced(var),
    }
    if matches!(var, Var::BerespTtl | Var::BerespGrace | Var::BerespKeep | Var::BerespStaleIfError) {
        log_lifetime(f);
    }
    Ok(())
}

/// Logs the lifetimes that VCL has set.
fn log_lifetime(f: &mut Fetch) {
    let cacheable = if f.response.is_uncacheable { "uncacheable" } else { "cacheable" };
    let Lifetime { ttl, grace, keep, origin } = f.response.lifetime;
    let text = format_args!("VCL {ttl:.0} {grace:.0} {keep:.0} {origin:.0} {cacheable}");
    f.task.log_mut().put_fmt(Tag::TTL, text);
}

/// Carries out `return (pass(duration))`: requests for this object are passed for `seconds`.
pub fn pass_for(f: &mut Fetch, seconds: f64) {
    f.response.lifetime = f.response.lifetime.of_pass(seconds);
    let origin = f.response.lifetime.origin;
    f.task.log_mut().put_fmt(Tag::TTL, format_args!("HFP {seconds:.0} 0 0 {origin:.0} uncacheable"));
}

/// Sets the lifetimes from the headers again, discarding VCL's changes.
pub fn rfc_ttl(f: &mut Fetch) {
    let now = f.response.entered;
    let fresh = f.set_lifetimes(now);
    f.log_lifetimes(now, &fresh);
}

pub fn unset(f: &mut Fetch, var: Var) -> HostResult<()> {
    match var {
        Var::BereqBetweenBytesTimeout => f.attempt.timeouts.between_bytes = None,
        Var::BereqConnectTimeout => f.attempt.timeouts.connect = None,
        Var::BereqFirstByteTimeout => f.attempt.timeouts.first_byte = None,
        Var::BereqBody => {
            f.bereq_headers().unset(lacquer_http::header_table::CONTENT_LENGTH);
            f.request.cached_body = None;
            f.release_request();
        }
        _ => return misplaced(var),
    }
    Ok(())
}

pub fn set_str(f: &mut Fetch, var: Var, value: Option<&[u8]>) -> HostResult<()> {
    let features = f.task.params().feature;
    match var {
        Var::BereqMethod => headers::set_start(&mut f.bereq_headers(), Slot::Method, var, value, features),
        Var::BereqUrl => headers::set_start(&mut f.bereq_headers(), Slot::Url, var, value, features),
        Var::BereqProto => headers::set_start(&mut f.bereq_headers(), Slot::Proto, var, value, features),
        Var::BerespProto => headers::set_start(&mut f.beresp_headers(), Slot::Proto, var, value, features),
        Var::BerespReason => headers::set_start(&mut f.beresp_headers(), Slot::Reason, var, value, features),
        Var::BereqFilters => {
            let copied = keep(f.task.ws_mut(), value);
            assign(&mut f.request.filters, copied);
            Ok(())
        }
        Var::BerespFilters => {
            let copied = keep(f.task.ws_mut(), value);
            assign(&mut f.response.filters, copied);
            Ok(())
        }
        // An unknown name has no effect.
        Var::BerespStorageHint => {
            let name = String::from_utf8_lossy(value.unwrap_or_default());
            f.attempt.storage = f.task.services().stevedores().by_name(&name).or(f.attempt.storage);
            Ok(())
        }
        _ => misplaced(var),
    }
}
