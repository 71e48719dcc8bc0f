//! The functions of the module, whose patterns are known only at run time. Each thread keeps the small patterns that it
//! compiled last, so that a pattern from a header need not be compiled for each request.

use std::cell::RefCell;
use std::sync::Arc;

use lacquer_vcl_runtime::{Args, Ctx, Func, Value};

use super::options::{Flag, Options};
use super::pattern::Pattern;
use super::rewriting::{Rewriting, Texts, brief, failure, group};
use crate::support::{CallResult, copy_if_room, shown, version};

pub(super) const FUNCTIONS: &[(&str, Func)] = &[
    ("match", matches),
    ("backref", backref),
    ("namedref", namedref),
    ("sub", |ctx, args| rewrite(ctx, args, Rewriting::Sub)),
    ("suball", |ctx, args| rewrite(ctx, args, Rewriting::Suball)),
    ("extract", |ctx, args| rewrite(ctx, args, Rewriting::Extract)),
    ("cost", cost),
    ("quotemeta", quotemeta),
    ("version", version),
];

/// The number of groups up to which a pattern is compiled on the caller's stack. The compiler is recursive: each group within
/// another may use 5 kB, and VCL that can wait has a small stack.
const GROUPS_AT_ONCE: usize = 16;
/// The stack size in bytes of the thread that compiles others, sufficient for the deepest nesting that the parser accepts.
const STACK: usize = 2 << 20;

/// Limits on the patterns that a thread keeps: their number, and the bytes of each when compiled.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 256 << 10;

struct Kept {
    text: Vec<u8>,
    pattern: Arc<Pattern>,
}

thread_local! {
    /// The last used pattern is first.
    static PATTERNS: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// Compiles a pattern, on a thread with a large stack if it may be deep.
fn compile(text: &[u8], options: Options) -> Result<Pattern, String> {
    if text.split(|b| *b == b'(').nth(GROUPS_AT_ONCE + 1).is_none() {
        return Pattern::new(text, options);
    }
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("vmod-re2".to_owned()).stack_size(STACK);
        let thread = builder.spawn_scoped(scope, || Pattern::new(text, options));
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the compiler failed".to_owned()))
    })
}

fn compiled(text: &[u8], options: Options) -> Result<Arc<Pattern>, String> {
    PATTERNS.with_borrow_mut(|kept| {
        let same = |kept: &Kept| kept.pattern.options == options && kept.text == text;
        if let Some(at) = kept.iter().position(same) {
            kept[..=at].rotate_right(1);
            return Ok(kept[0].pattern.clone());
        }
        let pattern = Arc::new(compile(text, options)?);
        if text.len() + pattern.memory() <= KEPT_BYTES {
            kept.truncate(KEPT - 1);
            kept.insert(0, Kept { text: text.to_vec(), pattern: pattern.clone() });
        }
        Ok(pattern)
    })
}

/// The last call of `re2.match()` in a task, if it matched.
#[derive(Default)]
struct Last(Option<(Arc<Pattern>, Vec<u8>)>);

fn matches<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let subject = args.str(1).unwrap_or_default();
    let call =
        |pattern: &[u8]| format!("re2.match(pattern=\"{}\", text=\"{}\")", brief(pattern), brief(subject));
    ctx.task::<Last>(0).0 = None;
    let text =
        args.str(0).ok_or_else(|| failure(format!("{}: pattern is undefined", call(b"<undefined>"))))?;
    let pattern = compiled(text, Options::of_pattern(args, 2));
    let pattern = pattern.map_err(|error| failure(format!("{}: Cannot compile: {error}", call(text))))?;
    let matches = pattern.is_match(subject);
    if matches {
        ctx.task::<Last>(0).0 = Some((pattern, subject.to_vec()));
    }
    Ok(Value::Bool(matches))
}

