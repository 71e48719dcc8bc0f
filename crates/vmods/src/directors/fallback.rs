//! fallback: the first healthy backend. A sticky one stays with its choice until that fails.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Director, Health, Instance, ModuleError, ObjectType, Value};

use super::Object;
use super::group::{Column, Group};
use crate::support::{Answer, DONE};

pub const TYPE: ObjectType = ObjectType {
    name: "fallback",
    new,
    methods: &[("add_backend", add_backend), ("remove_backend", remove_backend), ("backend", backend)],
};

struct Fallback {
    group: Group,
    sticky: bool,
    current: AtomicUsize,
}

impl Director for Fallback {
    fn name(&self) -> &str {
        &self.group.name
    }

    fn kind(&self) -> &'static str {
        "fallback"
    }

    fn resolve(&self, ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        let (members, vcl) = (self.group.read(), ctx.vcl);
        let mut current = if self.sticky { self.current.load(Ordering::Relaxed) } else { 0 };
        let mut found = BackendId::NONE;
        for _ in 0..members.len() {
            current %= members.len();
            let candidate = members[current].backend;
            if vcl.directors.healthy_for(candidate, ctx).healthy {
                found = candidate;
                break;
            }
            current += 1;
        }
        self.current.store(if members.is_empty() { 0 } else { current % members.len() }, Ordering::Relaxed);
        found
    }

    fn healthy(&self, vcl: &Instance) -> Health {
        self.group.any_healthy(vcl)
    }

    fn healthy_for(&self, ctx: &mut Ctx<'_>) -> Health {
        self.group.any_healthy_for(ctx)
    }

    fn list(&self, vcl: &Instance, details: bool, json: bool) -> String {
        let sticky = if self.sticky { "true" } else { "false" };
        let column = Column::Current { index: self.current.load(Ordering::Relaxed), sticky };
        self.group.list(vcl, details, json, &column)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let (group, sticky) = (Group::new(args.object_name), args.bool(0));
    Ok(Arc::new(Object::register(ctx, Fallback { group, sticky, current: AtomicUsize::new(0) })))
}

fn add_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    args.this::<Object<Fallback>>()?.director.group.add(args.backend(0), 0.0)?;
    DONE
}

fn remove_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    let this = args.this::<Object<Fallback>>()?;
    if let Some((at, left)) = this.director.group.remove(args.backend(0))? {
        let current = this.director.current.load(Ordering::Relaxed);
        let moved = if at < current { current - 1 } else { current };
        this.director.current.store(if moved == left { 0 } else { moved }, Ordering::Relaxed);
    }
    DONE
}

fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    Ok(Value::Backend(args.this::<Object<Fallback>>()?.id))
}
