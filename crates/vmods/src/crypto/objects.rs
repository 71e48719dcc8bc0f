//! The objects: keys, verifiers and signers. The data of a verifier or signer belongs to the task.

use std::sync::{Arc, Mutex, PoisonError};

use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{Args, Ctx, Func, ModuleError, ObjectState, Value};

use super::keys::{Hash, Key};
use crate::blocking;
use crate::support::{CallResult, DONE, word};

pub(super) const KEY_METHODS: &[(&str, Func)] =
    &[("use", use_key), ("pem_pubkey", pem_pubkey), ("pem_privkey", pem_privkey), ("rsa", rsa)];
pub(super) const VERIFIER_METHODS: &[(&str, Func)] = &[
    ("update", update::<Verifier>),
    ("update_blob", update_blob::<Verifier>),
    ("reset", reset::<Verifier>),
    ("valid", valid),
];
pub(super) const SIGNER_METHODS: &[(&str, Func)] = &[
    ("update", update::<Signer>),
    ("update_blob", update_blob::<Signer>),
    ("reset", reset::<Signer>),
    ("final", finish),
];

/// The maximum length of the data of one object in a task.
const MOST_DATA: usize = 16 << 20;

#[derive(Default)]
struct KeyObject(Mutex<Option<Key>>);

struct Verifier(Hash, Key);

struct Signer(Hash, Arc<Key>);

/// The data that a task has added to an object.
#[derive(Default)]
struct Data(Vec<u8>);

fn fault(args: &Args<'_>, text: impl std::fmt::Display) -> ModuleError {
    ModuleError(format!("crypto: {}: {text}", args.object_name))
}

pub(super) fn new_key<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(KeyObject::default()))
}

fn set<'a>(ctx: &Ctx<'a>, args: &Args<'a>, key: Result<Key, String>) -> CallResult<'a> {
    if ctx.method() != Method::Init {
        return Err(fault(args, "a key may only be set in vcl_init"));
    }
    let key = key.map_err(|why| fault(args, why))?;
    let mut held = args.this::<KeyObject>()?.0.lock().unwrap_or_else(PoisonError::into_inner);
    if held.replace(key).is_some() {
        return Err(fault(args, "the key is already set"));
    }
    DONE
}

fn pem_pubkey<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    set(ctx, args, Key::public(args.str(0).unwrap_or_default()))
}

fn pem_privkey<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    if args.str(1).is_some_and(|password| !password.is_empty()) {
        return Err(fault(args, "keys with a password are not supported"));
    }
    set(ctx, args, Key::private(args.str(0).unwrap_or_default()))
}

fn rsa<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    if args.is_given(2) {
        return Err(fault(args, "an RSA key with d is not supported; use pem_privkey()"));
    }
    let part = |i: usize| args.blob(i).map(|blob| blob.bytes().to_vec()).filter(|bytes| !bytes.is_empty());
    let key = part(0).zip(part(1)).map(|(n, e)| Key::Rsa { n, e });
    set(ctx, args, key.ok_or_else(|| "n and e are needed".to_owned()))
}

fn use_key<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    if ctx.method() != Method::Init {
        return Err(fault(args, "use() may only be called in vcl_init"));
    }
    let held = args.this::<KeyObject>()?.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let key = held.ok_or_else(|| fault(args, "the key is not set"))?;
    Ok(Value::Blob(ctx.blob(&key.encode(), 0)))
}

/// Returns the hash and the key of a verifier or signer.
fn parts(args: &Args<'_>, from_pem: fn(&[u8]) -> Result<Key, String>) -> Result<(Hash, Key), ModuleError> {
    let hash = Hash::find(word(args, 0)).map_err(|why| fault(args, why))?;
    let key = match (args.is_given(1), args.is_given(2)) {
        (true, false) => from_pem(args.str(1).unwrap_or_default()).map_err(|why| fault(args, why))?,
        (false, true) => {
            let key = args.blob(2).and_then(|blob| Key::decode(blob.bytes()));
            key.ok_or_else(|| fault(args, "the argument key is not that of a key object"))?
        }
        _ => return Err(fault(args, "either pem or key must be given")),
    };
    Ok((hash, key))
}

pub(super) fn new_verifier<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let (hash, key) = parts(args, Key::public)?;
    if matches!(key, Key::Private(_)) {
        return Err(fault(args, "a public key is needed"));
    }
    Ok(Arc::new(Verifier(hash, key)))
}

pub(super) fn new_signer<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let (hash, key) = parts(args, Key::private)?;
    // A key that cannot sign is noticed now.
    hash.sign(&key, b"").map_err(|why| fault(args, why))?;
    Ok(Arc::new(Signer(hash, Arc::new(key))))
}

/// Returns the task's data of an object of this type.
fn data<'c, T: Send + Sync + 'static>(
    ctx: &'c mut Ctx<'_>,
    args: &Args<'_>,
) -> Result<&'c mut Data, ModuleError> {
    let key = std::ptr::from_ref(args.this::<T>()?) as usize;
    Ok(ctx.task::<Data>(key))
}

fn add<'a, T: Send + Sync + 'static>(
    ctx: &mut Ctx<'a>,
    args: &Args<'a>,
    parts: impl Iterator<Item = &'a [u8]>,
) -> CallResult<'a> {
    let data = data::<T>(ctx, args)?;
    for part in parts {
        if data.0.len() + part.len() > MOST_DATA {
            return Err(fault(args, format!("more than {MOST_DATA} bytes of data")));
        }
        data.0.extend_from_slice(part);
    }
    Ok(Value::Bool(true))
}

fn update<'a, T: Send + Sync + 'static>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    add::<T>(ctx, args, args.strands(0).iter().map(|part| part.or_empty()))
}

fn update_blob<'a, T: Send + Sync + 'static>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    add::<T>(ctx, args, args.blob(0).map(|blob| blob.bytes()).into_iter())
}

fn reset<'a, T: Send + Sync + 'static>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    data::<T>(ctx, args)?.0.clear();
    Ok(Value::Bool(true))
}

fn valid<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Verifier(hash, key) = args.this::<Verifier>()?;
    let Some(signature) = args.blob(0) else { return Ok(Value::Bool(false)) };
    let message = data::<Verifier>(ctx, args)?;
    Ok(Value::Bool(hash.verifies(key, &message.0, signature.bytes())))
}

fn finish<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Signer(hash, key) = args.this::<Signer>()?;
    let (hash, key, message) = (*hash, key.clone(), data::<Signer>(ctx, args)?.0.clone());
    let signature = blocking::HASHES.run(ctx, move || hash.sign(&key, &message))?;
    let signature = signature.map_err(|why| fault(args, why))?;
    Ok(Value::Blob(ctx.blob(&signature, 0)))
}
