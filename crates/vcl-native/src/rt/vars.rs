//! Variables by class, headers and bodies: thin wrappers around the [`Host`](lacquer_vcl_runtime::Host).

use std::net::SocketAddr;

use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, Blob, Ctx, ModuleError, Raw, RawKind, Str, StrWords, Value};

use super::{guard, http_and_name, strands, var};

pub extern "C" fn get_bool(ctx: &mut Ctx<'_>, code: u32) -> u32 {
    guard(ctx, 0, |ctx| Ok(u32::from(ctx.host.get_bool(var(code)?))))
}

pub extern "C" fn get_int(ctx: &mut Ctx<'_>, code: u32) -> i64 {
    guard(ctx, 0, |ctx| Ok(ctx.host.get_int(var(code)?)))
}

pub extern "C" fn get_real(ctx: &mut Ctx<'_>, code: u32) -> f64 {
    guard(ctx, 0.0, |ctx| {
        let var = var(code)?;
        Ok(if var == Var::Now { ctx.host.now() } else { ctx.host.get_real(var) })
    })
}

pub extern "C" fn get_str(ctx: &mut Ctx<'_>, code: u32) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| Ok(Str::from_option(ctx.host.get_str(var(code)?)).into_words()))
}

pub unsafe extern "C" fn get_ip(ctx: &mut Ctx<'_>, code: u32) -> *const SocketAddr {
    guard(ctx, std::ptr::null(), |ctx| {
        Ok(ctx.host.get_ip(var(code)?).map_or(std::ptr::null(), std::ptr::from_ref))
    })
}

pub extern "C" fn get_blob(ctx: &mut Ctx<'_>, code: u32) -> *const Blob<'static> {
    guard(ctx, std::ptr::null(), |ctx| {
        let var = var(code)?;
        let Some(blob) = ctx.blob_var(var) else { return Ok(std::ptr::null()) };
        let placed = ctx.copy_value(blob).map(|blob| std::ptr::from_ref(blob).cast());
        placed.ok_or_else(|| ModuleError(format!("Workspace overflow ({})", var.name())))
    })
}

pub extern "C" fn get_backend(ctx: &mut Ctx<'_>, code: u32) -> u32 {
    guard(ctx, 0, |ctx| Ok(ctx.host.get_backend(var(code)?).0))
}

pub extern "C" fn get_stevedore(ctx: &mut Ctx<'_>, code: u32) -> u32 {
    guard(ctx, 0, |ctx| Ok(ctx.host.get_stevedore(var(code)?)))
}

pub unsafe extern "C" fn storage_var(ctx: &mut Ctx<'_>, storage: Str<'_>, code: u32) -> i64 {
    guard(ctx, 0, |ctx| {
        let storage = String::from_utf8_lossy(storage.or_empty());
        Ok(ctx.host.storage_var(&storage, var(code)?))
    })
}

pub extern "C" fn storage_field(ctx: &mut Ctx<'_>, storage: u32, code: u32) -> i64 {
    guard(ctx, 0, |ctx| {
        let var = var(code)?;
        if storage == 0 {
            return Ok(0);
        }
        let name = ctx.stevedore_name(storage).unwrap_or_default();
        Ok(ctx.host.storage_var(&String::from_utf8_lossy(name), var))
    })
}

pub unsafe extern "C" fn stevedore_by_name(ctx: &mut Ctx<'_>, name: Str<'_>) -> u32 {
    guard(ctx, 0, |ctx| Ok(ctx.host.stevedore_by_name(&String::from_utf8_lossy(name.or_empty()))))
}

pub extern "C" fn set_bool(ctx: &mut Ctx<'_>, code: u32, value: u32) {
    guard(ctx, (), |ctx| {
        let var = var(code)?;
        if matches!(var, Var::ReqTrace | Var::BereqTrace) {
            ctx.trace = ctx.trace & !Ctx::LOGS_POINTS | (value & Ctx::LOGS_POINTS);
        }
        Ok(ctx.host.set_bool(var, value != 0)?)
    });
}

pub extern "C" fn set_int(ctx: &mut Ctx<'_>, code: u32, value: i64) {
    guard(ctx, (), |ctx| Ok(ctx.host.set_int(var(code)?, value)?));
}

pub extern "C" fn set_real(ctx: &mut Ctx<'_>, code: u32, value: f64) {
    guard(ctx, (), |ctx| Ok(ctx.host.set_real(var(code)?, value)?));
}

pub unsafe extern "C" fn set_str(ctx: &mut Ctx<'_>, code: u32, value: Str<'_>) {
    guard(ctx, (), |ctx| Ok(ctx.host.set_str(var(code)?, value.get())?));
}

pub extern "C" fn set_backend(ctx: &mut Ctx<'_>, code: u32, value: u32) {
    guard(ctx, (), |ctx| Ok(ctx.host.set_backend(var(code)?, BackendId(value))?));
}

pub extern "C" fn set_stevedore(ctx: &mut Ctx<'_>, code: u32, value: u32) {
    guard(ctx, (), |ctx| Ok(ctx.host.set_stevedore(var(code)?, value)?));
}

pub extern "C" fn unset(ctx: &mut Ctx<'_>, code: u32) {
    guard(ctx, (), |ctx| Ok(ctx.host.unset(var(code)?)?));
}

pub extern "C" fn get_header(ctx: &mut Ctx<'_>, http: u32, name: u32) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        let (http, name) = http_and_name(ctx, http, name)?;
        Ok(Str::from_option(ctx.host.header(http, name)).into_words())
    })
}

