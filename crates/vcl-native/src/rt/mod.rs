//! The functions that compiled code calls. Every function has the context as its first parameter, reports failure
//! through it (compiled code checks `Ctx::handling` after those that can fail) and catches panics.
//!
//! Functions that follow a pointer or have a string parameter are `unsafe`: only compiled code calls them. It passes
//! strings, addresses and blobs that came from the same run or are the program's constants, so that they live as long
//! as the run. It passes lists of strings and cells that it has just written to its own frame and that stay there
//! during the call.
//!
//! - [`vars`]: variables by class, headers, bodies;
//! - [`text`]: joining, comparing, matching and substituting strings, conversions to STRING;
//! - [`flow`]: module functions, objects, dynamic subs, returns with arguments, hashing, tracing.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lacquer_vcl::types::HttpId;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::instance::HeaderName;
use lacquer_vcl_runtime::value::http_from_code;
use lacquer_vcl_runtime::{Ctx, ModuleError, Str};

pub mod flow;
pub mod text;
pub mod vars;

/// Runs `body`. An error or a panic fails the transaction and returns `neutral`. It is inlined, because `body`
/// is usually a few instructions; only the error path is not.
#[inline(always)]
fn guard<'a, R>(
    ctx: &mut Ctx<'a>,
    neutral: R,
    body: impl FnOnce(&mut Ctx<'a>) -> Result<R, ModuleError>,
) -> R {
    match catch_unwind(AssertUnwindSafe(|| body(ctx))) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            failed(ctx, error);
            neutral
        }
        Err(panic) => {
            panicked(ctx, panic);
            neutral
        }
    }
}

#[cold]
fn failed(ctx: &mut Ctx<'_>, ModuleError(text): ModuleError) {
    ctx.fail(&text);
}

#[cold]
fn panicked(ctx: &mut Ctx<'_>, panic: Box<dyn Any + Send>) {
    let text = match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().map_or("panic", |text| *text).to_owned(),
    };
    let text = format!("Internal error: {text}");
    // The host may have caused the panic, so it might panic again.
    let _ = catch_unwind(AssertUnwindSafe(|| ctx.fail(&text)));
    ctx.handling = lacquer_vcl::types::Action::Fail as u32;
}

#[inline(always)]
fn var(code: u32) -> Result<Var, ModuleError> {
    Var::from_code(code).ok_or_else(|| "No such variable".into())
}

#[inline(always)]
fn http_and_name<'a>(ctx: &Ctx<'a>, http: u32, name: u32) -> Result<(HttpId, &'a HeaderName), ModuleError> {
    let name = ctx.header_name(name).ok_or("No such header name")?;
    Ok((http_from_code(u64::from(http)), name))
}

/// Returns a list of strings that compiled code passes.
///
/// # Safety
/// `parts` must point to `count` strings that stay there for `'s`; their bytes must live for `'a`.
unsafe fn strands<'s, 'a>(parts: *const Str<'_>, count: u64) -> &'s [Str<'a>] {
    if parts.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(parts.cast(), count as usize) }
}
