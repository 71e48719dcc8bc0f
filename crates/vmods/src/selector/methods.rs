//! The methods of a set: adding strings, matching, and reading the values of the chosen element.

use std::sync::PoisonError;

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{Args, Ctx, Func, ModuleError, Regex, Value};

use super::set::{Elements, Member, Set, failure};
use crate::support::{self, CallResult, DONE, copy_if_room, log, shown, word};

pub(super) const METHODS: &[(&str, Func)] = &[
    ("add", add),
    ("compile", compile),
    ("create_stats", create_stats),
    ("match", matches),
    ("hasprefix", hasprefix),
    ("nmatches", nmatches),
    ("matched", matched),
    ("which", which),
    ("element", element),
    ("string", string),
    ("backend", backend),
    ("integer", integer),
    ("bool", boolean),
    ("re_match", re_match),
    ("sub", sub),
    ("subroutine", subroutine),
    ("check_call", check_call),
];

/// The elements that a set found last in a task, from the longest to the shortest; `None` before its first match.
#[derive(Default)]
struct Found(Option<Matches>);

#[derive(Clone)]
struct Matches {
    numbers: Vec<u32>,
    /// Whether the longest one is the whole text.
    exact: bool,
}

fn key(set: &Set) -> usize {
    std::ptr::from_ref(set) as usize
}

fn add<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let name = &set.name;
    if ctx.method() != Method::Init {
        return Err(failure(format!("{name}.add() may only be called in vcl_init")));
    }
    if set.finished.get().is_some() {
        return Err(failure(format!("{name}.add(): set was already compiled")));
    }
    let text = args.str(0).ok_or_else(|| failure(format!("{name}.add(): string to be added is NULL")))?;
    let regex = if args.is_given(2) {
        let regex: &Regex = args.regex(2)?;
        let at = ctx.vcl.regex_index(regex);
        Some(at.ok_or_else(|| {
            failure(format!("{name}.add(): a regular expression of the program is expected"))
        })?)
    } else {
        None
    };
    let member = Member {
        text: text.to_vec(),
        string: args.str(1).map(<[u8]>::to_vec),
        regex,
        backend: args.is_given(3).then(|| args.backend(3)),
        integer: args.is_given(4).then(|| args.int(4)),
        boolean: args.is_given(5).then(|| args.bool(5)),
        sub: args.sub(6),
    };
    set.added.lock().unwrap_or_else(PoisonError::into_inner).push(member);
    DONE
}

fn compile<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    if ctx.method() != Method::Init {
        return Err(failure(format!("{}.compile() may only be called in vcl_init", set.name)));
    }
    if set.finished.get().is_some() {
        return Err(failure(format!("{}.compile(): set was already compiled", set.name)));
    }
    set.finish(".compile()")?;
    DONE
}

fn create_stats<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    if ctx.method() != Method::Init {
        return Err(failure(format!("{}.create_stats() may only be called in vcl_init", args.object_name)));
    }
    args.this::<Set>()?.create_stats(ctx.vcl)?;
    DONE
}

/// Returns the set's elements. Fails if there are none.
fn elements<'a>(set: &'a Set, call: &str) -> Result<&'a Elements, ModuleError> {
    let name = &set.name;
    match set.finished.get() {
        None => Err(failure(format!("{name}.{call}: set was not compiled"))),
        Some(elements) if elements.members.is_empty() => {
            Err(failure(format!("{name}.{call}: no entries were added")))
        }
        Some(elements) => Ok(elements),
    }
}

/// Searches for the text, and records what is found for the methods that refer to it.
fn search<'a>(
    ctx: &mut Ctx<'a>,
    args: &Args<'a>,
    call: &str,
    find: impl FnOnce(&Elements, &[u8]) -> Matches,
) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let elements = elements(set, call)?;
    let found = match args.str(0) {
        Some(text) => find(elements, text),
        None => {
            log(ctx, Tag::Notice, format!("vmod_selector: {}.{call}: subject string is NULL", set.name));
            Matches { numbers: Vec::new(), exact: false }
        }
    };
    let any = !found.numbers.is_empty();
    ctx.task::<Found>(key(set)).0 = Some(found);
    Ok(Value::Bool(any))
}

