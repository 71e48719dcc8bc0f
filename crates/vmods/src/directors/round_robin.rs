//! round_robin: each healthy backend in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_vcl_runtime::{BackendId, Ctx, ObjectType};

use super::group::{Choice, Column, Group, add_backend, backend, object, remove_backend};

pub const TYPE: ObjectType = ObjectType {
    name: "round_robin",
    new: |ctx, args| Ok(object(ctx, args, RoundRobin { next: AtomicUsize::new(0) })),
    methods: &[
        ("add_backend", add_backend::<RoundRobin>),
        ("remove_backend", remove_backend::<RoundRobin>),
        ("backend", backend::<RoundRobin>),
    ],
};

struct RoundRobin {
    next: AtomicUsize,
}

impl Choice for RoundRobin {
    const KIND: &'static str = "round-robin";
    const WEIGHTED: bool = false;

    fn choose(&self, members: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        let (members, vcl) = (members.read(), ctx.vcl);
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

    fn column(&self) -> Column<'_> {
        Column::Nothing
    }
}
