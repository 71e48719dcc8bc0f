//! Module header: headers that occur several times, and changes to headers by regular expression.

use std::borrow::Cow;

use lacquer_vcl::types::HttpId;
use lacquer_vcl_runtime::regex::RegexError;
use lacquer_vcl_runtime::{
    Args, Ctx, HeaderEdit, HeaderName, ModuleError, NameRef, Regex, RegexLimits, Value,
};

use crate::support::{CallResult, DONE, Table, is_match, text};

pub(crate) static MODULE: Table = Table {
    name: "header",
    functions: &[
        ("append", append),
        ("copy", copy),
        ("dyn", dyn_),
        ("get", get),
        ("remove", remove),
        ("regsub", regsub),
    ],
    objects: &[],
    suspends: &[],
};

/// Maximum length of a name in bytes.
const MAX_NAME: usize = 126;

fn target<'a>(
    ctx: &Ctx<'a>,
    args: &Args<'a>,
    i: usize,
) -> Result<(HttpId, Cow<'a, HeaderName>), ModuleError> {
    let (http, name) = args.header(i)?;
    Ok((http, ctx.named(name).ok_or("header: a header is expected")?))
}

/// Returns the value of a line that belongs to the header. Every line belongs to the empty name, as a whole.
fn value_of<'l>(line: &'l [u8], name: &HeaderName) -> Option<&'l [u8]> {
    if name.lower.is_empty() {
        return Some(line);
    }
    let (found, rest) = line.split_at_checked(name.name.as_bytes().len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name.name.as_bytes()).then(|| value.trim_ascii_start())
}

/// Returns the values of a header that match, or all of them without a regex.
fn matching(
    ctx: &mut Ctx<'_>,
    http: HttpId,
    name: &HeaderName,
    regex: Option<&Regex>,
) -> Result<Vec<Vec<u8>>, ModuleError> {
    let limits = ctx.host.regex_limits();
    let (mut found, mut fault) = (Vec::new(), None);
    ctx.host.edit_headers(http, &mut |line| {
        let value = value_of(line, name).filter(|value| match regex {
            None => true,
            Some(regex) => matches_value(regex, value, limits, &mut fault),
        });
        found.extend(value.map(<[u8]>::to_vec));
        HeaderEdit::Keep
    })?;
    fault.map_or(Ok(found), Err)
}

/// Returns whether a value is not empty and matches. Records a failure, after which nothing matches.
fn matches_value(regex: &Regex, value: &[u8], limits: RegexLimits, fault: &mut Option<ModuleError>) -> bool {
    if value.is_empty() || fault.is_some() {
        return false;
    }
    is_match(regex, value, limits).unwrap_or_else(|error| {
        *fault = Some(error);
        false
    })
}

fn append<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (http, name) = target(ctx, args, 0)?;
    add(ctx, http, &name, &args.joined(1))
}

fn add<'a>(ctx: &mut Ctx<'a>, http: HttpId, name: &HeaderName, value: &[u8]) -> CallResult<'a> {
    if name.lower.is_empty() {
        return Err("header: a line needs a name".into());
    }
    ctx.host.append_header(http, name.name.as_bytes(), value)?;
    DONE
}

fn copy<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (from, from_name) = target(ctx, args, 0)?;
    let (to, to_name) = target(ctx, args, 1)?;
    for value in matching(ctx, from, &from_name, None)? {
        add(ctx, to, &to_name, &value)?;
    }
    DONE
}

fn dyn_<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let name = args.str(1).unwrap_or_default();
    let name = name.split(|&b| b == b':').next().unwrap_or_default();
    if name.len() > MAX_NAME {
        return Err("header.dyn(): the name is too long".into());
    }
    Ok(Value::Header(args.http(0)?, NameRef::Made(ctx.copy(name)?)))
}

fn get<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (http, name) = target(ctx, args, 0)?;
    let found = matching(ctx, http, &name, Some(args.regex(1)?))?;
    found.first().map_or(Ok(Value::Str(None)), |value| text(ctx, value))
}

fn remove<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (http, name) = target(ctx, args, 0)?;
    let (regex, limits) = (args.regex(1)?, ctx.host.regex_limits());
    let mut fault = None;
    ctx.host.edit_headers(http, &mut |line| match value_of(line, &name) {
        Some(value) if matches_value(regex, value, limits, &mut fault) => HeaderEdit::Remove,
        _ => HeaderEdit::Keep,
    })?;
    fault.map_or(DONE, Err)
}

fn regsub<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (regex, limits) = (args.regex(1)?, ctx.host.regex_limits());
    let (replacement, all) = (args.str(2).unwrap_or_default(), args.bool(3));
    let mut fault: Option<ModuleError> = None;
    ctx.host.edit_headers(args.http(0)?, &mut |line| {
        if fault.is_some() {
            return HeaderEdit::Keep;
        }
        let mut changed = Vec::new();
        match regex.substitute(line, replacement, all, limits, &mut changed) {
            Ok(true) if changed != line => HeaderEdit::Replace(changed),
            Ok(_) => HeaderEdit::Keep,
            Err(RegexError(code)) => {
                fault = Some(format!("regsub: Regexp matching returned {code}").into());
                HeaderEdit::Keep
            }
        }
    })?;
    fault.map_or(DONE, Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_lines_ignore_case() {
        let name = HeaderName::new("Foo");
        assert_eq!(value_of(b"foo:  bar", &name), Some(&b"bar"[..]));
        assert_eq!(value_of(b"Foo:", &name), Some(&b""[..]));
        assert_eq!(value_of(b"Foobar: x", &name), None);
        assert_eq!(value_of(b"Fo", &name), None);
    }
}
