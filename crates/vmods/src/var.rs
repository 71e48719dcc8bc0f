//! Module var: variables of a task, and strings shared by all tasks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};

use lacquer_vcl_runtime::{Args, BackendId, Ctx, Func, ModuleError, Value};

use crate::support::{CallResult, DONE, Table, free_workspace, text};

pub(crate) static MODULE: Table = Table {
    name: "var",
    functions: &[
        ("set", set),
        ("get", get_string),
        ("global_set", global_set),
        ("global_get", global_get),
        ("set_int", set),
        ("get_int", get_int),
        ("set_string", set),
        ("get_string", get_string),
        ("set_real", set),
        ("get_real", get_real),
        ("set_duration", set),
        ("get_duration", get_duration),
        ("set_ip", set),
        ("get_ip", get_ip),
        ("set_backend", set),
        ("get_backend", get_backend as Func),
        ("clear", clear),
    ],
    objects: &[],
    suspends: &[],
};

/// Value of a variable. Reading it as another type returns nothing.
#[derive(Clone)]
enum Held {
    String(Vec<u8>),
    Int(i64),
    Real(f64),
    Duration(f64),
    Ip(Option<SocketAddr>),
    Backend(BackendId),
}

#[derive(Default)]
struct Variables(HashMap<Vec<u8>, Held>);

/// Bytes of workspace for a variable besides its texts, which limits the number of a task's variables.
const VARIABLE: usize = 56;

fn charge(ctx: &mut Ctx<'_>, bytes: usize, what: &str) -> Result<(), ModuleError> {
    if bytes > free_workspace(ctx) || ctx.host.alloc(bytes).is_none() {
        return Err(format!("vmod_var: {what}: out of workspace").into());
    }
    Ok(())
}

fn set<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(name) = args.str(0) else { return DONE };
    if !ctx.task::<Variables>(0).0.contains_key(name) {
        charge(ctx, VARIABLE, "alloc var")?;
        charge(ctx, name.len() + 1, "copy name")?;
    }
    if let Value::Str(Some(value)) = args.get(1) {
        charge(ctx, value.len() + 1, "copy value")?;
    }
    let held = match args.get(1) {
        Value::Int(n) => Held::Int(n),
        Value::Real(n) => Held::Real(n),
        Value::Duration(n) => Held::Duration(n),
        Value::Ip(ip) => Held::Ip(ip.copied()),
        Value::Backend(backend) => Held::Backend(backend),
        _ => Held::String(args.str(1).unwrap_or_default().to_vec()),
    };
    ctx.task::<Variables>(0).0.insert(name.to_vec(), held);
    DONE
}

fn held(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Option<Held> {
    ctx.task::<Variables>(0).0.get(args.str(0)?).cloned()
}

fn get_string<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match held(ctx, args) {
        Some(Held::String(value)) => text(ctx, &value),
        _ => Ok(Value::Str(None)),
    }
}

fn get_int<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = if let Some(Held::Int(n)) = held(ctx, args) { n } else { 0 };
    Ok(Value::Int(found))
}

fn get_real<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = if let Some(Held::Real(n)) = held(ctx, args) { n } else { 0.0 };
    Ok(Value::Real(found))
}

fn get_duration<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = if let Some(Held::Duration(n)) = held(ctx, args) { n } else { 0.0 };
    Ok(Value::Duration(found))
}

fn get_ip<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(Held::Ip(Some(ip))) = held(ctx, args) else { return Ok(Value::Ip(None)) };
    Ok(Value::Ip(Some(ctx.ip(ip).ok_or("vmod_var: out of workspace")?)))
}

fn get_backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = if let Some(Held::Backend(b)) = held(ctx, args) { b } else { BackendId::NONE };
    Ok(Value::Backend(found))
}

fn clear<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    ctx.task::<Variables>(0).0.clear();
    DONE
}

type Globals = Mutex<HashMap<Vec<u8>, Vec<u8>>>;

fn globals() -> &'static Globals {
    static GLOBALS: OnceLock<Globals> = OnceLock::new();
    GLOBALS.get_or_init(Globals::default)
}

fn global_set<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(name) = args.str(0) else { return DONE };
    let mut all = globals().lock().unwrap_or_else(PoisonError::into_inner);
    match args.str(1) {
        Some(value) => all.insert(name.to_vec(), value.to_vec()),
        None => all.remove(name),
    };
    DONE
}

fn global_get<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let all = globals().lock().unwrap_or_else(PoisonError::into_inner);
    match args.str(0).and_then(|name| all.get(name)) {
        Some(value) => text(ctx, value),
        None => Ok(Value::Str(None)),
    }
}