fn exactly(elements: &Elements, text: &[u8]) -> Matches {
    let numbers: Vec<u32> = elements.strings.find(text).into_iter().collect();
    Matches { exact: !numbers.is_empty(), numbers }
}

fn matches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    search(ctx, args, "match()", exactly)
}

fn hasprefix<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    search(ctx, args, "hasprefix()", |elements, text| {
        let numbers = elements.strings.prefixes(text);
        let longest = numbers.first().and_then(|number| elements.members.get(*number as usize));
        Matches { exact: longest.is_some_and(|member| member.text.len() == text.len()), numbers }
    })
}

/// Returns the elements that were found last. Fails without a search before.
fn last(ctx: &mut Ctx<'_>, set: &Set, method: &str) -> Result<Matches, String> {
    let found = ctx.task::<Found>(key(set)).0.clone();
    found.ok_or_else(|| format!("{}.{method}() called without prior match", set.name))
}

fn nmatches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = last(ctx, args.this::<Set>()?, "nmatches").map_err(failure)?;
    Ok(Value::Int(found.numbers.len() as i64))
}

impl Matches {
    /// Returns the number that `select` names among the found elements, or the reason why it names none.
    fn select(&self, select: &str) -> Result<u32, String> {
        let none = || "previous match was unsuccessful".to_owned();
        match (self.numbers.as_slice(), select) {
            ([], _) => Err(none()),
            ([first, ..], "EXACT") if self.exact => Ok(*first),
            (_, "EXACT") => Err("no element matched exactly".to_owned()),
            ([longest, ..], "LONGEST") => Ok(*longest),
            ([.., shortest], "SHORTEST") => Ok(*shortest),
            (all, "FIRST") => all.iter().min().copied().ok_or_else(none),
            (all, "LAST") => all.iter().max().copied().ok_or_else(none),
            ([only], _) => Ok(*only),
            (several, _) => Err(format!("{} elements were matched", several.len())),
        }
    }
}

/// Returns the number, from 0, of the element that `n`, `element` or `select` chooses.
fn choose(
    ctx: &mut Ctx<'_>,
    set: &Set,
    (n, element): (i64, Option<&[u8]>),
    select: &str,
    method: &str,
) -> Result<u32, String> {
    let name = &set.name;
    let elements = set.finished.get().ok_or_else(|| format!("{name}.{method}(): set was not compiled"))?;
    if n > 0 {
        let count = elements.members.len();
        let found = u32::try_from(n).ok().filter(|n| *n as usize <= count);
        return found.map(|n| n - 1).ok_or_else(|| format!("{name}.{method}({n}): set has {count} elements"));
    }
    if let Some(element) = element {
        let found = exactly(elements, element);
        let number = found.numbers.first().copied();
        let number = number.ok_or_else(|| {
            format!("{name}.{method}(element=\"{}\"): no such element", shown(Some(element)))
        })?;
        ctx.task::<Found>(key(set)).0 = Some(found);
        return Ok(number);
    }
    let found = last(ctx, set, method)?;
    found.select(select).map_err(|why| format!("{name}.{method}(select={select}): {why}"))
}

/// Returns the element that the arguments `n`, `element` and `select`, from `at` on, choose.
fn member<'a>(
    ctx: &mut Ctx<'_>,
    args: &Args<'a>,
    at: usize,
    method: &str,
) -> Result<(&'a Member, u32), ModuleError> {
    let set = args.this::<Set>()?;
    let chosen = (args.int(at), args.str(at + 1));
    let number = choose(ctx, set, chosen, word(args, at + 2), method).map_err(failure)?;
    let member = set.finished.get().and_then(|elements| elements.members.get(number as usize));
    Ok((member.ok_or_else(|| failure(format!("{}.{method}(): no such element", set.name)))?, number + 1))
}

