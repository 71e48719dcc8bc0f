//! Module bodyaccess: the request's body, after std.cache_req_body() has read it.

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{Args, Ctx, Host, Value};
use sha2::{Digest, Sha256};

use crate::blocking::BODIES;
use crate::support::{CallResult, DONE, Table, log};

pub(crate) static MODULE: Table = Table {
    name: "bodyaccess",
    functions: &[
        ("rematch_req_body", rematch_req_body),
        ("hash_req_body", hash_req_body),
        ("len_req_body", len_req_body),
        ("log_req_body", log_req_body),
    ],
    objects: &[],
    suspends: &["rematch_req_body"],
};

/// The size in bytes of a body that is matched at once. Larger ones would hold the reactor. It is that of the largest
/// head of a request by default (`http_req_size`).
const MATCHED_AT_ONCE: usize = 32 << 10;

/// Returns the body, or a fact about it, if there is one and the current subroutine may use it. Otherwise logs the
/// reason.
fn body<T>(
    ctx: &mut Ctx<'_>,
    only_in: Option<(Method, &str)>,
    read: impl FnOnce(&mut dyn Host) -> Option<T>,
) -> Option<T> {
    let body = read(ctx.host);
    if body.is_none() {
        log(ctx, Tag::VCL_Error, "Unbuffered req.body");
        return None;
    }
    match only_in {
        Some((method, complaint)) if ctx.method() != method => {
            log(ctx, Tag::VCL_Error, complaint);
            None
        }
        _ => body,
    }
}

fn rematch_req_body<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let place = (Method::Recv, "rematch_req_body can be used only in vcl_recv{}");
    let Some(body) = body(ctx, Some(place), |host| host.cached_req_body()) else { return Ok(Value::Int(-1)) };
    let (regex, limits) = (args.regex(0)?, ctx.host.regex_limits());
    let found = if body.len() <= MATCHED_AT_ONCE {
        regex.is_match(&body, limits)
    } else {
        let regex = ctx.vcl.shared_regex(regex).ok_or("a regular expression of the program is expected")?;
        BODIES.run(ctx, move || regex.is_match(&body, limits))?
    };
    match found {
        Ok(matches) => Ok(Value::Int(i64::from(matches))),
        Err(error) => {
            log(ctx, Tag::VCL_Error, format!("Regexp matching returned {}", error.0));
            Ok(Value::Int(-1))
        }
    }
}

/// Hashes the body's digest, because a body may be larger than the workspace.
fn hash_req_body<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let place = (Method::Hash, "hash_req_body can only be used in vcl_hash{}");
    let Some(body) = body(ctx, Some(place), |host| host.cached_req_body()) else { return DONE };
    let digest = ctx.copy(&crate::blob::encode_hex(&Sha256::digest(&body)))?;
    ctx.host.hash_data(Some(digest))?;
    ctx.host.hash_data(None)?;
    DONE
}

fn len_req_body<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let place = (Method::Recv, "len_req_body can only be used in vcl_recv{}");
    let length = body(ctx, Some(place), |host| host.cached_req_body_len());
    Ok(Value::Int(length.map_or(-1, |length| i64::try_from(length).unwrap_or(i64::MAX))))
}

fn log_req_body<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(body) = body(ctx, None, |host| host.cached_req_body()) else { return DONE };
    let length = usize::try_from(args.int(1)).ok().filter(|n| *n > 0).unwrap_or(usize::MAX);
    for part in body.chunks(length.min(body.len().max(1))) {
        log(ctx, Tag::Debug, [args.str(0).unwrap_or_default(), part].concat());
    }
    DONE
}
