//! random: a healthy backend by chance, in proportion to the weights.

use lacquer_vcl_runtime::{BackendId, Ctx, ObjectType};

use super::group::{Choice, Column, Group, add_backend, backend, object, remove_backend};
use crate::random::fraction;

pub const TYPE: ObjectType = ObjectType {
    name: "random",
    new: |ctx, args| Ok(object(ctx, args, Random)),
    methods: &[
        ("add_backend", add_backend::<Random>),
        ("remove_backend", remove_backend::<Random>),
        ("backend", backend::<Random>),
    ],
};

struct Random;

impl Choice for Random {
    const KIND: &'static str = "random";
    const WEIGHTED: bool = true;

    fn choose(&self, members: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        members.pick(ctx, fraction())
    }

    fn column(&self) -> Column<'_> {
        Column::Weight
    }
}
