//! Module directors: backends made of backends. Each type is a [`Director`] in the VCL's table and an
//! object for its methods; both are the same allocation.

mod fallback;
mod group;
mod grouped;
mod hash;
mod random;
mod round_robin;
mod shard;

use std::sync::Arc;

use lacquer_vcl_runtime::{Args, BackendId, Ctx, Director, Instance, Value};
use sha2::{Digest, Sha256};

use crate::support::{Answer, Table};

pub(crate) static MODULE: Table = Table {
    name: "directors",
    signatures: include_str!("../../vcc/directors.vcc"),
    functions: &[("lookup", lookup)],
    objects: &[round_robin::TYPE, fallback::TYPE, random::TYPE, hash::TYPE, shard::TYPE, shard::PARAM_TYPE],
    suspends: &[],
};

fn lookup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    let wanted = args.str(0).unwrap_or_default();
    let all = ctx.vcl.directors.all();
    let found = all.iter().find(|(_, cell)| cell.director.name().as_bytes() == wanted);
    Ok(Value::Backend(found.map_or(BackendId::NONE, |(id, _)| *id)))
}

/// A director object: what its methods need is the director and its number in the VCL's table.
struct Object<D> {
    id: BackendId,
    director: Arc<D>,
}

impl<D: Director + 'static> Object<D> {
    fn register(ctx: &Ctx<'_>, director: D) -> Self {
        let director = Arc::new(director);
        Object { id: ctx.vcl.directors.add(director.clone()), director }
    }
}

pub(crate) fn name_of(vcl: &Instance, id: BackendId) -> String {
    vcl.directors.get(id).map_or_else(String::new, |cell| cell.director.name().to_owned())
}

/// The hash that directors choose by: the last four bytes of SHA-256, little end first.
fn hash_of<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> u32 {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part);
    }
    let digest = sha.finalize();
    u32::from_le_bytes([digest[28], digest[29], digest[30], digest[31]])
}
