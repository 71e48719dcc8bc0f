//! The variables `obj.*` and `obj_stale.*` of a stored response.

use lacquer_cache::{BodyState, Object, flag};
use lacquer_http::pack::{self, PackedHead};
use lacquer_http::{Message, Workspace};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance;

/// Maps a variable of `obj_stale` to the same variable of `obj`.
pub fn plain(var: Var) -> Var {
    match var {
        Var::ObjStaleAge => Var::ObjAge,
        Var::ObjStaleCanEsi => Var::ObjCanEsi,
        Var::ObjStaleGrace => Var::ObjGrace,
        Var::ObjStaleHits => Var::ObjHits,
        Var::ObjStaleKeep => Var::ObjKeep,
        Var::ObjStaleProto => Var::ObjProto,
        Var::ObjStaleReason => Var::ObjReason,
        Var::ObjStaleStatus => Var::ObjStatus,
        Var::ObjStaleStorage => Var::ObjStorage,
        Var::ObjStaleTime => Var::ObjTime,
        Var::ObjStaleTtl => Var::ObjTtl,
        Var::ObjStaleUncacheable => Var::ObjUncacheable,
        other => other,
    }
}

pub fn get_bool(object: &Object, var: Var) -> bool {
    match plain(var) {
        Var::ObjCanEsi => crate::object_attributes::esi_program(object).is_some(),
        Var::ObjUncacheable => object.is(flag::HFM),
        Var::ObjStaleIsValid => object.state() != BodyState::Failed && !object.is(flag::DYING | flag::FAILED),
        _ => false,
    }
}

pub fn get_int(object: &Object, var: Var) -> i64 {
    match plain(var) {
        Var::ObjStatus => PackedHead::new(object.head()).map_or(0, |head| i64::from(head.status())),
        Var::ObjHits => i64::from(object.hits()),
        _ => 0,
    }
}

/// Returns a time or duration of the object. `ttl` and `age` are relative to `now`.
pub fn get_real(object: &Object, var: Var, now: f64) -> f64 {
    let (timers, age) = (object.timers(), now - object.t_origin());
    match plain(var) {
        Var::ObjAge => age,
        Var::ObjTtl => f64::from(timers.ttl.max(0.0)) - age,
        Var::ObjGrace => f64::from(timers.grace.max(0.0)),
        Var::ObjKeep => f64::from(timers.keep.max(0.0)),
        Var::ObjTime => object.t_origin(),
        _ => 0.0,
    }
}

/// Returns a text of the object. It is in the object, which the task holds, or in the task's workspace.
pub fn get_str<'t>(object: &'t Object, var: Var, ws: &'t mut Workspace) -> Option<&'t [u8]> {
    match plain(var) {
        Var::ObjReason => PackedHead::new(object.head()).map(|head| head.reason()),
        Var::ObjProto => proto(object, ws),
        _ => None,
    }
}

fn proto<'t>(object: &Object, ws: &'t mut Workspace) -> Option<&'t [u8]> {
    let mut scratch = Workspace::new(object.head().len() + 64);
    let mut message = Message::new(usize::from(u16::MAX));
    pack::unpack(object.head(), &mut scratch, &mut message).ok()?;
    let kept = ws.copy(message.proto(&scratch)).ok()?;
    Some(ws.get(kept))
}

pub fn header<'o>(object: &'o Object, name: &instance::HeaderName) -> Option<&'o [u8]> {
    pack::packed_header(object.head(), name.name.borrow())
}

/// Returns the object's storage as a VCL value: its number plus one.
pub fn storage(object: &Object) -> u32 {
    u32::from(object.stevedore()) + 1
}
