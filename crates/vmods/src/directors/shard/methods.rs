//! The methods of `shard` and `shard_param` objects.

use std::sync::Arc;

use lacquer_shm::Tag;
use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, ObjectType, Value};

use super::circle::{Change, Member};
use super::director::ShardDirector;
use super::params::{
    Base, By, Given, Healthy, ParamObject, TaskValues, change, failure, is_backend_side, is_housekeeping,
    key_of, merge, read, task_values,
};
use super::pick::pick;
use super::state::{DEFAULT_REPLICAS, Shard};
use crate::directors::hash::hash_of;
use crate::support::{CallResult, DONE, director_name, log, word};

pub const TYPE: ObjectType = ObjectType {
    name: "shard",
    new,
    methods: &[
        ("set_warmup", set_warmup),
        ("set_rampup", set_rampup),
        ("associate", associate),
        ("add_backend", add_backend),
        ("remove_backend", remove_backend),
        ("clear", clear),
        ("reconfigure", reconfigure),
        ("key", key),
        ("backend", backend),
        ("debug", debug),
    ],
};

pub const PARAM_TYPE: ObjectType = ObjectType {
    name: "shard_param",
    new: new_param,
    methods: &[
        ("clear", clear_param),
        ("set", set_param),
        ("get_by", get_by),
        ("get_key", get_key),
        ("get_alt", get_alt),
        ("get_warmup", get_warmup),
        ("get_rampup", get_rampup),
        ("get_healthy", get_healthy),
        ("use", use_param),
    ],
};

/// The kind of blobs that refer to a parameter object.
const PARAM_BLOB: u32 = 0xdf5c_a116;

/// The object: its id in the VCL's table of directors, and the director.
struct Object {
    id: BackendId,
    shard: Arc<Shard>,
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let shard = Arc::new(Shard::new(args.object_name));
    let id = ctx.vcl.directors.add(Arc::new(ShardDirector(shard.clone())));
    Ok(Arc::new(Object { id, shard }))
}

fn shard(args: &Args<'_>) -> Result<Arc<Shard>, ModuleError> {
    Ok(args.this::<Object>()?.shard.clone())
}

fn set_warmup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (shard, probability) = (shard(args)?, args.real(0));
    if (0.0..1.0).contains(&probability) {
        shard.set(|s| s.warmup = probability);
    } else {
        shard.notice(ctx, &format!(".set_warmup({probability:.6}) ignored"));
    }
    DONE
}

fn set_rampup<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    shard(args)?.set(|s| s.rampup = args.real(0).max(0.0));
    DONE
}

/// Returns the parameter object that a blob of `.use()` refers to.
fn param_of(ctx: &Ctx<'_>, args: &Args<'_>, i: usize) -> Option<Arc<ParamObject>> {
    args.blob(i).filter(|b| b.kind == PARAM_BLOB)?;
    let name = args.bytes(i)?;
    let at = ctx.vcl.program.modules.objects.iter().position(|o| o.name.as_bytes() == name)?;
    ctx.vcl.objects.get(at)?.get()?.clone().downcast::<ParamObject>().ok()
}

fn associate<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let shard = shard(args)?;
    let param = match args.blob(0) {
        None => None,
        Some(_) => {
            let found = param_of(ctx, args, 0);
            Some(found.ok_or_else(|| shard.fail("shard .associate param invalid"))?)
        }
    };
    shard.associate(param);
    DONE
}

fn ident(args: &Args<'_>, i: usize) -> Option<String> {
    args.str(i).filter(|s| !s.is_empty()).map(|s| String::from_utf8_lossy(s).into_owned())
}

fn add_backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (shard, backend) = (shard(args)?, args.backend(0));
    if backend.is_none() {
        return Err(shard.fail("None backend cannot be added"));
    }
    let mut weight = 1.0;
    if args.is_given(3) {
        if args.real(3) >= 1.0 {
            weight = args.real(3);
        } else {
            shard.notice(ctx, &format!(".add_backend(weight={:.6}) ignored", args.real(3)));
        }
    }
    let member = Member {
        backend,
        name: director_name(ctx.vcl, backend),
        ident: ident(args, 1),
        rampup: args.is_given(2).then(|| args.real(2)),
        replicas: 0,
    };
    shard.pending(ctx).push(Change::Add { member, weight });
    Ok(Value::Bool(true))
}

fn remove_backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (shard, backend) = (shard(args)?, args.backend(0));
    if backend.is_none() && args.str(1).is_none() {
        return Err(shard.fail(".remove_backend(): either backend or ident are required"));
    }
    let change = Change::Remove { backend, ident: ident(args, 1) };
    shard.pending(ctx).push(change);
    Ok(Value::Bool(true))
}

fn clear<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    shard(args)?.pending(ctx).push(Change::Clear);
    Ok(Value::Bool(true))
}

fn reconfigure<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let shard = shard(args)?;
    let replicas = if args.is_given(0) { args.int(0) } else { DEFAULT_REPLICAS };
    if replicas <= 0 {
        shard.error(ctx, &format!(".reconfigure() invalid replicas argument {replicas}"));
        return Ok(Value::Bool(false));
    }
    let changes = std::mem::take(shard.pending(ctx));
    Ok(Value::Bool(changes.is_empty() || shard.reconfigure(ctx, changes, replicas)))
}

fn key<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(i64::from(hash_of(args.parts(0).flatten()))))
}

fn debug<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    shard(args)?.set_debug(args.int(0) as u32);
    DONE
}

