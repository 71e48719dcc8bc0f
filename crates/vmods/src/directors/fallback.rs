//! fallback: the first healthy backend. A sticky one stays with its choice until that fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_vcl_runtime::{BackendId, Ctx, ObjectType};

use super::group::{Choice, Column, Group, add_backend, backend, object, remove_backend};

pub const TYPE: ObjectType = ObjectType {
    name: "fallback",
    new: |ctx, args| Ok(object(ctx, args, Fallback { sticky: args.bool(0), current: AtomicUsize::new(0) })),
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
    const WEIGHTED: bool = false;

    fn choose(&self, members: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        let (members, vcl) = (members.read(), ctx.vcl);
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

    fn column(&self) -> Column<'_> {
        let sticky = if self.sticky { "true" } else { "false" };
        Column::Current { index: self.current.load(Ordering::Relaxed), sticky }
    }

    fn removed(&self, at: usize, left: usize) {
        let current = self.current.load(Ordering::Relaxed);
        let moved = if at < current { current - 1 } else { current };
        self.current.store(if moved == left { 0 } else { moved }, Ordering::Relaxed);
    }
}
