//! The object `set`: many patterns, each with values that are read after a match.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{
    Args, BackendId, Ctx, HeaderEdit, Instance, ModuleError, ObjectState, ObjectType, Value,
};
use regex_syntax::hir::Hir;

use super::multi::{Anchor, Matcher};
use super::options::{Flag, Options};
use super::pattern::{Pattern, parse};
use super::rewriting::{Rewriting, Texts, brief, failure};
use crate::support::{self, CallResult, DONE, word};

pub(super) const TYPE: ObjectType = ObjectType {
    name: "set",
    new,
    methods: &[
        ("add", add),
        ("compile", compile),
        ("match", matches),
        ("matched", matched),
        ("nmatches", nmatches),
        ("which", which),
        ("string", string),
        ("backend", backend),
        ("integer", integer),
        ("sub", |ctx, args| rewrite(ctx, args, Rewriting::Sub)),
        ("suball", |ctx, args| rewrite(ctx, args, Rewriting::Suball)),
        ("extract", |ctx, args| rewrite(ctx, args, Rewriting::Extract)),
        ("subroutine", subroutine),
        ("check_call", check_call),
        ("saved", saved),
        ("hdr_filter", hdr_filter),
    ],
};

struct Set {
    name: String,
    options: Options,
    anchor: Anchor,
    added: Mutex<Added>,
    compiled: OnceLock<Compiled>,
}

/// The patterns until the set is compiled.
#[derive(Default)]
struct Added {
    patterns: Vec<Hir>,
    members: Vec<Member>,
}

struct Compiled {
    matcher: Matcher,
    members: Vec<Member>,
}

/// The values of a pattern.
#[derive(Default)]
struct Member {
    string: Option<Vec<u8>>,
    backend: Option<BackendId>,
    integer: Option<i64>,
    sub: Option<u32>,
    regex: Option<Pattern>,
}

/// The numbers, from 0, that a set matched last in a task; `None` before its first match.
#[derive(Default)]
struct Matched(Option<Vec<u32>>);

fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let anchor = match word(args, 0) {
        "start" => Anchor::Start,
        "both" => Anchor::Both,
        _ => Anchor::None,
    };
    let options = Options::of_set(args, 1);
    let name = args.object_name.to_owned();
    Ok(Arc::new(Set { name, options, anchor, added: Mutex::default(), compiled: OnceLock::new() }))
}

impl Set {
    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn compile(&self, call: &str) -> Result<(), ModuleError> {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if added.patterns.is_empty() {
            return Err(failure(format!("{}{call}: no patterns were added", self.name)));
        }
        let Added { patterns, members } = std::mem::take(&mut *added);
        let matcher = Matcher::new(&patterns, self.options.max_mem)
            .map_err(|error| failure(format!("{}{call}: {error}", self.name)))?;
        let _ = self.compiled.set(Compiled { matcher, members });
        Ok(())
    }

    fn compiled(&self, call: &str) -> Result<&Compiled, ModuleError> {
        let name = &self.name;
        self.compiled.get().ok_or_else(|| failure(format!("{name}.{call}: {name} was not compiled")))
    }
}

/// Compiles the sets of a program at the end of its vcl_init.
pub(super) fn compile_all(vcl: &Instance) -> Result<(), ModuleError> {
    let sets = vcl.objects.iter().filter_map(|state| state.get()?.downcast_ref::<Set>());
    for set in sets.filter(|set| set.compiled.get().is_none()) {
        set.compile("")?;
    }
    Ok(())
}

fn compile<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let name = &set.name;
    if ctx.method() != Method::Init {
        return Err(failure(format!("{name}.compile(): .compile() may only be called in vcl_init")));
    }
    if set.compiled.get().is_some() {
        return Err(failure(format!("{name}.compile(): {name} has already been compiled")));
    }
    set.compile(".compile()")?;
    DONE
}

fn add<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let text = args.str(0).unwrap_or_default();
    let fail = |why: &str| Err(failure(format!("{}.add(\"{}\"): {why}", set.name, brief(text))));
    if ctx.method() != Method::Init {
        return fail(".add() may only be called in vcl_init");
    }
    if set.compiled.get().is_some() {
        return fail(&format!("{} has already been compiled", set.name));
    }
    let invalid = |error: String| format!("Cannot compile '{}': {error}", brief(text));
    let hir = match parse(text, set.options) {
        Ok(hir) => set.anchor.apply(hir),
        Err(error) => return fail(&invalid(error)),
    };
    let mut member = Member {
        string: args.str(1).map(<[u8]>::to_vec),
        backend: args.is_given(2).then(|| args.backend(2)),
        integer: args.is_given(5).then(|| args.int(5)),
        sub: args.sub(6),
        regex: None,
    };
    if args.bool(3) {
        let options = set.options.with(Flag::NeverCapture, args.bool(4));
        let saved = parse(text, options).and_then(|hir| Pattern::of(&set.anchor.apply(hir), options));
        match saved {
            Ok(saved) => member.regex = Some(saved),
            Err(error) => return fail(&invalid(error)),
        }
    }
    let mut added = set.added.lock().unwrap_or_else(PoisonError::into_inner);
    added.patterns.push(hir);
    added.members.push(member);
    DONE
}

