//! The functions that VCL calls with a database: as methods of an object, or with the name of one.

use std::sync::Arc;

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};

use super::database::Database;
use super::reply::Reply;
use super::runtime::run;
use super::settings::{milliseconds, retries, role};
use super::state::{Command, MOST_WORDS, Program, Task};
use crate::support::{CallResult, DONE, log, shown, text, word};

pub(super) fn fault(ctx: &mut Ctx<'_>, database: &Database, why: impl AsRef<str>) {
    log(ctx, Tag::VCL_Error, format!("redis: {}: {}", database.name, why.as_ref()));
}

/// Returns bytes of a server as a STRING. A text with a NUL has none: the rest would be lost unnoticed.
fn string<'a>(ctx: &mut Ctx<'a>, database: &Database, bytes: Option<Vec<u8>>) -> CallResult<'a> {
    match bytes {
        Some(bytes) if bytes.contains(&0) => {
            fault(ctx, database, "the reply contains a NUL, which a STRING cannot");
            Ok(Value::Str(None))
        }
        Some(bytes) => text(ctx, &bytes),
        None => Ok(Value::Str(None)),
    }
}

pub(super) fn add_server<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    let rules = ctx.vcl_state::<Program>(0).parts().rules.clone();
    let added = role(word(args, 1)).and_then(|role| database.add_server(&shown(args.str(0)), role, &rules));
    added.map_err(|why| ModuleError(format!("redis: {}: add_server(): {why}", database.name)))?;
    DONE
}

pub(super) fn command<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    begin(ctx, database, args.str(0));
    DONE
}

fn begin(ctx: &mut Ctx<'_>, database: &Arc<Database>, name: Option<&[u8]>) {
    let name = name.unwrap_or_default();
    ctx.task::<Task>(0).command = None;
    if name.is_empty() {
        fault(ctx, database, "command() without a name");
    } else {
        ctx.task::<Task>(0).command = Some(Command::new(database, name));
    }
}

pub(super) fn timeout<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    set_timeout(ctx, database, args.int(0));
    DONE
}

fn set_timeout(ctx: &mut Ctx<'_>, database: &Arc<Database>, number: i64) {
    match (milliseconds(number, "timeout()"), ctx.task::<Task>(0).command_of(database)) {
        (Ok(time), Some(command)) => command.timeout = time,
        (Ok(_), None) => fault(ctx, database, "timeout() without command()"),
        (Err(why), _) => fault(ctx, database, why),
    }
}

pub(super) fn set_retries<'a>(
    ctx: &mut Ctx<'a>,
    database: &Arc<Database>,
    args: &Args<'a>,
) -> CallResult<'a> {
    change_retries(ctx, database, args.int(0));
    DONE
}

fn change_retries(ctx: &mut Ctx<'_>, database: &Arc<Database>, number: i64) {
    match (retries(number, "retries()"), ctx.task::<Task>(0).command_of(database)) {
        (Ok(number), Some(command)) => command.retries = number,
        (Ok(_), None) => fault(ctx, database, "retries() without command()"),
        (Err(why), _) => fault(ctx, database, why),
    }
}

pub(super) fn push<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    add_word(ctx, database, args.str(0));
    DONE
}

/// Adds an argument; an undefined one is empty. A command with too many is given up, because a part of it is another
/// command.
fn add_word(ctx: &mut Ctx<'_>, database: &Arc<Database>, word: Option<&[u8]>) {
    let task = ctx.task::<Task>(0);
    match task.command_of(database) {
        Some(command) if command.words.len() < MOST_WORDS => {
            command.words.push(word.unwrap_or_default().to_vec());
        }
        Some(_) => {
            task.command = None;
            fault(ctx, database, format!("a command has more than {MOST_WORDS} words"));
        }
        None => fault(ctx, database, "push() without command()"),
    }
}

pub(super) fn execute<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    send(ctx, database, args.bool(0))
}

/// Executes the command, while the reactor serves other requests.
fn send<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, master: bool) -> CallResult<'a> {
    let Some(command) = ctx.task::<Task>(0).command_of(database) else {
        fault(ctx, database, "execute() without command()");
        return DONE;
    };
    // The reply of an earlier execution must not be taken for that of this one.
    command.reply = None;
    let order = command.order(master);
    let executing = database.clone();
    let outcome = run(ctx, async move { executing.execute(order).await })?;
    for note in outcome.notes {
        log(ctx, Tag::Debug, note);
    }
    for why in outcome.faults {
        log(ctx, Tag::VCL_Error, why);
    }
    if let Some(command) = ctx.task::<Task>(0).command_of(database) {
        command.reply = outcome.reply;
    }
    DONE
}

/// The arguments of `easy_execute()` after the name: those of the command, then `timeout`, `retries` and `master`.
const EASY_WORDS: usize = 16;

