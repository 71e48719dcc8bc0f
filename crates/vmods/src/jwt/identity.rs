//! The identity of an object whose state is in the tasks that use it.

use std::sync::Arc;

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectState};

/// Distinguishes the objects of a program. It has a size, so that each one has an address of its own.
struct Identity {
    _size: u8,
}

pub(super) fn new<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Identity { _size: 0 }))
}

/// Returns the state of the called object in this task.
pub(super) fn state<'c, T: Default + 'static>(
    ctx: &'c mut Ctx<'_>,
    args: &Args<'_>,
) -> Result<&'c mut T, ModuleError> {
    let key = std::ptr::from_ref(args.this::<Identity>()?) as usize;
    Ok(ctx.task::<T>(key))
}
