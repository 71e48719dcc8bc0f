//! Module querystring: keeps, removes, sorts and cleans the parameters of URLs.

use std::sync::{Arc, PoisonError, RwLock};

use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectState, ObjectType, Value};

use crate::standard::{GlobFlags, glob_matches};
use crate::support::{CallResult, DONE, Table, copy_if_room, is_match, text, word};

pub(crate) static MODULE: Table = Table {
    name: "querystring",
    functions: &[("clean", clean), ("sort", sort), ("remove", remove)],
    objects: &[ObjectType {
        name: "filter",
        new,
        methods: &[
            ("add_string", add_string),
            ("add_glob", add_glob),
            ("add_regex", add_regex),
            ("apply", apply),
            ("extract", extract),
        ],
    }],
    suspends: &[],
};

enum Criterion {
    Text(Vec<u8>),
    Glob(Vec<u8>),
    /// The regex's index in the program.
    Regex(usize),
}

/// Whether parameters are sorted, and which part of them is compared.
#[derive(Clone, Copy)]
struct Style {
    sort: bool,
    uniq: bool,
    by_name: bool,
}

struct Filter {
    style: Style,
    criteria: RwLock<Vec<Criterion>>,
}

impl Criterion {
    fn matches(&self, ctx: &Ctx<'_>, subject: &[u8]) -> Result<bool, ModuleError> {
        Ok(match self {
            Criterion::Text(text) => subject == text,
            Criterion::Glob(glob) => glob_matches(glob, subject, GlobFlags::default()),
            Criterion::Regex(at) => match ctx.vcl.regex(*at) {
                Some(regex) => is_match(regex, subject, ctx.host.regex_limits())?,
                None => false,
            },
        })
    }
}

fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let style = Style { sort: args.bool(0), uniq: args.bool(1), by_name: word(args, 2) == "name" };
    Ok(Arc::new(Filter { style, criteria: RwLock::default() }))
}

fn add<'a>(args: &Args<'a>, criterion: Criterion) -> CallResult<'a> {
    args.this::<Filter>()?.criteria.write().unwrap_or_else(PoisonError::into_inner).push(criterion);
    DONE
}

fn add_string<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    add(args, Criterion::Text(args.str(0).unwrap_or_default().to_vec()))
}

fn add_glob<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    add(args, Criterion::Glob(args.str(0).unwrap_or_default().to_vec()))
}

fn add_regex<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let regex = args.regex(0)?;
    let at = ctx.vcl.regex_index(regex);
    add(args, Criterion::Regex(at.ok_or("querystring: a regular expression of the program is expected")?))
}

/// Returns the given URL, or the transaction's own.
fn url<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<Option<&'a [u8]>, ModuleError> {
    if args.is_given(0) {
        return Ok(args.str(0));
    }
    let found = ctx.get_str(Var::ReqUrl).or_else(|| ctx.get_str(Var::BereqUrl));
    found.map(Some).ok_or_else(|| "Invalid transaction".into())
}

/// Splits a URL into path and query; an empty query is `None`.
fn split(url: &[u8]) -> (&[u8], Option<&[u8]>) {
    match url.iter().position(|b| *b == b'?') {
        Some(at) => (&url[..at], Some(&url[at + 1..]).filter(|query| !query.is_empty())),
        None => (url, None),
    }
}

/// Returns the remaining parameters in their order, joined. Those without a name are removed.
fn filtered(
    query: &[u8],
    style: Style,
    mut stays: impl FnMut(&[u8]) -> Result<bool, ModuleError>,
) -> Result<Vec<u8>, ModuleError> {
    let mut kept: Vec<(&[u8], &[u8])> = Vec::new();
    for param in query.split(|b| *b == b'&') {
        let equals = param.iter().position(|b| *b == b'=');
        let subject = match equals {
            Some(0) => continue,
            Some(at) if style.by_name => &param[..at],
            _ => param,
        };
        if subject.is_empty() || !stays(subject)? {
            continue;
        }
        kept.push((subject, param));
    }
    if style.sort {
        kept.sort_by_key(|param| param.0);
    }
    if style.uniq {
        // The first of equal neighbours stays.
        kept.dedup_by_key(|param| param.0);
    }
    Ok(kept.iter().map(|(_, param)| *param).collect::<Vec<_>>().join(&b'&'))
}

fn run(ctx: &Ctx<'_>, query: &[u8], filter: &Filter, keep: bool) -> Result<Vec<u8>, ModuleError> {
    let criteria = filter.criteria.read().unwrap_or_else(PoisonError::into_inner);
    filtered(query, filter.style, |subject| {
        for criterion in &*criteria {
            if criterion.matches(ctx, subject)? {
                return Ok(keep);
            }
        }
        Ok(criteria.is_empty() || !keep)
    })
}

