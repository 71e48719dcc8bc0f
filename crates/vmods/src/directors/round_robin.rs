//! round_robin: each healthy backend in turn.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Director, Health, Instance, ModuleError, ObjectType, Value};

use super::Object;
use super::group::{Column, Group};
use crate::support::{Answer, DONE};

pub const TYPE: ObjectType = ObjectType {
    name: "round_robin",
    new,
    methods: &[("add_backend", add_backend), ("remove_backend", remove_backend), ("backend", backend)],
};

struct RoundRobin {
    group: Group,
    next: AtomicUsize,
}

impl Director for RoundRobin {
    fn name(&self) -> &str {
        &self.group.name
    }

    fn kind(&self) -> &'static str {
        "round-robin"
    }

    fn resolve(&self, ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        let (members, vcl) = (self.group.read(), ctx.vcl);
        let mut next = self.next.load(Ordering::Relaxed);
        let mut found = BackendId::NONE;
        for _ in 0..members.len() {
            let candidate = members[next % members.len()].backend;
            next = (next + 1) % members.len();
            if vcl.directors.healthy_for(candidate, ctx).healthy {
                found = candidate;
                break;
            }
        }
        self.next.store(next, Ordering::Relaxed);
        found
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        self.group.any_healthy(vcl)
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.group.any_healthy_for(ctx)
    }

    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String {
        self.group.list(vcl, details, json, &Column::Nothing)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let director = RoundRobin { group: Group::new(args.object_name), next: AtomicUsize::new(0) };
    Ok(Arc::new(Object::register(ctx, director)))
}

fn add_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    args.this::<Object<RoundRobin>>()?.director.group.add(args.backend(0), 0.0)?;
    DONE
}

fn remove_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    args.this::<Object<RoundRobin>>()?.director.group.remove(args.backend(0))?;
    DONE
}

fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    Ok(Value::Backend(args.this::<Object<RoundRobin>>()?.id))
}
