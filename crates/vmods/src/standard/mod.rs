//! Module std: functions that most programs need, from type conversions to the request's body.

mod address;
mod convert;
mod files;
mod glob;
mod strftime;
mod strings;
mod syslog;

pub(crate) use strings::sorted;

use lacquer_shm::Tag;
use lacquer_sources::clock::Instant;
use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::random::fine_fraction;
use crate::support::{CallResult, DONE, Table, log as log_record, text};

pub(crate) use address::{parse as parse_address, service};
pub(crate) use glob::{Flags as GlobFlags, matches as glob_matches};

pub(crate) static MODULE: Table = Table {
    name: "std",
    functions: &[
        ("random", random),
        ("round", round),
        ("collect", collect),
        ("querysort", strings::querysort),
        ("toupper", strings::toupper),
        ("tolower", strings::tolower),
        ("strstr", strings::strstr),
        ("fnmatch", strings::fnmatch),
        ("fileread", files::fileread),
        ("blobread", files::blobread),
        ("file_exists", files::file_exists),
        ("healthy", healthy),
        ("port", port),
        ("duration", convert::duration),
        ("bytes", convert::bytes),
        ("integer", convert::integer),
        ("ip", convert::ip),
        ("real", convert::real),
        ("time", convert::time),
        ("strftime", strftime_),
        ("log", log),
        ("syslog", syslog::syslog),
        ("timestamp", timestamp),
        ("syntax", syntax),
        ("getenv", getenv),
        ("cache_req_body", cache_req_body),
        ("late_100_continue", late_100_continue),
        ("set_ip_tos", set_ip_tos),
        ("rollback", rollback),
        ("ban", ban),
        ("ban_error", ban_error),
        ("now", now),
        ("timed_call", timed_call),
        ("rfc_ttl", rfc_ttl),
        ("real2integer", convert::real2integer),
        ("real2time", convert::real2time),
        ("time2integer", convert::time2integer),
        ("time2real", convert::time2real),
    ],
    objects: &[],
    suspends: &["blobread", "cache_req_body", "file_exists", "fileread", "ip", "timed_call"],
};

fn random<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (low, high) = (args.real(0), args.real(1));
    Ok(Value::Real(fine_fraction() * (high - low) + low))
}

fn round<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(args.real(0).round()))
}

fn collect<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let found = args.header(0).ok().and_then(|(http, name)| Some((http, ctx.named(name)?)));
    let (http, name) = found.ok_or("std.collect(): header argument is NULL")?;
    let joined = ctx.host.collect_header(http, &name, args.str(1).unwrap_or_default());
    joined.map_err(|_| "std.collect(): header argument cannot be used here")?;
    DONE
}

fn healthy<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let backend = args.backend(0);
    Ok(Value::Bool(!backend.is_none() && ctx.vcl.directors.healthy_for(backend, ctx).healthy))
}

fn port<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.ip(0).map_or(0, |ip| i64::from(ip.port()))))
}

fn strftime_<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    text(ctx, &strftime::format(args.real(0), args.str(1).unwrap_or_default()))
}

fn log<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    log_record(ctx, Tag::VCL_Log, args.joined(0));
    DONE
}

fn timestamp<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    if let Some(label) = args.str(0).filter(|label| !label.is_empty()) {
        ctx.host.timestamp(label);
    }
    DONE
}

/// Compares ten times the version, because literals such as 4.1 are not exact.
fn syntax<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool((args.real(0) * 10.0).round() <= f64::from(ctx.vcl.program.syntax)))
}

fn getenv<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let name = args.str(0).and_then(|name| std::str::from_utf8(name).ok());
    let name = name.filter(|name| !name.is_empty() && !name.contains(['=', '\0']));
    let Some(name) = name else { return Ok(Value::Str(None)) };
    let vcl = ctx.vcl;
    match vcl.program.environment.iter().find(|(known, _)| known == name) {
        Some((_, value)) => text(ctx, value),
        None => match std::env::var_os(name) {
            Some(value) => text(ctx, value.as_encoded_bytes()),
            None => Ok(Value::Str(None)),
        },
    }
}

fn cache_req_body<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let limit = u64::try_from(args.int(0)).unwrap_or(0);
    Ok(Value::Bool(ctx.cache_req_body(limit)? >= 0))
}

fn late_100_continue<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.host.late_100_continue(args.bool(0))?;
    DONE
}

fn set_ip_tos<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.host.set_ip_tos(args.int(0))?;
    DONE
}

fn rollback<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.host.rollback(args.http(0)?)?;
    DONE
}

/// The reason why the task's last ban was refused.
#[derive(Default)]
struct BanError(String);

fn ban_error_of<'c>(ctx: &'c mut Ctx<'_>) -> &'c mut String {
    &mut ctx.task::<BanError>(0).0
}

fn ban<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let result = args.str(0).ok_or_else(|| "Null argument".to_owned()).and_then(|text| ctx.host.ban(text));
    if let Err(why) = &result {
        ctx.log(Tag::VCL_Error as u8, format!("ban(): {why}"));
    }
    let accepted = result.is_ok();
    *ban_error_of(ctx) = result.err().unwrap_or_default();
    Ok(Value::Bool(accepted))
}

fn ban_error<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let error = ban_error_of(ctx).clone();
    text(ctx, error.as_bytes())
}

fn now<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Time(ctx.host.real_now()))
}

fn timed_call<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let start = Instant::now();
    ctx.call_sub(args.sub(0))?;
    Ok(Value::Duration(start.elapsed().as_secs_f64()))
}

fn rfc_ttl<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    ctx.host.rfc_ttl()?;
    DONE
}
