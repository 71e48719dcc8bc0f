//! The object `regex`: a pattern that is compiled when the VCL is loaded.

use std::sync::Arc;

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectState, ObjectType, Value};

use super::options::{Flag, Options};
use super::pattern::Pattern;
use super::rewriting::{Rewriting, Texts, brief, failure, group};
use crate::support::{CallResult, shown};

pub(super) const TYPE: ObjectType = ObjectType {
    name: "regex",
    new,
    methods: &[
        ("match", matches),
        ("backref", backref),
        ("namedref", namedref),
        ("sub", |ctx, args| rewrite(ctx, args, Rewriting::Sub)),
        ("suball", |ctx, args| rewrite(ctx, args, Rewriting::Suball)),
        ("extract", |ctx, args| rewrite(ctx, args, Rewriting::Extract)),
        ("cost", cost),
    ],
};

/// The text of an object's last match in a task, if it matched.
#[derive(Default)]
struct Subject(Option<Vec<u8>>);

fn key(pattern: &Pattern) -> usize {
    std::ptr::from_ref(pattern) as usize
}

fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let text = args.str(0).unwrap_or_default();
    let pattern = Pattern::new(text, Options::of_pattern(args, 1)).map_err(|error| {
        failure(format!("{} constructor: cannot compile '{}': {error}", args.object_name, brief(text)))
    })?;
    Ok(Arc::new(pattern))
}

fn matches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let pattern = args.this::<Pattern>()?;
    let subject = args.str(0).unwrap_or_default();
    let matches = pattern.is_match(subject);
    if !pattern.options.is(Flag::NeverCapture) {
        ctx.task::<Subject>(key(pattern)).0 = matches.then(|| subject.to_vec());
    }
    Ok(Value::Bool(matches))
}

/// Returns the group of the last match. `call` is the call in messages.
fn last<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, number: usize, call: &str) -> CallResult<'a> {
    let pattern = args.this::<Pattern>()?;
    let fallback = args.str(1).unwrap_or_default();
    let state = ctx.task::<Subject>(key(pattern));
    let subject = state.0.take();
    let name = call.split(['.', '(']).nth(1).unwrap_or_default();
    let subject = subject.ok_or_else(|| failure(format!("{call}: {name} called without prior match")))?;
    let found = group(ctx, (pattern, &subject), number, fallback, call);
    ctx.task::<Subject>(key(pattern)).0 = Some(subject);
    found
}

fn backref<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let pattern = args.this::<Pattern>()?;
    let (name, number) = (args.object_name, args.int(0));
    let call =
        format!("{name}.backref(ref={number}, fallback=\"{}\")", brief(args.str(1).unwrap_or_default()));
    if args.str(1).is_none() {
        return Err(failure(format!("{call}: fallback is undefined")));
    }
    if pattern.options.is(Flag::NeverCapture) {
        return Err(failure(format!("{call}: never_capture is true for object {name}")));
    }
    let most = pattern.most_groups();
    match usize::try_from(number) {
        Ok(number) if number <= most => last(ctx, args, number, &call),
        _ => Err(failure(format!("{call}: backref out of range (max {most})"))),
    }
}

fn namedref<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let pattern = args.this::<Pattern>()?;
    let name = args.object_name;
    let Some(fallback) = args.str(1) else {
        return Err(failure(format!("{name}.namedref(): fallback is undefined")));
    };
    let wanted = shown(args.str(0));
    let call = format!("{name}.namedref(name=\"{wanted:.40}\", fallback=\"{}\")", brief(fallback));
    if wanted.is_empty() {
        return Err(failure(format!("{call}: name is empty")));
    }
    if pattern.options.is(Flag::NeverCapture) {
        return Err(failure(format!("{call}: never_capture is true for object {name}")));
    }
    let number = pattern.group_of(&wanted).ok_or_else(|| failure(format!("{call}: no such named group")))?;
    last(ctx, args, number, &call)
}

fn rewrite<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, rewriting: Rewriting) -> CallResult<'a> {
    let call = format!("{}.{}", args.object_name, rewriting.name());
    Texts::read(args, 0, &call)?.rewritten(ctx, args.this::<Pattern>()?, rewriting, &call)
}

fn cost<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.this::<Pattern>()?.cost as i64))
}
