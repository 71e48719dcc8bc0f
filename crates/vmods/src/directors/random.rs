//! random: selects a healthy backend at random, in proportion to the weights.

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectType};

use super::group::{Column, Group};
use super::grouped::{Choice, add_weighted, backend, object, remove_backend};
use crate::random::fraction;

pub const TYPE: ObjectType = ObjectType {
    name: "random",
    new,
    methods: &[
        ("add_backend", add_weighted::<Random>),
        ("remove_backend", remove_backend::<Random>),
        ("backend", backend::<Random>),
    ],
};

struct Random;

impl Choice for Random {
    const KIND: &'static str = "random";

    fn choose(&self, group: &Group, ctx: &mut Ctx<'_>) -> BackendId {
        group.pick(ctx, fraction())
    }

    fn column(&self) -> Column {
        Column::Weight
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(object(ctx, args, Random))
}
