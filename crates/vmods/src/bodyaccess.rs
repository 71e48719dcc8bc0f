//! Module bodyaccess: the request's body, after std.cache_req_body() has read it.

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{Args, Ctx, Value};
use sha2::{Digest, Sha256};

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
    suspends: &[],
};

/// Returns the body if there is one and the current subroutine may use it. Otherwise logs the reason.
fn body(ctx: &mut Ctx<'_>, only_in: Option<(Method, &str)>) -> Option<Vec<u8>> {
    let body = ctx.host.cached_req_body();
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
    let Some(body) = body(ctx, Some(place)) else { return Ok(Value::Int(-1)) };
    match args.regex(0)?.is_match(&body, ctx.host.regex_limits()) {
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
    let Some(body) = body(ctx, Some(place)) else { return DONE };
    let digest = ctx.copy(&crate::blob::encode_hex(&Sha256::digest(&body)))?;
    ctx.host.hash_data(Some(digest))?;
    ctx.host.hash_data(None)?;
    DONE
}

fn len_req_body<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let place = (Method::Recv, "len_req_body can only be used in vcl_recv{}");
    Ok(Value::Int(body(ctx, Some(place)).map_or(-1, |body| body.len() as i64)))
}

fn log_req_body<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(body) = body(ctx, None) else { return DONE };
    let length = usize::try_from(args.int(1)).ok().filter(|n| *n > 0).unwrap_or(usize::MAX);
    for part in body.chunks(length.min(body.len().max(1))) {
        log(ctx, Tag::Debug, [args.str(0).unwrap_or_default(), part].concat());
    }
    DONE
}
