//! The object of a director.

use std::sync::Arc;

use lacquer_vcl_runtime::{BackendId, Ctx, Director};

/// A director object: the director and its id in the VCL's table.
pub struct Object<D> {
    pub id: BackendId,
    pub director: Arc<D>,
}

impl<D: Director + 'static> Object<D> {
    pub fn register(ctx: &Ctx<'_>, director: D) -> Self {
        let director = Arc::new(director);
        Object { id: ctx.vcl.directors.add(director.clone()), director }
    }
}
