//! A director with a group of backends and a selection among them, and its methods in VCL.

use std::any::Any;
use std::sync::Arc;

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Director, Health, Instance, Value};

use super::group::{Column, Group};
use super::object::Object;
use crate::support::{CallResult, DONE};

/// The selection, which is the only difference between such directors.
pub trait Choice: Send + Sync + 'static {
    const KIND: &'static str;

    fn choose(&self, group: &Group, ctx: &mut Ctx<'_>) -> BackendId;

    fn column(&self) -> Column;

    /// Returns the place of a backend among the others, which is by default that of its addition.
    fn rank(&self, _ctx: &mut Ctx<'_>, _backend: BackendId) -> u64 {
        0
    }

    /// Called after the member at this position was removed; `left` members remain.
    fn removed(&self, _at: usize, _left: usize) {}
}

pub struct Grouped<C> {
    group: Group,
    choice: C,
}

impl<C: Choice> Director for Grouped<C> {
    fn name(&self) -> &str {
        &self.group.name
    }

    fn kind(&self) -> &'static str {
        C::KIND
    }

    fn resolve(&self, ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        self.choice.choose(&self.group, ctx)
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        self.group.any_healthy(vcl)
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.group.any_healthy_for(ctx)
    }

    fn members(&self) -> Vec<BackendId> {
        self.group.read().iter().map(|member| member.backend).collect()
    }

    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String {
        self.group.list(vcl, details, json, &self.choice.column())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub fn object<C: Choice>(ctx: &Ctx<'_>, args: &Args<'_>, choice: C) -> ObjectState {
    Arc::new(Object::register(ctx, Grouped { group: Group::new(args.object_name), choice }))
}

pub fn add_backend<'a, C: Choice>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    add::<C>(ctx, args, 0.0)
}

pub fn add_weighted<'a, C: Choice>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    add::<C>(ctx, args, args.real(1))
}

fn add<'a, C: Choice>(ctx: &mut Ctx<'a>, args: &Args<'a>, weight: f64) -> CallResult<'a> {
    let (director, backend) = (&args.this::<Object<Grouped<C>>>()?.director, args.backend(0));
    let rank = director.choice.rank(ctx, backend);
    director.group.add(backend, weight, rank)?;
    DONE
}

pub fn remove_backend<'a, C: Choice>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let director = &args.this::<Object<Grouped<C>>>()?.director;
    if let Some((at, left)) = director.group.remove(args.backend(0))? {
        director.choice.removed(at, left);
    }
    DONE
}

pub fn backend<'a, C: Choice>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(args.this::<Object<Grouped<C>>>()?.id))
}
