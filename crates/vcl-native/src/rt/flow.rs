//! Module functions, objects, dynamic subs, returns with arguments, hashing, failures, tracing.

use lacquer_shm::vsl::Tag;
use lacquer_vcl::program::At;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, Raw, RawKind, Str, Value};

use super::{guard, strands};

/// Properties of a call besides its arguments. Compiled code passes them as one word.
#[derive(Clone, Copy, Debug)]
pub struct CallShape {
    pub args: u16,
    /// The type that the function must return. `Absent`: any type, and the value is discarded.
    pub returns: RawKind,
    pub call_site: Option<u32>,
}

const KINDS: [RawKind; 19] = [
    RawKind::Absent,
    RawKind::Bool,
    RawKind::Int,
    RawKind::Bytes,
    RawKind::Real,
    RawKind::Duration,
    RawKind::Time,
    RawKind::Str,
    RawKind::Strands,
    RawKind::Ip,
    RawKind::Blob,
    RawKind::Backend,
    RawKind::Probe,
    RawKind::Acl,
    RawKind::Sub,
    RawKind::Stevedore,
    RawKind::Header,
    RawKind::Http,
    RawKind::Regex,
];

const _: () = {
    let mut number = 0;
    while number < KINDS.len() {
        assert!(KINDS[number] as usize == number, "KINDS has another order than RawKind");
        number += 1;
    }
};

impl CallShape {
    pub fn pack(self) -> u64 {
        let site = self.call_site.map_or(0, |s| u64::from(s) + 1);
        u64::from(self.args) | (self.returns as u64) << 16 | site << 24
    }

    fn unpack(word: u64) -> CallShape {
        CallShape {
            args: word as u16,
            returns: KINDS.get((word >> 16 & 0xff) as usize).copied().unwrap_or(RawKind::Absent),
            call_site: ((word >> 24) as u32).checked_sub(1),
        }
    }
}

/// Maximum number of arguments that are stored on the stack.
const FEW: usize = 12;

/// Calls `body` with raw arguments converted to values.
fn with_values<'a, R>(
    ctx: &mut Ctx<'a>,
    args: *const Raw,
    count: usize,
    body: impl for<'v> FnOnce(&mut Ctx<'a>, &'v [Value<'a>]) -> R,
) -> R {
    let raw: &[Raw] = if count == 0 {
        &[]
    } else {
        // SAFETY: compiled code passes the `count` cells that it has just written.
        unsafe { std::slice::from_raw_parts(args, count) }
    };
    // SAFETY: compiled code writes cells by the types of the checked program; strings and other pointers
    // live as long as the task. Lists of strings live as long as the call, and `Args` is not stored.
    let value = |raw: &Raw| unsafe { Value::from_raw(*raw, ctx.vcl) };
    if count <= FEW {
        let mut few = [Value::Absent; FEW];
        for (to, from) in few.iter_mut().zip(raw) {
            *to = value(from);
        }
        body(ctx, &few[..count])
    } else {
        let many: Vec<_> = raw.iter().map(value).collect();
        body(ctx, &many)
    }
}

/// Calls a module's function or method. `object` is the object's index plus one, or 0.
pub unsafe extern "C" fn call(
    ctx: &mut Ctx<'_>,
    function: u32,
    object: u32,
    args: *const Raw,
    shape: u64,
    result: &mut Raw,
) {
    *result = Raw::ABSENT;
    let shape = CallShape::unpack(shape);
    let returned = guard(ctx, Raw::ABSENT, |ctx| {
        let vcl = ctx.vcl;
        let function = vcl.imports.functions.get(function as usize).ok_or("No such module function")?;
        let (mut this, mut object_name) = (None, "");
        if let Some(object) = object.checked_sub(1) {
            object_name = vcl.program.modules.objects.get(object as usize).map_or("", |o| o.name.as_str());
            let state = vcl.objects.get(object as usize).and_then(|o| o.get());
            this = Some(state.ok_or_else(|| format!("Object {object_name} not initialized"))?);
        }
        with_values(ctx, args, usize::from(shape.args), |ctx, values| {
            // SAFETY: only the lifetime of the slice changes, to the run's as `Args` requires. A module cannot store
            // a value with the run's lifetime beyond the call, except in its result, which is never a list.
            let values = unsafe { std::slice::from_raw_parts(values.as_ptr(), values.len()) };
            let mut args = Args::new(values);
            (args.this, args.object_name, args.call_site) = (this, object_name, shape.call_site);
            Ok((function.func)(ctx, &args)?.to_raw(vcl))
        })
    });
    if shape.returns == RawKind::Absent || returned.kind == RawKind::Absent {
        return;
    }
    if class(returned.kind) == class(shape.returns) {
        *result = returned;
    } else {
        ctx.fail("A module function returned another type than it declares");
    }
}

/// Maps kinds with the same machine form to one of them.
fn class(kind: RawKind) -> RawKind {
    match kind {
        RawKind::Bytes => RawKind::Int,
        RawKind::Duration | RawKind::Time => RawKind::Real,
        other => other,
    }
}