/// Validates the first seven arguments of `shard.backend()` and `shard_param.set()`.
fn given(ctx: &mut Ctx<'_>, args: &Args<'_>, name: &str, who: &str) -> Result<Given, ModuleError> {
    let fail = |text: String| Err(failure(name, &format!("{who} {text}")));
    let by_name = if args.is_given(0) { word(args, 0) } else { "HASH" };
    let by = match by_name {
        "KEY" if !args.is_given(1) => return fail("missing key argument with by=KEY".to_owned()),
        "KEY" => match u32::try_from(args.int(1)) {
            Ok(key) => By::Key(key),
            Err(_) => return fail(format!("invalid key argument {} with by=KEY", args.int(1))),
        },
        "BLOB" if !args.is_given(2) => return fail("missing key_blob argument with by=BLOB".to_owned()),
        "BLOB" => match args.bytes(2).filter(|b| !b.is_empty()) {
            Some(bytes) => By::Blob(blob_key(bytes)),
            None => {
                let text = format!("{who} by=BLOB but no or empty key_blob - using key 0");
                log(ctx, Tag::Error, failure(name, &text).0);
                By::Blob(0)
            }
        },
        _ if args.is_given(1) || args.is_given(2) => {
            return fail(format!("key and key_blob arguments are invalid with by={by_name}"));
        }
        "URL" => By::Url,
        _ => By::Hash,
    };
    let (alt, warmup) = (args.int(3), args.real(4));
    if args.is_given(3) && alt < 0 {
        return fail(format!("invalid alt argument {alt}"));
    }
    if args.is_given(4) && warmup != -1.0 && !(0.0..=1.0).contains(&warmup) {
        return fail(format!("invalid warmup argument {warmup:.6}"));
    }
    Ok(Given {
        by: args.is_given(0).then_some(by),
        alt: args.is_given(3).then_some(alt),
        warmup: args.is_given(4).then_some(warmup),
        rampup: args.is_given(5).then(|| args.bool(5)),
        healthy: args.is_given(6).then(|| Healthy::of(word(args, 6))),
    })
}

/// Returns the first four bytes in big-endian order; a shorter blob is padded with leading zeros.
fn blob_key(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |key, b| key << 8 | u32::from(*b))
}

fn backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    const PARAM: usize = 7;
    const RESOLVE: usize = 8;
    let this = args.this::<Object>()?;
    let shard = &this.shard;
    let method = ctx.host.method();
    let lazy = if args.is_given(RESOLVE) { word(args, RESOLVE) == "LAZY" } else { is_housekeeping(method) };
    if lazy && (0..RESOLVE).all(|i| !args.is_given(i)) {
        return Ok(Value::Backend(this.id));
    }
    if lazy && !is_backend_side(method) {
        let text = ".backend(resolve=LAZY) with other parameters can only be used in backend/pipe context";
        return Err(shard.fail(text));
    }
    if !lazy && is_housekeeping(method) {
        return Err(shard.fail(".backend(resolve=NOW) cannot be used in vcl_init{}/vcl_fini{}"));
    }
    let chosen_base = match args.is_given(PARAM).then(|| param_of(ctx, args, PARAM)) {
        Some(None) => return Err(shard.fail(".backend(key_blob) param invalid")),
        Some(Some(object)) => Some(Base::Object(object)),
        None => None,
    };
    let given = given(ctx, args, &shard.name, "shard.backend()")?;
    if lazy {
        let (_, base) = shard.base(ctx);
        *task_values(ctx, shard.address()) = Some(TaskValues { given, base: chosen_base.unwrap_or(base) });
        return Ok(Value::Backend(this.id));
    }
    let (own, base) = match chosen_base {
        Some(base) => (Given::default(), base),
        None => shard.base(ctx),
    };
    let mut all = given;
    all.fill(own);
    let params = merge(ctx, all, &base);
    let key = key_of(ctx, &params);
    Ok(Value::Backend(pick(ctx, shard, key, &params)))
}

fn param(args: &Args<'_>) -> Result<Arc<ParamObject>, ModuleError> {
    let this = args.this.ok_or("called without its object")?.clone();
    this.downcast().map_err(|_| "called on an object of another type".into())
}

fn new_param<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(ParamObject::new(args.object_name)))
}

fn clear_param<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    change(ctx, &param(args)?, "shard_param.clear()", Given::default())?;
    DONE
}

fn set_param<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let object = param(args)?;
    let given = given(ctx, args, &object.name, "shard_param.set()")?;
    change(ctx, &object, "shard_param.set()", given)?;
    DONE
}

fn get_by<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(Some(read(ctx, &param(args)?).by.name().as_bytes())))
}

fn get_key<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let params = read(ctx, &param(args)?);
    Ok(Value::Int(i64::from(key_of(ctx, &params))))
}

fn get_alt<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(read(ctx, &param(args)?).alt))
}

fn get_warmup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Real(read(ctx, &param(args)?).warmup))
}

fn get_rampup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Bool(read(ctx, &param(args)?).rampup))
}

fn get_healthy<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(Some(read(ctx, &param(args)?).healthy.name().as_bytes())))
}

fn use_param<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let blob = ctx.blob_of(args.object_name.as_bytes(), PARAM_BLOB);
    Ok(Value::Blob(Some(blob.ok_or("Workspace overflow (xshard_param.use())")?)))
}

#[cfg(test)]
mod tests {
    use super::blob_key;

    #[test]
    fn keys_are_read_from_blobs() {
        assert_eq!(blob_key(&[0xff, 0xff, 0xff, 0xff, 0]), u32::MAX);
        assert_eq!(blob_key(&[1, 2]), 0x102);
    }
}
