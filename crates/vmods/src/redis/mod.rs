//! Module redis: commands to Redis servers.
//!
//! The client is the module's own. The crate `redis` has no limit on the size of a reply, so that a faulty server could
//! fill the worker's memory.

mod connection;
mod counters;
mod database;
mod location;
mod methods;
mod parser;
mod reply;
mod request;
mod runtime;
mod server;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod tls;
mod weights;

use std::sync::Arc;

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{
    Args, Ctx, Event, Func, Instance, Module, ModuleError, ObjectState, ObjectType, Value,
};

use crate::support::{CallResult, DONE, log, shown, word};
use database::Database;
use methods::{array_value, element_is, is, text_if};
use reply::Reply;
use state::{Program, Task};

/// Parses the input as replies, in pieces of this size.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(piece: usize, bytes: &[u8]) {
    let mut parser = parser::Parser::default();
    for piece in bytes.chunks(piece.max(1)) {
        if parser.push(piece).is_err() {
            return;
        }
        loop {
            match parser.next() {
                Ok(Some(reply)) => {
                    let _ = (reply.text(), reply.element(0).and_then(Reply::text));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

pub(crate) static MODULE: Redis = Redis;

pub(crate) struct Redis;

impl Module for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn functions(&self) -> &'static [(&'static str, Func)] {
        FUNCTIONS
    }

    fn objects(&self) -> &'static [ObjectType] {
        &[ObjectType { name: "db", new, methods: METHODS }]
    }

    fn suspends(&self) -> &'static [&'static str] {
        &["execute", "easy_execute", "db.execute", "db.easy_execute"]
    }

    fn event(&self, vcl: &Instance, event: Event) -> Result<(), ModuleError> {
        if event == Event::Cold {
            let program = vcl.vcl_state::<Program>(0);
            let databases = program.parts().databases.clone();
            databases.iter().filter_map(std::sync::Weak::upgrade).for_each(|database| database.close_idle());
        }
        Ok(())
    }
}

/// The state of an object: its database.
struct Handle(Arc<Database>);

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let name = args.object_name;
    let fault = |why: String| ModuleError(format!("redis.db {name}: {why}"));
    let role = settings::role(word(args, 1)).map_err(fault)?;
    let database = Arc::new(Database::new(name, settings::read(args).map_err(fault)?));
    let program = ctx.vcl_state::<Program>(0);
    let mut parts = program.parts();
    let place = shown(args.str(0));
    if !place.is_empty() {
        database.add_server(&place, role, &parts.rules).map_err(fault)?;
    }
    parts.databases.push(Arc::downgrade(&database));
    Ok(Arc::new(Handle(database)))
}

/// Returns the database that a function uses: that of its argument *db*, or that of `redis.use()`. Logs if there is none.
fn chosen(ctx: &mut Ctx<'_>, name: Option<&[u8]>) -> Option<Arc<Database>> {
    let name = shown(name);
    let found = if name.is_empty() {
        ctx.task::<Task>(0).used.clone()
    } else {
        ctx.vcl_state::<Program>(0).find(&name)
    };
    if found.is_none() {
        let why =
            if name.is_empty() { "call redis.use(), or give db".to_owned() } else { format!("\"{name}\"") };
        log(ctx, Tag::VCL_Error, format!("redis: there is no such database: {why}"));
    }
    found
}

fn use_database<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let name = shown(args.str(0));
    let found = ctx.vcl_state::<Program>(0).find(&name);
    if found.is_none() {
        log(ctx, Tag::VCL_Error, format!("redis: there is no database \"{name}\""));
    }
    *ctx.task::<Task>(0) = Task { used: found, command: None };
    DONE
}

/// Sets the rules for weights, before the first database exists.
fn set_rules<'a>(
    ctx: &mut Ctx<'a>,
    args: &Args<'a>,
    name: &str,
    parse: fn(&str) -> Result<Vec<weights::Rule>, String>,
) -> CallResult<'a> {
    let fault = |why: &str| ModuleError(format!("redis.{name}(): {why}"));
    let rules = parse(&shown(args.str(0))).map_err(|why| fault(&why))?;
    let program = ctx.vcl_state::<Program>(0);
    let mut parts = program.parts();
    if !parts.databases.is_empty() {
        return Err(fault("call it in vcl_init before the first redis.db()"));
    }
    if !parts.rules.is_empty() {
        return Err(fault("rules were set already"));
    }
    parts.rules = Arc::new(rules);
    DONE
}