/// Returns the URL with another query.
fn rebuilt(path: &[u8], query: &[u8]) -> Vec<u8> {
    if query.is_empty() { path.to_vec() } else { [path, b"?", query].concat() }
}

/// Returns the changed URL, or the original one if the workspace has no space for it.
fn answer<'a>(ctx: &mut Ctx<'a>, url: &'a [u8], changed: &[u8]) -> CallResult<'a> {
    let copied = if changed == url { None } else { copy_if_room(ctx, changed) };
    Ok(Value::Str(copied.or(Some(url))))
}

fn apply<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(url) = url(ctx, args)? else { return Ok(Value::Str(None)) };
    let (path, query) = split(url);
    let query = match (query, args.this::<Filter>()) {
        (None, _) => Vec::new(),
        (Some(query), Ok(filter)) => run(ctx, query, filter, word(args, 1) == "keep")?,
        (Some(query), Err(_)) => query.to_vec(),
    };
    answer(ctx, url, &rebuilt(path, &query))
}

fn extract<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let filter = args.this::<Filter>()?;
    let Some(query) = url(ctx, args)?.and_then(|url| split(url).1) else { return Ok(Value::Str(None)) };
    let kept = run(ctx, query, filter, word(args, 1) == "keep")?;
    text(ctx, &kept)
}

fn restyled<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, style: Style) -> CallResult<'a> {
    let Some(url) = url(ctx, args)? else { return Ok(Value::Str(None)) };
    let (path, query) = split(url);
    let query = query.map_or(Ok(Vec::new()), |query| filtered(query, style, |_| Ok(true)))?;
    answer(ctx, url, &rebuilt(path, &query))
}

fn clean<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    restyled(ctx, args, Style { sort: false, uniq: false, by_name: false })
}

fn sort<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    restyled(ctx, args, Style { sort: true, uniq: args.bool(1), by_name: false })
}

fn remove<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(url(ctx, args)?.map(|url| split(url).0)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use lacquer_sources::random::Random;

    use super::*;

    /// Inserts each parameter at its place, the slow way.
    fn inserted(query: &str, style: Style) -> Vec<&str> {
        let mut kept: Vec<(&str, &str)> = Vec::new();
        for param in query.split('&').filter(|param| !param.is_empty() && !param.starts_with('=')) {
            let name = param.split_once('=').map_or(param, |(name, _)| name);
            let subject = if style.by_name { name } else { param };
            let at =
                if style.sort { kept.partition_point(|(other, _)| *other <= subject) } else { kept.len() };
            if !(style.uniq && at > 0 && kept[at - 1].0 == subject) {
                kept.insert(at, (subject, param));
            }
        }
        kept.into_iter().map(|(_, param)| param).collect()
    }

    #[test]
    fn parameters_are_cleaned_sorted_and_deduplicated() {
        let run = |query: &str, sort, uniq, by_name| {
            let out = filtered(query.as_bytes(), Style { sort, uniq, by_name }, |_| Ok(true));
            String::from_utf8(out.unwrap()).unwrap()
        };
        assert_eq!(
            run("next=empty&&previous=empty&=no&name", false, false, false),
            "next=empty&previous=empty&name"
        );
        assert_eq!(run("b=2&a=2&a=1&b=1", true, false, false), "a=1&a=2&b=1&b=2");
        assert_eq!(run("b=2&a=2&a=1&b=1", true, false, true), "a=2&a=1&b=2&b=1");
        assert_eq!(run("a=1&b&a=1&a=2", true, true, false), "a=1&a=2&b");
        assert_eq!(run("a=1&a=2&b&a=3", false, true, true), "a=1&b&a=3");
        assert_eq!(split(b"/p?"), (&b"/p"[..], None));
    }

    /// Slow insertion is the model.
    #[test]
    fn random_queries_are_sorted_as_by_insertion() {
        let mut random = Random::new(1);
        for round in 0..4000 {
            let style = Style { sort: round & 1 != 0, uniq: round & 2 != 0, by_name: round & 4 != 0 };
            let length = random.below(30);
            let query: String = (0..length).map(|_| char::from(b"ab=&"[random.below(4) as usize])).collect();
            let found = filtered(query.as_bytes(), style, |_| Ok(true)).expect("nothing fails");
            assert_eq!(String::from_utf8_lossy(&found), inserted(&query, style).join("&"), "{query}");
        }
    }

    #[test]
    fn many_parameters_are_sorted_in_little_time() {
        let query = "b&".repeat(100_000) + &"a&".repeat(100_000);
        let start = Instant::now();
        for uniq in [false, true] {
            let sorted = filtered(query.as_bytes(), Style { sort: true, uniq, by_name: false }, |_| Ok(true));
            let length = if uniq { "a&b".len() } else { query.len() - 1 };
            assert_eq!(sorted.map(|sorted| sorted.len()).ok(), Some(length));
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
