//! A module for the tests, with functions that show their arguments, wait, fail, panic, keep state and create objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lacquer_vcl_runtime::{Args, Ctx, Func, Module, ModuleError, ObjectState, ObjectType, Value};

use super::host::Yield;

/// The functions, in the order of their numbers.
pub const FUNCTIONS: &[&str] = &[
    "show",
    "wait",
    "fail",
    "panic",
    "count",
    "call",
    "lie",
    "counter.next",
    "cache",
    "echo",
    "nothing",
    "header",
    "tail",
];
pub const SHOW: u32 = 0;
pub const WAIT: u32 = 1;
pub const FAIL: u32 = 2;
pub const PANIC: u32 = 3;
pub const COUNT: u32 = 4;
pub const CALL: u32 = 5;
pub const LIE: u32 = 6;
pub const NEXT: u32 = 7;
pub const CACHE: u32 = 8;
pub const ECHO: u32 = 9;
pub const NOTHING: u32 = 10;
pub const HEADER: u32 = 11;
pub const TAIL: u32 = 12;

pub const MODULES: &[&dyn Module] = &[&Trial];

pub const INTERFACE: &str = "$Module trial 3 \"Tests\"\n\
     $Function STRING show(STRING, INT, REAL, BOOL, [STRING more])\n\
     $Function INT wait(INT)\n\
     $Function STRING fail()\n\
     $Function VOID panic()\n\
     $Function INT count(PRIV_CALL)\n\
     $Function VOID call(SUB)\n\
     $Function STRING lie()\n\
     $Function INT cache()\n\
     $Function STRING echo(STRING)\n\
     $Function STRING nothing()\n\
     $Function STRING header(HEADER)\n\
     $Function STRING tail(STRANDS)\n\
     $Object counter(INT start = 0)\n\
     $Method INT .next()";

struct Trial;

impl Module for Trial {
    fn name(&self) -> &'static str {
        "trial"
    }
    fn functions(&self) -> &'static [(&'static str, Func)] {
        &[
            ("show", show),
            ("wait", wait),
            ("fail", fail),
            ("panic", panics),
            ("count", count),
            ("call", call),
            ("lie", lie),
            ("cache", cache),
            ("echo", echo),
            ("nothing", nothing),
            ("header", header),
            ("tail", tail),
        ]
    }
    fn objects(&self) -> &'static [ObjectType] {
        &[ObjectType { name: "counter", new: counter, methods: &[("next", next)] }]
    }
    fn suspends(&self) -> &'static [&'static str] {
        &["wait", "cache"]
    }
}

type CallResult<'a> = Result<Value<'a>, ModuleError>;

fn show<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let text = (0..args.len()).map(|i| match args.get(i) {
        Value::Str(Some(s)) => format!("{:?}", String::from_utf8_lossy(s)),
        Value::Str(None) => "null".to_owned(),
        Value::Strands(parts) => format!("{} parts", parts.len()),
        other => format!("{other:?}"),
    });
    let text = text.collect::<Vec<_>>().join(" ");
    Ok(Value::Str(Some(ctx.copy(text.as_bytes())?)))
}

fn wait<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let n = args.int(0);
    let work = async move {
        Yield(false).await;
        n + 1
    };
    Ok(Value::Int(ctx.block_on(Box::pin(work))?))
}

fn fail<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Err("the module failed".into())
}

fn panics<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    panic!("the module panicked")
}

fn count<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let here: &AtomicU32 = ctx.call_state(args)?;
    *ctx.task::<i64>(0) += 1;
    Ok(Value::Int(i64::from(here.fetch_add(1, Ordering::Relaxed))))
}

fn call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.call_sub(args.sub(0))?;
    Ok(Value::Absent)
}

fn lie<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(17))
}

fn cache<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(ctx.cache_req_body(1000)?))
}

fn echo<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(args.str(0)))
}

fn nothing<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Absent)
}

fn header<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (http, name) = args.header(0)?;
    Ok(Value::Str(ctx.header(http, name)))
}

/// Returns the last part and the number of parts.
fn tail<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let parts: Vec<_> = args.parts(0).collect();
    let last = parts.last().copied().flatten().unwrap_or(b"null");
    let text = format!("{}:{}", parts.len(), String::from_utf8_lossy(last));
    Ok(Value::Str(Some(ctx.copy(text.as_bytes())?)))
}

fn counter<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(AtomicU32::new(args.int(0) as u32)))
}

fn next<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(i64::from(args.this::<AtomicU32>()?.fetch_add(1, Ordering::Relaxed))))
}
