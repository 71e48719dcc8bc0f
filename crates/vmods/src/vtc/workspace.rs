//! vtc's functions that change the state of a workspace. A workspace that the task does not have is ignored.

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};

use crate::support::{CallResult, DONE, word};

const MAX_DUMP: i64 = 1024;
const DUMP_BLOB: u32 = 0xd000_d000;

/// Returns the requested size; a negative one leaves that many bytes free. `None`: there is no such workspace.
fn size(ctx: &mut Ctx<'_>, args: &Args<'_>, what: &str) -> Result<Option<usize>, ModuleError> {
    let Some(free) = ctx.host.workspace_free(word(args, 0)) else { return Ok(None) };
    let size = if args.int(1) < 0 { args.int(1) + free as i64 } else { args.int(1) };
    match usize::try_from(size) {
        Ok(size) if size > 0 => Ok(Some(size)),
        _ => Err(ModuleError(format!("Attempted negative WS {what}"))),
    }
}

pub fn alloc<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    if let Some(size) = size(ctx, args, "allocation")?
        && !ctx.host.workspace_alloc(word(args, 0), size)
    {
        return Err("vtc.workspace_alloc".into());
    }
    DONE
}

pub fn reserve<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(size) = size(ctx, args, "reservation")? else { return Ok(Value::Bytes(0)) };
    let free = ctx.host.workspace_free(word(args, 0)).unwrap_or(0);
    if size > free {
        ctx.host.workspace_overflow(word(args, 0));
        return Ok(Value::Bytes(0));
    }
    Ok(Value::Bytes(size as i64))
}

pub fn free<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(ctx.host.workspace_free(word(args, 0)).map_or(-1, |n| n as i64)))
}

pub fn snapshot<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.host.workspace_snapshot(word(args, 0));
    DONE
}

pub fn reset<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.host.workspace_reset(word(args, 0));
    DONE
}

pub fn overflow<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    ctx.host.workspace_overflow(word(args, 0));
    DONE
}

pub fn overflowed<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(ctx.host.workspace_overflowed(word(args, 0))))
}

pub fn dump<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (which, at) = (word(args, 0), word(args, 1).bytes().next().unwrap_or(b's'));
    let (offset, length) = (args.int(2), args.int(3));
    if length > MAX_DUMP {
        return Err(ModuleError(format!("workspace_dump: max length is {MAX_DUMP}")));
    }
    if ctx.host.workspace_free(which).is_none() {
        return Ok(Value::Blob(None));
    }
    let (offset, length) = (offset.max(0) as usize, length.max(0) as usize);
    let bytes = ctx.host.workspace_dump(which, at, offset, length);
    let bytes = bytes.map_err(|error| format!("workspace_dump: {error}"))?;
    let blob = ctx.blob(&bytes, DUMP_BLOB).ok_or("workspace_dump: copy failed")?;
    Ok(Value::Blob(Some(blob)))
}