/// Creates an object of vcl_init.
pub unsafe extern "C" fn new_object(ctx: &mut Ctx<'_>, object: u32, args: *const Raw, count: u64) {
    guard(ctx, (), |ctx| {
        let vcl = ctx.vcl;
        let constructor = *vcl.imports.constructors.get(object as usize).ok_or("No such object")?;
        let object_name = vcl.program.modules.objects.get(object as usize).map_or("", |o| o.name.as_str());
        let state = with_values(ctx, args, count as usize, |ctx, values| {
            // SAFETY: as in `call`.
            let values = unsafe { std::slice::from_raw_parts(values.as_ptr(), values.len()) };
            let mut args = Args::new(values);
            args.object_name = object_name;
            constructor(ctx, &args)
        })?;
        let slot = vcl.objects.get(object as usize).ok_or("No such object")?;
        slot.set(state).map_err(|_| ModuleError(format!("Object {object_name} is created twice")))
    });
}

/// Calls a sub as a value. `sub` is its index plus one.
pub extern "C" fn call_sub(ctx: &mut Ctx<'_>, sub: u32) {
    guard(ctx, (), |ctx| ctx.call_sub(sub.checked_sub(1)));
}

pub extern "C" fn sub_callable(ctx: &mut Ctx<'_>, sub: u32) -> u32 {
    u32::from(ctx.check_sub(sub.checked_sub(1)).is_ok())
}

/// Hashes the strings of one `hash_data(...)` and the separator after them.
pub unsafe extern "C" fn hash_data(ctx: &mut Ctx<'_>, parts: *const Str<'_>, count: u64) {
    guard(ctx, (), |ctx| {
        // SAFETY: compiled code passes the list that it has just written.
        for part in unsafe { strands(parts, count) } {
            ctx.host.hash_data(part.get())?;
        }
        Ok(ctx.host.hash_data(None)?)
    });
}

/// Adds a ban. An invalid expression is logged and has no other effect.
pub unsafe extern "C" fn ban(ctx: &mut Ctx<'_>, expression: Str<'_>) {
    guard(ctx, (), |ctx| {
        let done = match expression.get() {
            Some(expression) => ctx.host.ban(expression),
            None => Err("Null argument".to_owned()),
        };
        if let Err(text) = done {
            ctx.log(Tag::VCL_Error as u8, format!("ban(): {text}"));
        }
        Ok(())
    });
}

pub extern "C" fn resolve_backend(ctx: &mut Ctx<'_>, backend: u32) -> u32 {
    guard(ctx, 0, |ctx| Ok(ctx.resolve_backend(BackendId(backend)).0))
}

/// `return (synth(status, reason))` and `return (error(status, reason))`.
pub unsafe extern "C" fn return_status(ctx: &mut Ctx<'_>, status: i64, reason: Str<'_>) {
    guard(ctx, (), |ctx| {
        let client = (ctx.method() as u32) < Method::BackendFetch as u32;
        let what = if client { "synth" } else { "error" };
        if status < 0 {
            return Err(format!("return({what}()) status code ({status}) is negative").into());
        }
        if status > 65535 {
            return Err(format!("return({what}()) status code ({status}) > 65535").into());
        }
        if status % 1000 < 100 {
            return Err(format!("illegal return({what}()) status code ({status}) (..0##)").into());
        }
        Ok(ctx.host.return_status(status, reason.get())?)
    });
}

pub extern "C" fn return_pass_for(ctx: &mut Ctx<'_>, seconds: f64) {
    guard(ctx, (), |ctx| Ok(ctx.host.return_pass_for(seconds)?));
}

pub extern "C" fn return_vcl(ctx: &mut Ctx<'_>, label: u32) {
    guard(ctx, (), |ctx| {
        let label = ctx.vcl.program.labels.get(label as usize).ok_or("No such label")?;
        Ok(ctx.host.return_vcl(label)?)
    });
}

pub unsafe extern "C" fn fail(ctx: &mut Ctx<'_>, text: Str<'_>) {
    guard(ctx, (), |_| Err(String::from_utf8_lossy(text.get().unwrap_or(b"(null)")).into_owned().into()));
}

pub extern "C" fn division_by_zero(ctx: &mut Ctx<'_>) {
    guard(ctx, (), |_| Err("Division by zero".into()));
}

/// A trace point, packed into one word; numbers that do not fit are truncated.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub number: u32,
    pub at: At,
}

impl Place {
    pub fn pack(self) -> u64 {
        let part = |n: u32, bits: u32, shift: u32| (u64::from(n) & ((1 << bits) - 1)) << shift;
        let At { source, line, column } = self.at;
        part(self.number, 20, 44) | part(source, 10, 34) | part(line, 20, 14) | part(column, 14, 0)
    }

    fn unpack(word: u64) -> Place {
        let part = |bits: u32, shift: u32| (word >> shift & ((1 << bits) - 1)) as u32;
        Place {
            number: part(20, 44),
            at: At { source: part(10, 34), line: part(20, 14), column: part(14, 0) },
        }
    }
}

/// Logs `VCL_trace`: the VCL's name, the number of the point, and source, line and column.
pub extern "C" fn trace(ctx: &mut Ctx<'_>, place: u64) {
    guard(ctx, (), |ctx| {
        let Place { number, at: At { source, line, column } } = Place::unpack(place);
        let text = format!("{} {number} {source}.{line}.{column}", ctx.vcl.name);
        ctx.host.trace(&text);
        Ok(())
    });
}
