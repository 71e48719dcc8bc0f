//! Module purge: removes the objects with the request's hash from the cache, at once or by shorter lifetimes.

use lacquer_vcl_runtime::{Args, Ctx, PurgeMode, Value};

use crate::support::{CallResult, Table};

pub(crate) static MODULE: Table = Table {
    name: "purge",
    functions: &[("hard", hard), ("soft", soft)],
    objects: &[],
    suspends: &["hard", "soft"],
};

fn hard<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(ctx.block_on_host(|host| host.purge(PurgeMode::Hard))?))
}

fn soft<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let unless_negative = |x: f64| (x >= 0.0).then_some(x);
    let mode = PurgeMode::Soft {
        ttl: args.real(0),
        grace: unless_negative(args.real(1)),
        keep: unless_negative(args.real(2)),
    };
    Ok(Value::Int(ctx.block_on_host(|host| host.purge(mode))?))
}