/// Returns a value of the chosen element. Fails if it has none of this kind.
fn value<'a, T>(
    ctx: &mut Ctx<'_>,
    args: &Args<'a>,
    at: usize,
    (method, kind): (&str, &str),
    read: impl FnOnce(&'a Member) -> Option<T>,
) -> Result<T, ModuleError> {
    let (member, number) = member(ctx, args, at, method)?;
    let missing =
        || failure(format!("{}.{method}(): {kind} not added for element {number}", args.object_name));
    read(member).ok_or_else(missing)
}

fn matched<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let found = last(ctx, set, "matched").map_err(failure)?;
    let Some(elements) = set.finished.get() else { return Ok(Value::Bool(false)) };
    let count = elements.members.len();
    let n = args.int(0);
    let wanted = match args.str(1) {
        _ if n > 0 => match u32::try_from(n).ok().filter(|n| *n as usize <= count) {
            Some(n) => Some(n - 1),
            None => return Err(failure(format!("{}.matched({n}) out of range ({count} members)", set.name))),
        },
        Some(element) => elements.strings.find(element),
        None => found.select(word(args, 2)).ok(),
    };
    Ok(Value::Bool(wanted.is_some_and(|number| found.numbers.contains(&number))))
}

fn which<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    if args.str(1).is_none() && last(ctx, set, "which").map_err(failure)?.numbers.is_empty() {
        return Ok(Value::Int(0));
    }
    let number = choose(ctx, set, (0, args.str(1)), word(args, 0), "which").map_err(failure)?;
    Ok(Value::Int(i64::from(number) + 1))
}

fn element<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let set = args.this::<Set>()?;
    let number = choose(ctx, set, (args.int(0), None), word(args, 1), "element").map_err(failure)?;
    let member = set.finished.get().and_then(|elements| elements.members.get(number as usize));
    Ok(Value::Str(member.map(|member| member.text.as_slice())))
}

fn string<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = value(ctx, args, 0, ("string", "string"), |member| member.string.as_deref())?;
    Ok(Value::Str(Some(found)))
}

fn backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(value(ctx, args, 0, ("backend", "backend"), |member| member.backend)?))
}

fn integer<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(value(ctx, args, 0, ("integer", "integer"), |member| member.integer)?))
}

fn boolean<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(value(ctx, args, 0, ("bool", "boolean"), |member| member.boolean)?))
}

/// Returns the regular expression of the chosen element.
fn regex<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, at: usize, method: &str) -> Result<&'a Regex, ModuleError> {
    let index = value(ctx, args, at, (method, "regex"), |member| member.regex)?;
    let vcl = ctx.vcl;
    vcl.regex(index).ok_or_else(|| failure(format!("{}.{method}(): no such regex", args.object_name)))
}

fn re_match<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let regex = regex(ctx, args, 1, "re_match")?;
    let limits = ctx.host.regex_limits();
    match regex.is_match(args.str(0).unwrap_or_default(), limits) {
        Ok(matches) => Ok(Value::Bool(matches)),
        Err(error) => {
            log(ctx, Tag::VCL_Error, format!("vmod selector: {}.re_match(): {error}", args.object_name));
            Ok(Value::Bool(false))
        }
    }
}

fn sub<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let regex = regex(ctx, args, 3, "sub")?;
    let limits = ctx.host.regex_limits();
    let text = args.str(0).unwrap_or_default();
    let mut changed = Vec::new();
    match regex.substitute(text, args.str(1).unwrap_or_default(), args.bool(2), limits, &mut changed) {
        Ok(true) => {
            let space = || failure(format!("{}.sub(): out of workspace", args.object_name));
            Ok(Value::Str(Some(copy_if_room(ctx, &changed).ok_or_else(space)?)))
        }
        Ok(false) => Ok(Value::Str(Some(text))),
        Err(error) => {
            log(ctx, Tag::VCL_Error, format!("vmod selector: {}.sub(): {error}", args.object_name));
            Ok(Value::Str(Some(text)))
        }
    }
}

fn subroutine<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Sub(Some(value(ctx, args, 0, ("subroutine", "subroutine"), |member| member.sub)?)))
}

fn check_call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let sub = value(ctx, args, 0, ("check_call", "subroutine"), |member| member.sub);
    support::check_call(ctx, args, "selector", sub)
}