pub(super) fn easy_execute<'a>(
    ctx: &mut Ctx<'a>,
    database: &Arc<Database>,
    args: &Args<'a>,
) -> CallResult<'a> {
    begin(ctx, database, args.str(0));
    if ctx.task::<Task>(0).command.is_none() {
        return DONE;
    }
    for i in (1..=EASY_WORDS).filter(|i| args.is_given(*i)) {
        add_word(ctx, database, args.str(i));
    }
    if args.is_given(EASY_WORDS + 1) {
        set_timeout(ctx, database, args.int(EASY_WORDS + 1));
    }
    if args.is_given(EASY_WORDS + 2) {
        change_retries(ctx, database, args.int(EASY_WORDS + 2));
    }
    send(ctx, database, args.bool(EASY_WORDS + 3))
}

/// Returns whether there is a reply of which the test is true.
pub(super) fn is<'a>(
    ctx: &mut Ctx<'a>,
    database: &Arc<Database>,
    test: fn(&Reply) -> bool,
) -> CallResult<'a> {
    Ok(Value::Bool(ctx.task::<Task>(0).reply_of(database).is_some_and(test)))
}

/// Returns whether the reply is an array with an element of which the test is true.
pub(super) fn element_is<'a>(
    ctx: &mut Ctx<'a>,
    database: &Arc<Database>,
    args: &Args<'a>,
    test: fn(&Reply) -> bool,
) -> CallResult<'a> {
    let reply = ctx.task::<Task>(0).reply_of(database);
    Ok(Value::Bool(reply.and_then(|reply| reply.element(args.int(0))).is_some_and(test)))
}

/// Returns the text of a reply of which the test is true.
pub(super) fn text_if<'a>(
    ctx: &mut Ctx<'a>,
    database: &Arc<Database>,
    test: fn(&Reply) -> bool,
) -> CallResult<'a> {
    let found = ctx.task::<Task>(0).reply_of(database).filter(|reply| test(reply)).and_then(Reply::text);
    string(ctx, database, found)
}

pub(super) fn integer<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>) -> CallResult<'a> {
    Ok(Value::Int(match ctx.task::<Task>(0).reply_of(database) {
        Some(Reply::Integer(number)) => *number,
        _ => 0,
    }))
}

pub(super) fn double<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>) -> CallResult<'a> {
    Ok(Value::Real(match ctx.task::<Task>(0).reply_of(database) {
        // A REAL is finite.
        Some(Reply::Double(number, _)) if number.is_finite() => *number,
        _ => 0.0,
    }))
}

pub(super) fn array_length<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>) -> CallResult<'a> {
    Ok(Value::Int(match ctx.task::<Task>(0).reply_of(database) {
        Some(Reply::Array(elements)) => elements.len() as i64,
        _ => 0,
    }))
}

pub(super) fn array_value<'a>(
    ctx: &mut Ctx<'a>,
    database: &Arc<Database>,
    args: &Args<'a>,
) -> CallResult<'a> {
    let reply = ctx.task::<Task>(0).reply_of(database);
    let found = reply.and_then(|reply| reply.element(args.int(0))).and_then(Reply::text);
    string(ctx, database, found)
}

pub(super) fn free<'a>(ctx: &mut Ctx<'a>) -> CallResult<'a> {
    ctx.task::<Task>(0).command = None;
    DONE
}

pub(super) fn stats<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    let content = if word(args, 0) == "json" {
        database.counters.json()
    } else {
        let prefix = Some(shown(args.str(2))).filter(|prefix| !prefix.is_empty());
        let mut labels = shown(args.str(4)).into_owned();
        if args.bool(3) {
            let separator = if labels.is_empty() { "" } else { "," };
            labels = format!("{labels}{separator}name=\"{}\"", database.name);
        }
        database.counters.prometheus(prefix.as_deref().unwrap_or("vmod_redis_"), &labels)
    };
    let body = match ctx.method() {
        Method::Synth => Some(Var::RespBody),
        Method::BackendError => Some(Var::BerespBody),
        _ => None,
    };
    match body {
        Some(body) if args.bool(1) => {
            ctx.host.set_body(body, true, content.as_bytes())?;
            Ok(Value::Str(Some(b"")))
        }
        _ => text(ctx, content.as_bytes()),
    }
}

pub(super) fn counter<'a>(ctx: &mut Ctx<'a>, database: &Arc<Database>, args: &Args<'a>) -> CallResult<'a> {
    let name = shown(args.str(0));
    let value = database.counters.get(&name);
    if value.is_none() {
        fault(ctx, database, format!("there is no counter \"{name}\""));
    }
    Ok(Value::Int(value.unwrap_or(0) as i64))
}
