//! Module directors: selects one of several backends. Each director is a [`Director`](lacquer_vcl_runtime::Director)
//! in the VCL's table and an object for its methods; both share one allocation.

mod balance;
mod fallback;
mod group;
mod grouped;
mod hash;
mod least_connections;
mod object;
mod random;
mod round_robin;
mod shard;

use lacquer_vcl_runtime::{Args, BackendId, Ctx, Value};

use crate::support::{CallResult, Table};

pub(crate) static MODULE: Table = Table {
    name: "directors",
    functions: &[("lookup", lookup)],
    objects: &[
        round_robin::TYPE,
        fallback::TYPE,
        random::TYPE,
        least_connections::TYPE,
        hash::TYPE,
        shard::TYPE,
        shard::PARAM_TYPE,
    ],
    suspends: &[],
};

fn lookup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let wanted = args.str(0).unwrap_or_default();
    let all = ctx.vcl.directors.all();
    let found = all.iter().find(|(_, cell)| cell.director.name().as_bytes() == wanted);
    Ok(Value::Backend(found.map_or(BackendId::NONE, |(id, _)| *id)))
}
