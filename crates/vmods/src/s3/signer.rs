//! Signer objects: the keys of an account for one service.

use std::sync::{Arc, Mutex, PoisonError};

use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{Args, Ctx, HeaderEdit, HeaderName, ModuleError, ObjectState};

use super::presigned;
use super::request::{self, Message, OWN, Signed};
use super::signature::{EMPTY, Keys, Scope, UNSIGNED};
use crate::support::{CallResult, DONE, is_backend_side, text, word};

struct Signer {
    scope: Scope,
    keys: Mutex<Arc<Keys>>,
}

impl Signer {
    fn keys(&self) -> Arc<Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn keys(args: &Args<'_>, token: usize) -> Result<Keys, String> {
    let bytes = |i| args.str(i).unwrap_or_default();
    Keys::new(bytes(0), bytes(1), bytes(token))
}

/// Returns a failure of a method of the object.
fn failure(args: &Args<'_>, method: &str, why: &str) -> ModuleError {
    ModuleError(format!("s3: {}.{method}(): {why}", args.object_name))
}

pub(super) fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let made = keys(args, 4).and_then(|keys| {
        let scope = Scope::new(args.str(2).unwrap_or_default(), args.str(3).unwrap_or_default())?;
        Ok(Signer { scope, keys: Mutex::new(Arc::new(keys)) })
    });
    let signer = made.map_err(|why| ModuleError(format!("s3: {} cannot sign: {why}", args.object_name)))?;
    Ok(Arc::new(signer))
}

pub(super) fn set_keys<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let keys = keys(args, 2).map_err(|why| failure(args, "set_keys", &why))?;
    let signer = args.this::<Signer>()?;
    *signer.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    DONE
}

/// Returns the message that the current subroutine can sign.
fn signable(method: Method) -> Option<(HttpId, Var, Var)> {
    match method {
        Method::Init | Method::Fini => None,
        method if is_backend_side(method) || method == Method::Pipe => {
            Some((HttpId::Bereq, Var::BereqMethod, Var::BereqUrl))
        }
        _ => Some((HttpId::Req, Var::ReqMethod, Var::ReqUrl)),
    }
}

/// Reads the request that the current subroutine can sign: `bereq` in a fetch or pipe, else `req`.
pub(crate) fn read(ctx: &mut Ctx<'_>) -> Result<(HttpId, Message), String> {
    let (http, method, url) = signable(ctx.method()).ok_or("there is no request here")?;
    let method = ctx.get_str(method).unwrap_or_default().to_vec();
    let target = ctx.get_str(url).unwrap_or_default().to_vec();
    let mut headers = Vec::new();
    ctx.host.edit_headers(http, &mut |line| {
        if let Some(colon) = line.iter().position(|&b| b == b':') {
            let name = String::from_utf8_lossy(&line[..colon]).into_owned();
            headers.push((name, line[colon + 1..].to_vec()));
        }
        HeaderEdit::Keep
    })?;
    Ok((http, Message { method, target, headers }))
}

/// Sets the headers of a signature.
pub(crate) fn write(ctx: &mut Ctx<'_>, http: HttpId, signed: &Signed) -> Result<(), ModuleError> {
    for (name, value) in &signed.0 {
        ctx.set_header(http, &HeaderName::new(name), value.as_bytes())?;
    }
    Ok(())
}

pub(super) fn sign<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let account = args.this::<Signer>()?;
    let keys = account.keys();
    let payload = if word(args, 0) == "EMPTY" { EMPTY } else { UNSIGNED };
    let made = read(ctx).and_then(|(http, message)| {
        let names = request::names(args.str(1).unwrap_or_default())?;
        let headers = message.sign((&keys, &account.scope), &names, payload, ctx.host.real_now())?;
        Ok((http, names, headers))
    });
    let (http, names, headers) = made.map_err(|why| failure(args, "sign", &why))?;
    // A client must not have its own directives executed with these keys.
    ctx.host.edit_headers(http, &mut |line| {
        let end = line.iter().position(|&b| b == b':').unwrap_or(line.len());
        let name = String::from_utf8_lossy(&line[..end]).to_ascii_lowercase();
        let is_foreign = name.starts_with("x-amz-") && !names.contains(&name);
        if is_foreign || OWN.contains(&name.as_str()) { HeaderEdit::Remove } else { HeaderEdit::Keep }
    })?;
    write(ctx, http, &headers)?;
    DONE
}

pub(super) fn presign<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let signer = args.this::<Signer>()?;
    let (url, method) = (args.str(0).unwrap_or_default(), args.str(2).unwrap_or_default());
    let now = ctx.host.real_now();
    let made = presigned::presign((&signer.keys(), &signer.scope), method, url, args.real(1), now);
    text(ctx, &made.map_err(|why| failure(args, "presign", &why))?)
}
