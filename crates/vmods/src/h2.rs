//! Module h2: whether the client uses HTTP/2, and its session's own limits on rapid resets.

use lacquer_vcl_runtime::{Args, Ctx, H2Setting, Value};

use crate::support::{CallResult, Table};

pub(crate) static MODULE: Table = Table {
    name: "h2",
    functions: &[
        ("is", is),
        ("rapid_reset", rapid_reset),
        ("rapid_reset_limit", rapid_reset_limit),
        ("rapid_reset_period", rapid_reset_period),
        ("rapid_reset_budget", rapid_reset_budget),
    ],
    objects: &[],
    suspends: &[],
};

fn is<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(ctx.host.is_http2()))
}

/// Sets a value. Returns the previous one, or -1 if the client does not use HTTP/2.
fn exchange(ctx: &mut Ctx<'_>, which: H2Setting, to: Option<f64>) -> f64 {
    let Some(before) = ctx.host.h2_setting(which) else { return -1.0 };
    if let Some(to) = to.filter(|to| *to != before) {
        ctx.host.set_h2_setting(which, to);
    }
    before
}

fn rapid_reset<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let to = args.is_given(0).then(|| args.real(0));
    Ok(Value::Duration(exchange(ctx, H2Setting::RapidReset, to)))
}

fn rapid_reset_limit<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let to = args.is_given(0).then(|| args.int(0) as f64);
    Ok(Value::Int(exchange(ctx, H2Setting::RapidResetLimit, to) as i64))
}

fn rapid_reset_period<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let to = args.is_given(0).then(|| args.real(0));
    Ok(Value::Duration(exchange(ctx, H2Setting::RapidResetPeriod, to)))
}

fn rapid_reset_budget<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(exchange(ctx, H2Setting::RapidResetBudget, None)))
}
