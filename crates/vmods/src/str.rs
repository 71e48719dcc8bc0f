//! Module str: parts and properties of texts. Positions count bytes.

use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::{CallResult, Table, text};

pub(crate) static MODULE: Table = Table {
    name: "str",
    functions: &[
        ("count", count),
        ("startswith", startswith),
        ("endswith", endswith),
        ("contains", contains),
        ("take", take),
        ("reverse", reverse),
        ("split", split),
        ("token_intersect", token_intersect),
    ],
    objects: &[],
    suspends: &[],
};

fn count<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.str(0).map_or(-1, |s| s.len() as i64)))
}

fn startswith<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(matches!((args.str(0), args.str(1)), (Some(a), Some(b)) if a.starts_with(b))))
}

fn endswith<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(matches!((args.str(0), args.str(1)), (Some(a), Some(b)) if a.ends_with(b))))
}

fn contains<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (Some(hay), Some(needle)) = (args.str(0), args.str(1)) else { return Ok(Value::Bool(false)) };
    Ok(Value::Bool(needle.is_empty() || hay.windows(needle.len()).any(|w| w == needle)))
}

fn take<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(args.str(0).map(|s| part(s, args.int(1), args.int(2)))))
}

/// Returns `n` bytes from `offset`, which counts from the end if it is negative. A negative `n` returns the bytes
/// before it (before the end, if the offset is 0).
fn part(s: &[u8], n: i64, offset: i64) -> &[u8] {
    let length = s.len() as i64;
    let from_end = offset < 0 || (offset == 0 && n < 0);
    let at = if from_end { offset.saturating_add(length) } else { offset };
    let (start, end) = if n < 0 { (at.saturating_add(n), at) } else { (at, at.saturating_add(n)) };
    if start > length {
        return b"";
    }
    let (start, end) = (start.clamp(0, length) as usize, end.clamp(0, length) as usize);
    s.get(start..end).unwrap_or_default()
}

fn reverse<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(s) = args.str(0) else { return Ok(Value::Str(None)) };
    let reversed: Vec<u8> = s.iter().rev().copied().collect();
    text(ctx, &reversed)
}

fn split<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (s, n) = (args.str(0).unwrap_or_default(), args.int(1));
    let separators = args.str(2).unwrap_or_default();
    Ok(Value::Str(if separators.is_empty() { None } else { field(s, n, separators) }))
}

fn fields<'s>(s: &'s [u8], separators: &[u8]) -> impl DoubleEndedIterator<Item = &'s [u8]> {
    s.split(|b| separators.contains(b)).filter(|field| !field.is_empty())
}

/// Returns the `n`th field from 1, or from the end if `n` is negative.
fn field<'s>(s: &'s [u8], n: i64, separators: &[u8]) -> Option<&'s [u8]> {
    let place = (n.unsigned_abs() as usize).checked_sub(1)?;
    let mut fields = fields(s, separators);
    if n > 0 { fields.nth(place) } else { fields.nth_back(place) }
}

fn token_intersect<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let separators = if args.is_given(2) { args.str(2).unwrap_or_default() } else { b" ," };
    let (Some(a), Some(b)) = (args.str(0), args.str(1)) else { return Ok(Value::Bool(false)) };
    let shared = fields(a, separators).any(|token| fields(b, separators).any(|other| other == token));
    Ok(Value::Bool(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_from_both_ends() {
        for (n, offset, expected) in [
            (3, 0, "abc"),
            (7, 0, "abcde"),
            (0, 0, ""),
            (-3, 0, "cde"),
            (-7, 0, "abcde"),
            (3, -4, "bcd"),
            (5, -3, "cde"),
            (5, -7, "abc"),
            (5, -15, ""),
            (2, 9, ""),
        ] {
            assert_eq!(part(b"abcde", n, offset), expected.as_bytes(), "{n} {offset}");
        }
    }

    #[test]
    fn texts_are_split_into_fields() {
        let nth = |n| field(b".-.abc..def.-ghi..", n, b".-");
        assert_eq!(
            [nth(3), nth(7), nth(-3), nth(-4), nth(0)],
            [Some(&b"ghi"[..]), None, Some(b"abc"), None, None]
        );
    }
}