/// Returns the group of the last match whose number `find` returns.
fn last<'a>(
    ctx: &mut Ctx<'a>,
    fallback: &'a [u8],
    call: &str,
    find: impl FnOnce(&Pattern) -> Result<usize, String>,
) -> CallResult<'a> {
    let state = ctx.task::<Last>(0).0.take();
    let (pattern, subject) =
        state.ok_or_else(|| failure(format!("{call}: called without previous match")))?;
    let found = if pattern.options.is(Flag::NeverCapture) {
        Err(failure(format!("{call}: never_capture was true in previous match")))
    } else {
        match find(&pattern) {
            Ok(number) => group(ctx, (&pattern, &subject), number, fallback, call),
            Err(why) => Err(failure(format!("{call}: {why}"))),
        }
    };
    ctx.task::<Last>(0).0 = Some((pattern, subject));
    found
}

fn backref<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let number = args.int(0);
    let call = format!("re2.backref(ref={number}, fallback=\"{}\")", brief(args.str(1).unwrap_or_default()));
    let fallback = args.str(1).ok_or_else(|| failure(format!("{call}: fallback is undefined")))?;
    last(ctx, fallback, &call, |pattern| {
        let most = pattern.most_groups();
        let number = usize::try_from(number).ok().filter(|n| *n <= most);
        number.ok_or_else(|| format!("backref out of range (max {most})"))
    })
}

fn namedref<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let fallback = args.str(1).ok_or_else(|| failure("re2.namedref(): fallback is undefined"))?;
    let wanted = shown(args.str(0));
    let call = format!("re2.namedref(name=\"{wanted:.40}\", fallback=\"{}\")", brief(fallback));
    if wanted.is_empty() {
        return Err(failure(format!("{call}: name is empty")));
    }
    last(ctx, fallback, &call, |pattern| {
        pattern.group_of(&wanted).ok_or_else(|| "no such named group".to_owned())
    })
}

fn rewrite<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, rewriting: Rewriting) -> CallResult<'a> {
    let call = format!("re2.{}", rewriting.name());
    let Some(text) = args.str(0) else {
        return Err(failure(format!("{call}(pattern=<undefined>): pattern is undefined")));
    };
    let texts = Texts::read(args, 1, &call)?;
    let shown = brief(text);
    let pattern = compiled(text, Options::of_pattern(args, 4));
    let pattern = pattern.map_err(|error| {
        failure(format!("{call}(pattern=\"{shown}\"): Cannot compile '{shown}': {error}"))
    })?;
    texts.rewritten(ctx, &pattern, rewriting, &call)
}

fn cost<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let text = args.str(0).unwrap_or_default();
    let pattern = compiled(text, Options::of_pattern(args, 1));
    let pattern = pattern
        .map_err(|error| failure(format!("re2.cost(\"{}\"): Cannot compile: {error}", brief(text))))?;
    Ok(Value::Int(pattern.cost as i64))
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() * 2);
    for byte in text {
        match byte {
            0 => out.extend_from_slice(b"\\x00"),
            b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | 0x80.. => out.push(*byte),
            byte => out.extend_from_slice(&[b'\\', *byte]),
        }
    }
    out
}

fn quotemeta<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let text = args.str(0).unwrap_or_default();
    let copied = copy_if_room(ctx, &quoted(text)).ok_or_else(|| {
        failure(format!(
            "re2.quotemeta(\"{}\"): reserving workspace for the quoted string, out of space",
            brief(text)
        ))
    })?;
    Ok(Value::Str(Some(copied)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_match_only_themselves() {
        for text in [&b"a.b*c[d]{2}\\"[..], b"\x00\n\xff", b"<>&&--~~#", b"a_B9"] {
            let pattern = Pattern::new(&quoted(text), Options::default()).expect("valid");
            let found = pattern.groups(text, 0).and_then(|groups| groups.get_group(0));
            assert_eq!(found.map(|span| span.range()), Some(0..text.len()), "{text:?}");
        }
    }

    #[test]
    fn a_thread_keeps_few_patterns() {
        let first = compiled(b"kept", Options::default()).expect("valid");
        assert!(Arc::ptr_eq(&first, &compiled(b"kept", Options::default()).expect("valid")));
        for i in 0..100 {
            compiled(format!("kept{i}").as_bytes(), Options::default()).expect("valid");
        }
        assert!(PATTERNS.with_borrow(Vec::len) <= KEPT);
        assert!(!Arc::ptr_eq(&first, &compiled(b"kept", Options::default()).expect("valid")));
    }
}
