//! std's conversions. Each needs exactly one source, and has an optional fallback; without it a failed
//! conversion fails the transaction. Fractions are truncated, never rounded.

use lacquer_http::date;
use lacquer_params::number;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};

use super::address;
use crate::blocking::NAMES;
use crate::support::{CallResult, shown};

/// The largest INT: 15 decimal digits, as in RFC 9651.
const INTEGER_MAX: f64 = 999_999_999_999_999.0;
/// The largest BYTES: the limit of exact integers in a double.
const BYTES_MAX: u64 = (1 << 53) - 1;

/// Fails unless exactly one of the sources is given.
fn one_of(args: &Args<'_>, who: &str, sources: &[usize]) -> Result<(), ModuleError> {
    match sources.iter().filter(|i| args.is_given(**i)).count() {
        1 => Ok(()),
        0 => Err(ModuleError(format!("std.{who}: not enough arguments"))),
        _ => Err(ModuleError(format!("std.{who}: too many arguments"))),
    }
}

/// Returns a STRING argument. Bytes that are not UTF-8 cannot be a number, date or unit either.
fn text<'a>(args: &Args<'a>, i: usize) -> Option<&'a str> {
    args.str(i).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// Returns the fallback, or fails if none was given.
fn or_fallback<'a>(args: &Args<'a>, i: usize, who: &str, why: Option<&str>) -> CallResult<'a> {
    if args.is_given(i) {
        return Ok(args.get(i));
    }
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Err(ModuleError(format!("std.{who}: conversion failed{why}")))
}

pub fn duration<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    one_of(args, "duration", &[0, 2, 3])?;
    if args.is_given(2) {
        return Ok(Value::Duration(args.real(2)));
    }
    if args.is_given(3) {
        return Ok(Value::Duration(args.int(3) as f64));
    }
    match text(args, 0).and_then(number::parse_duration_with_unit) {
        Some(seconds) => Ok(Value::Duration(seconds)),
        None => or_fallback(args, 1, "duration", None),
    }
}

pub fn bytes<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    one_of(args, "bytes", &[0, 2, 3])?;
    let found = if args.is_given(2) {
        let whole = args.real(2).trunc();
        (args.real(2) >= 0.0 && whole <= BYTES_MAX as f64).then_some(whole as i64)
    } else if args.is_given(3) {
        Some(args.int(3)).filter(|n| *n >= 0)
    } else {
        let size = text(args, 0).and_then(|text| number::parse_bytes(text, None).ok());
        size.filter(|n| *n <= BYTES_MAX).map(|n| n as i64)
    };
    found.map_or_else(|| or_fallback(args, 1, "bytes", None), |n| Ok(Value::Bytes(n)))
}

pub fn integer<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    const S: usize = 0;
    const FALLBACK: usize = 1;
    const BOOL: usize = 2;
    const BYTES: usize = 3;
    const DURATION: usize = 4;
    const REAL: usize = 5;
    const TIME: usize = 6;
    one_of(args, "integer", &[S, BOOL, BYTES, DURATION, REAL, TIME])?;
    if args.is_given(BOOL) {
        return Ok(Value::Int(i64::from(args.bool(BOOL))));
    }
    if args.is_given(BYTES) {
        return Ok(Value::Int(args.int(BYTES)));
    }
    let mut why = None;
    if args.is_given(S) {
        match text(args, S).map(|text| number::parse_number(text, false)) {
            Some(Ok((n, ""))) if n.fract() == 0.0 => return Ok(Value::Int(n as i64)),
            Some(Err(error)) => why = Some(error),
            _ => {}
        }
    } else {
        let given = [DURATION, REAL, TIME].into_iter().find(|i| args.is_given(*i));
        let whole = given.map_or(f64::NAN, |i| args.real(i).trunc());
        if whole.abs() <= INTEGER_MAX {
            return Ok(Value::Int(whole as i64));
        }
    }
    or_fallback(args, FALLBACK, "integer", why)
}

pub fn real<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    const S: usize = 0;
    const FALLBACK: usize = 1;
    const INTEGER: usize = 2;
    const BOOL: usize = 3;
    const BYTES: usize = 4;
    const DURATION: usize = 5;
    const TIME: usize = 6;
    one_of(args, "real", &[S, INTEGER, BOOL, BYTES, DURATION, TIME])?;
    if let Some(i) = [INTEGER, BYTES].into_iter().find(|i| args.is_given(*i)) {
        return Ok(Value::Real(args.int(i) as f64));
    }
    if args.is_given(BOOL) {
        return Ok(Value::Real(f64::from(u8::from(args.bool(BOOL)))));
    }
    if let Some(i) = [DURATION, TIME].into_iter().find(|i| args.is_given(*i)) {
        return Ok(Value::Real(args.real(i)));
    }
    match text(args, S).map(|text| number::parse_number(text, false)) {
        Some(Ok((n, _))) if n.abs() > number::LARGEST_DECIMAL => {
            or_fallback(args, FALLBACK, "real", Some(number::TOO_LONG))
        }
        Some(Ok((n, ""))) => Ok(Value::Real(n)),
        Some(Err(error)) => or_fallback(args, FALLBACK, "real", Some(error)),
        _ => or_fallback(args, FALLBACK, "real", None),
    }
}

pub fn time<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    one_of(args, "time", &[0, 2, 3])?;
    if args.is_given(3) {
        return Ok(Value::Time(args.int(3) as f64));
    }
    if args.is_given(2) {
        return Ok(Value::Time(args.real(2)));
    }
    let parsed = text(args, 0).and_then(|text| {
        let seconds =
            || number::parse_number(text, false).ok().filter(|(t, rest)| *t > 0.0 && rest.is_empty());
        date::parse(text.as_bytes()).filter(|t| *t != 0.0).or_else(|| seconds().map(|(t, _)| t))
    });
    parsed.map_or_else(|| or_fallback(args, 1, "time", None), |t| Ok(Value::Time(t)))
}

pub fn ip<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    const S: usize = 0;
    const FALLBACK: usize = 1;
    const RESOLVE: usize = 2;
    const PORT: usize = 3;
    if args.is_given(FALLBACK) && args.ip(FALLBACK).is_none() {
        return Err("std.ip: invalid fallback".into());
    }
    let port = if args.is_given(PORT) { shown(args.str(PORT)) } else { "80".into() };
    let text = args.str(S).map(|s| shown(Some(s)));
    let mut found = text.as_ref().and_then(|text| address::parse(text, &port, false));
    if let (None, Some(text), true) = (found, text, args.bool(RESOLVE)) {
        let (text, port) = (text.into_owned(), port.into_owned());
        found = NAMES.run(ctx, move || address::parse(&text, &port, true))?;
    }
    match found {
        Some(found) => Ok(Value::Ip(Some(ctx.ip(found).ok_or("std.ip: insufficient workspace")?))),
        None => or_fallback(args, FALLBACK, "ip", None),
    }
}

pub fn real2integer<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let rounded = args.real(0).round();
    Ok(Value::Int(if rounded.abs() <= INTEGER_MAX { rounded as i64 } else { args.int(1) }))
}

pub fn time2integer<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    real2integer(ctx, args)
}

fn finite_or_fallback(args: &Args<'_>) -> f64 {
    if args.real(0).is_finite() { args.real(0) } else { args.real(1) }
}

pub fn real2time<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Time(finite_or_fallback(args)))
}

pub fn time2real<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(finite_or_fallback(args)))
}
