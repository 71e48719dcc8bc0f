//! Resolver objects. All directors share one resolver, whose settings are parameters; these objects exist so that
//! configurations with them load.

use std::sync::Arc;

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{Args, Ctx, Func, ModuleError, ObjectState, Value};

use crate::support::{CallResult, log, word};

pub(super) const METHODS: &[(&str, Func)] = &[
    ("use", use_it),
    ("set_resolution_type", set_resolution_type),
    ("clear_namespaces", setting),
    ("add_namespace", add_namespace),
    ("set_namespaces", setting),
    ("clear_transports", setting),
    ("add_transport", add_transport),
    ("set_transports", setting),
    ("set_idle_timeout", setting),
    ("set_limit_outstanding_queries", setting),
    ("set_timeout", setting),
    ("set_follow_redirects", setting),
];

struct Resolver;

pub(super) fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    if args.int(1) < 1 {
        return Err(format!("dynamic.resolver {}: parallel must be positive", args.object_name).into());
    }
    Ok(Arc::new(Resolver))
}

fn use_it<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    args.this::<Resolver>()?;
    Ok(Value::Blob(ctx.blob(b"resolver", 0)))
}

fn check(ctx: &Ctx<'_>, args: &Args<'_>) -> Result<(), ModuleError> {
    if ctx.method() == Method::Init {
        return Ok(());
    }
    Err(format!("dynamic.resolver {}: settings may only be changed in vcl_init", args.object_name).into())
}

/// Accepts a setting that the shared resolver has by its parameters.
fn setting<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    check(ctx, args)?;
    Ok(Value::Bool(true))
}

/// Accepts a setting if its value is one that the resolver has.
fn only<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, supported: &[&str]) -> CallResult<'a> {
    check(ctx, args)?;
    let wanted = word(args, 0);
    let is_supported = supported.contains(&wanted);
    if !is_supported {
        log(ctx, Tag::Error, format!("vmod-dynamic {} {wanted} is not supported", args.object_name));
    }
    Ok(Value::Bool(is_supported))
}

fn set_resolution_type<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    only(ctx, args, &["STUB"])
}

fn add_namespace<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    only(ctx, args, &["DNS", "LOCALNAMES"])
}

fn add_transport<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    only(ctx, args, &["UDP", "TCP"])
}