fn sentinels<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Err("redis.sentinels(): Redis Sentinel is not supported; name all servers with type = auto, so that each new \
         connection asks for the role"
        .into())
}

/// Defines METHODS and FUNCTIONS. A function is a method with the argument *db*, whose position is given, and with the
/// value that it returns if there is no such database.
macro_rules! tables {
    ($($name:literal, $db:literal, $none:expr => $call:expr;)*) => {
        const METHODS: &[(&str, Func)] = &[$(
            ($name, |ctx, args| {
                let database = &args.this::<Handle>()?.0;
                let call: Call = $call;
                call(ctx, database, args)
            }),
        )*];

        const FUNCTIONS: &[(&str, Func)] = &[
            ("use", use_database),
            ("sentinels", sentinels),
            ("subnets", |ctx, args| set_rules(ctx, args, "subnets", weights::networks)),
            ("weights", |ctx, args| set_rules(ctx, args, "weights", weights::places)),
            $(
                ($name, |ctx, args| match chosen(ctx, args.str($db)) {
                    Some(database) => {
                        let call: Call = $call;
                        call(ctx, &database, args)
                    }
                    None => Ok($none),
                }),
            )*
        ];
    };
}

type Call = for<'a> fn(&mut Ctx<'a>, &Arc<Database>, &Args<'a>) -> CallResult<'a>;

const NO_TEXT: Value<'static> = Value::Str(None);
const FALSE: Value<'static> = Value::Bool(false);

tables! {
    "add_server", 2, Value::Absent => methods::add_server;
    "command", 1, Value::Absent => methods::command;
    "timeout", 1, Value::Absent => methods::timeout;
    "retries", 1, Value::Absent => methods::set_retries;
    "push", 1, Value::Absent => methods::push;
    "execute", 1, Value::Absent => methods::execute;
    "easy_execute", 20, Value::Absent => methods::easy_execute;
    "replied", 0, FALSE => |ctx, database, _| is(ctx, database, |_| true);
    "reply_is_error", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_error);
    "reply_is_nil", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_nil);
    "reply_is_status", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_status);
    "reply_is_integer", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_integer);
    "reply_is_boolean", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_boolean);
    "reply_is_double", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_double);
    "reply_is_string", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_text);
    "reply_is_array", 0, FALSE => |ctx, database, _| is(ctx, database, Reply::is_array);
    "get_reply", 0, NO_TEXT => |ctx, database, _| text_if(ctx, database, |_| true);
    "get_error_reply", 0, NO_TEXT => |ctx, database, _| text_if(ctx, database, Reply::is_error);
    "get_status_reply", 0, NO_TEXT => |ctx, database, _| text_if(ctx, database, Reply::is_status);
    "get_integer_reply", 0, Value::Int(0) => |ctx, database, _| methods::integer(ctx, database);
    "get_boolean_reply", 0, FALSE => |ctx, database, _| is(ctx, database, |reply| *reply == Reply::Boolean(true));
    "get_double_reply", 0, Value::Real(0.0) => |ctx, database, _| methods::double(ctx, database);
    "get_string_reply", 0, NO_TEXT => |ctx, database, _| text_if(ctx, database, Reply::is_text);
    "get_array_reply_length", 0, Value::Int(0) => |ctx, database, _| methods::array_length(ctx, database);
    "array_reply_is_error", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_error);
    "array_reply_is_nil", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_nil);
    "array_reply_is_status", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_status);
    "array_reply_is_integer", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_integer);
    "array_reply_is_boolean", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_boolean);
    "array_reply_is_double", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_double);
    "array_reply_is_string", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_text);
    "array_reply_is_array", 1, FALSE => |ctx, database, args| element_is(ctx, database, args, Reply::is_array);
    "get_array_reply_value", 1, NO_TEXT => array_value;
    "free", 0, Value::Absent => |ctx, _, _| methods::free(ctx);
    "stats", 5, NO_TEXT => methods::stats;
    "counter", 1, Value::Int(0) => methods::counter;
}
