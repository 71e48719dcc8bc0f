//! random: a healthy backend by chance, in proportion to the weights.

use std::any::Any;
use std::sync::Arc;

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Director, Health, Instance, ModuleError, ObjectType, Value};

use super::Object;
use super::group::{Column, Group};
use crate::random::fraction;
use crate::support::{Answer, DONE};

pub const TYPE: ObjectType = ObjectType {
    name: "random",
    new,
    methods: &[("add_backend", add_backend), ("remove_backend", remove_backend), ("backend", backend)],
};

struct Random {
    group: Group,
}

impl Director for Random {
    fn name(&self) -> &str {
        &self.group.name
    }

    fn kind(&self) -> &'static str {
        "random"
    }

    fn resolve(&self, ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        self.group.pick(ctx, fraction())
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        self.group.any_healthy(vcl)
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.group.any_healthy_for(ctx)
    }

    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String {
        self.group.list(vcl, details, json, &Column::Weight)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Object::register(ctx, Random { group: Group::new(args.object_name) })))
}

fn add_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    args.this::<Object<Random>>()?.director.group.add(args.backend(0), args.real(1))?;
    DONE
}

fn remove_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    args.this::<Object<Random>>()?.director.group.remove(args.backend(0))?;
    DONE
}

fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    Ok(Value::Backend(args.this::<Object<Random>>()?.id))
}