pub unsafe extern "C" fn get_named(ctx: &mut Ctx<'_>, a: u64, b: u64) -> StrWords {
    guard(ctx, StrWords::NULL, |ctx| {
        let raw = Raw { kind: RawKind::Header, a, b };
        // SAFETY: compiled code passes a value that a module returned, and that lives as long as the task.
        let Value::Header(http, name) = (unsafe { Value::from_raw(raw, ctx.vcl) }) else {
            return Ok(StrWords::NULL);
        };
        Ok(Str::from_option(ctx.header(http, name)).into_words())
    })
}

pub unsafe extern "C" fn set_header(ctx: &mut Ctx<'_>, http: u32, name: u32, value: Str<'_>) {
    guard(ctx, (), |ctx| {
        let (http, name) = http_and_name(ctx, http, name)?;
        Ok(ctx.host.set_header(http, name, value.get())?)
    });
}

/// Sets a header to a concatenation, which is written to the workspace once.
pub unsafe extern "C" fn set_header_parts(
    ctx: &mut Ctx<'_>,
    http: u32,
    name: u32,
    parts: *const Str<'_>,
    count: u64,
) {
    guard(ctx, (), |ctx| {
        let (http, name) = http_and_name(ctx, http, name)?;
        // SAFETY: compiled code passes the list that it has just written.
        let parts = unsafe { strands(parts, count) };
        Ok(ctx.host.set_header_parts(http, name, parts)?)
    });
}

pub extern "C" fn unset_header(ctx: &mut Ctx<'_>, http: u32, name: u32) {
    guard(ctx, (), |ctx| {
        let (http, name) = http_and_name(ctx, http, name)?;
        Ok(ctx.host.unset_header(http, name)?)
    });
}

/// Sets or appends to a body. `undefined` replaces undefined parts.
fn put_body(
    ctx: &mut Ctx<'_>,
    var: Var,
    append: bool,
    parts: &[Str<'_>],
    undefined: &[u8],
) -> Result<(), ModuleError> {
    if let [one] = parts {
        return Ok(ctx.host.set_body(var, append, one.get().unwrap_or(undefined))?);
    }
    let whole: Vec<u8> = parts.iter().flat_map(|p| p.get().unwrap_or(undefined)).copied().collect();
    Ok(ctx.host.set_body(var, append, &whole)?)
}

pub unsafe extern "C" fn set_body(
    ctx: &mut Ctx<'_>,
    code: u32,
    append: u32,
    parts: *const Str<'_>,
    count: u64,
) {
    // SAFETY: compiled code passes the list that it has just written.
    let parts = unsafe { strands(parts, count) };
    guard(ctx, (), |ctx| put_body(ctx, var(code)?, append != 0, parts, b""));
}

/// `synthetic(...)`: appends to the body of the current response. Undefined parts become `(null)`, as in Varnish.
pub unsafe extern "C" fn synthetic(ctx: &mut Ctx<'_>, parts: *const Str<'_>, count: u64) {
    // SAFETY: compiled code passes the list that it has just written.
    let parts = unsafe { strands(parts, count) };
    guard(ctx, (), |ctx| {
        let backend = ctx.method() == Method::BackendError;
        put_body(ctx, if backend { Var::BerespBody } else { Var::RespBody }, true, parts, b"(null)")
    });
}

pub unsafe extern "C" fn set_body_blob(ctx: &mut Ctx<'_>, code: u32, append: u32, blob: *const Blob<'_>) {
    guard(ctx, (), |ctx| {
        // SAFETY: a BLOB value is null or points to a blob of this task.
        let content = unsafe { blob.as_ref() }.map_or(&b""[..], |b| b.bytes());
        Ok(ctx.host.set_body(var(code)?, append != 0, content)?)
    });
}
