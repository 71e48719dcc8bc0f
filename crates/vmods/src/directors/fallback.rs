//! fallback: selects the first healthy backend. A sticky one keeps its choice until that backend is sick.

use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectType};

use super::group::{Column, Group};
use super::grouped::{Choice, add_backend, backend, object, remove_backend};

pub const TYPE: ObjectType = ObjectType {
    name: "fallback",
    new,
    methods: &[
        ("add_backend", add_backend::<Fallback>),
        ("remove_backend", remove_backend::<Fallback>),
        ("backend", backend::<Fallback>),
    ],
};

struct Fallback {
    sticky: bool,
    current: AtomicUsize,
}

impl Choice for Fallback {
    const KIND: &'static str = "fallback";

    fn choose(&self, group: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        let (members, vcl) = (group.read(), ctx.vcl);
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

    fn column(&self) -> Column {
        Column::Current { index: self.current.load(Ordering::Relaxed), sticky: self.sticky }
    }

    fn removed(&self, at: usize, left: usize) {
        let current = self.current.load(Ordering::Relaxed);
        let moved = if at < current { current - 1 } else { current };
        self.current.store(if moved == left { 0 } else { moved }, Ordering::Relaxed);
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(object(ctx, args, Fallback { sticky: args.bool(0), current: AtomicUsize::new(0) }))
}