fn matches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let subject = args.str(0).unwrap_or_default();
    let found = match set.compiled.get() {
        Some(compiled) => compiled.matcher.matches(subject),
        None => {
            let (name, shown) = (&set.name, brief(subject));
            return Err(failure(format!("{name}.match(\"{shown}\"): {name} was not compiled")));
        }
    };
    let any = !found.is_empty();
    ctx.task::<Matched>(set.key()).0 = Some(found);
    Ok(Value::Bool(any))
}

/// Returns the numbers of the last match. Fails without one.
fn last<'c>(ctx: &'c mut Ctx<'_>, set: &Set, method: &str) -> Result<&'c [u32], String> {
    let found = ctx.task::<Matched>(set.key()).0.as_deref();
    found.ok_or_else(|| format!("{}.{method}() called without prior match", set.name))
}

fn matched<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let count = set.compiled("matched()")?.members.len();
    let found = last(ctx, set, "matched").map_err(failure)?;
    let number = usize::try_from(args.int(0))
        .ok()
        .filter(|n| (1..=count).contains(n))
        .ok_or_else(|| failure(format!("{}.matched({}): set has {count} patterns", set.name, args.int(0))))?;
    Ok(Value::Bool(found.contains(&(number as u32 - 1))))
}

fn nmatches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = last(ctx, args.this::<Set>()?, "nmatches").map_err(failure)?;
    Ok(Value::Int(found.len() as i64))
}

/// Returns the number, from 0, of the pattern that `n` or `select` names.
fn select(ctx: &mut Ctx<'_>, set: &Set, n: i64, select: &str, method: &str) -> Result<usize, String> {
    let call = format!("{}.{method}({n})", set.name);
    let count = set.compiled.get().map_or(0, |compiled| compiled.members.len());
    if n > 0 {
        let found = usize::try_from(n).ok().filter(|n| *n <= count);
        return found.map(|n| n - 1).ok_or_else(|| format!("{call}: set has {count} patterns"));
    }
    let found = last(ctx, set, method)?;
    let chosen = match (found, select) {
        ([], _) => return Err(format!("{call}: previous match was unsuccessful")),
        ([only], _) => *only,
        ([first, ..], "FIRST") => *first,
        ([.., last], "LAST") => *last,
        (several, _) => return Err(format!("{call}: {} successful matches", several.len())),
    };
    Ok(chosen as usize)
}

/// Returns the pattern that the arguments from `at` on select, and its number from 1.
fn member<'a>(
    ctx: &mut Ctx<'_>,
    args: &Args<'a>,
    at: usize,
    method: &str,
) -> Result<(&'a Member, usize), ModuleError> {
    let set = args.this::<Set>()?;
    let number = select(ctx, set, args.int(at), word(args, at + 1), method).map_err(failure)?;
    let member = set.compiled(&format!("{method}()"))?.members.get(number);
    Ok((member.ok_or_else(|| failure(format!("{}.{method}(): no such pattern", set.name)))?, number + 1))
}

/// Returns a value of the selected pattern. Fails if it has none of this kind.
fn value<'a, T>(
    ctx: &mut Ctx<'_>,
    args: &Args<'a>,
    at: usize,
    method: &str,
    read: impl FnOnce(&'a Member) -> Option<T>,
) -> Result<T, ModuleError> {
    let (member, number) = member(ctx, args, at, method)?;
    read(member)
        .ok_or_else(|| failure(format!("{}.{method}(): Pattern {number} was not saved", args.object_name)))
}

fn which<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = select(ctx, args.this::<Set>()?, 0, word(args, 0), "which").map_err(failure)?;
    Ok(Value::Int(found as i64 + 1))
}

fn string<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(Some(value(ctx, args, 0, "string", |member| member.string.as_deref())?)))
}

fn backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(value(ctx, args, 0, "backend", |member| member.backend)?))
}

fn integer<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(value(ctx, args, 0, "integer", |member| member.integer)?))
}

fn rewrite<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, rewriting: Rewriting) -> CallResult<'a> {
    let pattern = value(ctx, args, 3, rewriting.name(), |member| member.regex.as_ref())?;
    let call = format!("{}.{}", args.object_name, rewriting.name());
    Texts::read(args, 0, &call)?.rewritten(ctx, pattern, rewriting, &call)
}

fn subroutine<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Sub(Some(value(ctx, args, 0, "subroutine", |member| member.sub)?)))
}

fn check_call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let sub = value(ctx, args, 0, "check_call", |member| member.sub);
    support::check_call(ctx, args, "re2", sub)
}

fn saved<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (member, _) = member(ctx, args, 1, "saved")?;
    Ok(Value::Bool(match word(args, 0) {
        "STR" => member.string.is_some(),
        "BE" => member.backend.is_some(),
        "INT" => member.integer.is_some(),
        "SUB" => member.sub.is_some(),
        _ => member.regex.is_some(),
    }))
}

fn hdr_filter<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let matcher = &args.this::<Set>()?.compiled("hdr_filter()")?.matcher;
    let keep = args.bool(1);
    ctx.host.edit_headers(args.http(0)?, &mut |line| {
        if matcher.matches(line).is_empty() == keep { HeaderEdit::Remove } else { HeaderEdit::Keep }
    })?;
    DONE
}
