//! round_robin: selects the healthy backends one after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectType};

use super::group::{Column, Group};
use super::grouped::{Choice, add_backend, backend, object, remove_backend};

pub const TYPE: ObjectType = ObjectType {
    name: "round_robin",
    new,
    methods: &[
        ("add_backend", add_backend::<RoundRobin>),
        ("remove_backend", remove_backend::<RoundRobin>),
        ("backend", backend::<RoundRobin>),
    ],
};

#[derive(Default)]
struct RoundRobin {
    next: AtomicUsize,
}

impl Choice for RoundRobin {
    const KIND: &'static str = "round-robin";

    fn choose(&self, group: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        let (members, vcl) = (group.read(), ctx.vcl);
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

    fn column(&self) -> Column {
        Column::Nothing
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(object(ctx, args, RoundRobin::default()))
}
