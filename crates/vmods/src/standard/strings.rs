//! std's text functions.

use std::cmp::Ordering;

use lacquer_vcl_runtime::{Args, Ctx, Value};

use super::glob;
use crate::support::{CallResult, free_workspace, overflow, text};

pub fn toupper<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    text(ctx, &args.joined(0).to_ascii_uppercase())
}

pub fn tolower<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    text(ctx, &args.joined(0).to_ascii_lowercase())
}

/// Returns the first text starting at the first occurrence of the second.
pub fn strstr<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (Some(hay), Some(needle)) = (args.str(0), args.str(1)) else { return Ok(Value::Str(None)) };
    let at = if needle.is_empty() { Some(0) } else { hay.windows(needle.len()).position(|w| w == needle) };
    Ok(Value::Str(at.map(|at| &hay[at..])))
}

pub fn fnmatch<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let pattern = args.str(0).ok_or("std.fnmatch(): pattern is NULL")?;
    let subject = args.str(1).ok_or("std.fnmatch(): subject is NULL")?;
    let flags = glob::Flags { pathname: args.bool(2), noescape: args.bool(3), period: args.bool(4) };
    Ok(Value::Bool(glob::matches(pattern, subject, flags)))
}

pub fn querysort<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(url) = args.str(0) else { return Ok(Value::Str(None)) };
    let Some(sorted) = sorted(url, Ord::cmp) else { return Ok(Value::Str(Some(url))) };
    // The workspace that Varnish needs: the copy, and a pointer for either end of each parameter.
    let parameters = url.split(|b| *b == b'&').count();
    let needed = (url.len() + 1).next_multiple_of(8) + (2 * parameters + 2).max(4) * 8;
    if needed > free_workspace(ctx) {
        overflow(ctx);
        return Ok(Value::Str(Some(url)));
    }
    Ok(Value::Str(ctx.try_copy(&sorted).or(Some(url))))
}

/// Returns the URL with its parameters in a stable order and without empty ones, or `None` if there are fewer than two.
pub(crate) fn sorted(url: &[u8], order: impl Fn(&[u8], &[u8]) -> Ordering) -> Option<Vec<u8>> {
    let query = url.iter().position(|b| *b == b'?')? + 1;
    if !url[query..].contains(&b'&') {
        return None;
    }
    let mut params: Vec<&[u8]> = url[query..].split(|b| *b == b'&').filter(|p| !p.is_empty()).collect();
    params.sort_by(|a, b| order(a, b));
    Some([&url[..query], &params.join(&b'&')[..]].concat())
}

#[cfg(test)]
mod tests {
    use super::sorted;

    #[test]
    fn parameters_are_sorted() {
        let sorted = |url: &str| sorted(url.as_bytes(), Ord::cmp).map(|v| String::from_utf8(v).unwrap());
        assert_eq!(sorted("/a?c=3&b=2&a=1").unwrap(), "/a?a=1&b=2&c=3");
        assert_eq!(sorted("/a?&&b&&a&").unwrap(), "/a?a&b");
        assert_eq!(sorted("/a?b"), None);
        assert_eq!(sorted("/a&b"), None);
    }
}
