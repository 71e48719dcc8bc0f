//! Module blob: converts between binary values and text, in the encodings of `codec`.

pub(crate) mod base64;
mod codec;
mod hex;
mod text;
mod url;

use std::sync::{Arc, Mutex, PoisonError};

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, Blob, Ctx, ModuleError, ObjectType, OwnedBlob, Value};

use crate::support::{CallResult, Table, copy_if_room, shown, word};
use codec::Encoding;
use text::{Case, Illegal};

pub(crate) static MODULE: Table = Table {
    name: "blob",
    functions: &[
        ("decode", decode),
        ("encode", encode),
        ("transcode", transcode),
        ("same", same),
        ("equal", equal),
        ("length", length),
        ("sub", sub),
    ],
    objects: &[ObjectType { name: "blob", new, methods: &[("get", get), ("encode", encode_object)] }],
    suspends: &[],
};

pub(crate) fn encode_hex(bytes: &[u8]) -> Vec<u8> {
    hex::encode(Case::Lower, bytes)
}

const KIND: u32 = 0xfade_4faa;

fn error(text: impl std::fmt::Display) -> ModuleError {
    ModuleError(format!("vmod blob error: {text}"))
}

/// Returns an empty blob, which needs no workspace.
fn null<'a>() -> CallResult<'a> {
    static NULL: Blob<'static> = Blob::new(b"", 0);
    Ok(Value::Blob(Some(&NULL)))
}

fn blob<'a>(ctx: &mut Ctx<'a>, bytes: &'a [u8], kind: u32, who: &str) -> CallResult<'a> {
    match ctx.blob_of(bytes, kind) {
        Some(blob) => Ok(Value::Blob(Some(blob))),
        None => Err(ModuleError(format!("Workspace overflow ({who})"))),
    }
}

/// Returns the bytes as a string, which ends at the first NUL.
fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// Returns the case that an argument selects. Only encodings with hexadecimal digits have a case.
fn case_of(args: &Args<'_>, i: usize, encoding: Encoding) -> Result<Case, ModuleError> {
    let case = word(args, i);
    if case != "DEFAULT" && !matches!(encoding, Encoding::Hex | Encoding::Url) {
        return Err(error(format!("case {case} is illegal with encoding {}", encoding.name())));
    }
    Ok(if case == "UPPER" { Case::Upper } else { Case::Lower })
}

fn limit(length: i64) -> usize {
    usize::try_from(length).ok().filter(|n| *n > 0).unwrap_or(usize::MAX)
}

fn illegal(parts: &[&[u8]]) -> ModuleError {
    let first = shown(parts.first().copied());
    error(format!("cannot decode, illegal encoding beginning with \"{first}\""))
}

fn decode<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let encoding = Encoding::of(word(args, 0));
    let parts: Vec<&[u8]> = args.parts(2).map(Option::unwrap_or_default).collect();
    let decoded = encoding.decode(&parts, limit(args.int(1)));
    let decoded = decoded.map_err(|Illegal| illegal(&parts))?;
    if decoded.is_empty() {
        return null();
    }
    let held = copy_if_room(ctx, &decoded).ok_or_else(|| error("cannot decode, out of space"))?;
    blob(ctx, held, KIND, "blob.decode")
}

fn encoded<'a>(ctx: &mut Ctx<'a>, encoding: Encoding, case: Case, bytes: &[u8]) -> CallResult<'a> {
    let encoded = encoding.encode(case, bytes);
    if encoded.is_empty() {
        return Ok(Value::Str(Some(b"")));
    }
    let held = copy_if_room(ctx, &encoded).ok_or_else(|| error("cannot encode, out of space"))?;
    Ok(Value::Str(Some(until_nul(held))))
}

fn encode<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let encoding = Encoding::of(word(args, 0));
    let case = case_of(args, 1, encoding)?;
    match args.blob(2) {
        Some(_) => encoded(ctx, encoding, case, args.bytes(2).unwrap_or_default()),
        None => Ok(Value::Str(None)),
    }
}

fn transcode<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (from, to) = (Encoding::of(word(args, 0)), Encoding::of(word(args, 1)));
    let case = case_of(args, 2, to)?;
    let parts: Vec<&[u8]> = args.parts(4).map(Option::unwrap_or_default).collect();
    let decoded = from.decode(&parts, limit(args.int(3)));
    let decoded = decoded.map_err(|Illegal| illegal(&parts))?;
    let cased = matches!(to, Encoding::Hex | Encoding::Url);
    if from == to && !cased && args.int(3) <= 0 {
        return Ok(Value::Str(Some(ctx.copy(&parts.concat())?)));
    }
    encoded(ctx, to, case, &decoded)
}

fn same<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let same = match (args.blob(0), args.blob(1)) {
        (Some(a), Some(b)) => {
            std::ptr::eq(a.bytes(), b.bytes()) || (a.bytes().is_empty() && b.bytes().is_empty())
        }
        (a, b) => a.is_none() && b.is_none(),
    };
    Ok(Value::Bool(same))
}

fn equal<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let content = |i| args.blob(i).map(|_| args.bytes(i).unwrap_or_default());
    Ok(Value::Bool(content(0) == content(1)))
}

fn length<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Int(args.blob(0).map_or(0, |b| b.bytes().len() as i64)))
}

fn sub<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let bytes =
        args.bytes(0).filter(|b| !b.is_empty()).ok_or_else(|| error("blob is empty in blob.sub()"))?;
    let kind = args.blob(0).map_or(0, |b| b.kind);
    let (length, offset) = (args.int(1), args.int(2));
    let (Ok(wanted), Ok(start)) = (usize::try_from(length), usize::try_from(offset)) else {
        return Err(error("size or offset negative in blob.sub()"));
    };
    let part = start.checked_add(wanted).and_then(|end| bytes.get(start..end));
    let part = part.ok_or_else(|| {
        error(format!(
            "size {length} from offset {offset} requires more bytes than blob length {} in blob.sub()",
            bytes.len()
        ))
    })?;
    if part.is_empty() { null() } else { blob(ctx, part, kind, "blob.sub") }
}

/// An object: the content, and each encoding of it after its first use.
struct Constant {
    content: OwnedBlob,
    encoded: Mutex<Vec<(Encoding, Case, Arc<[u8]>)>>,
}

fn new<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let encoding = Encoding::of(word(args, 0));
    let parts: Vec<&[u8]> = args.parts(1).map(Option::unwrap_or_default).collect();
    let content = encoding.decode(&parts, usize::MAX).map_err(|Illegal| {
        let (name, first) = (args.object_name, shown(parts.first().copied()));
        error(format!("cannot create blob {name}, illegal encoding beginning with \"{first}\""))
    })?;
    Ok(Arc::new(Constant { content: OwnedBlob::new(content, KIND), encoded: Mutex::default() }))
}

fn get<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Blob(Some(args.this::<Constant>()?.content.get())))
}

fn encode_object<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let constant = args.this::<Constant>()?;
    let encoding = Encoding::of(word(args, 0));
    let case = case_of(args, 1, encoding)?;
    let mut made = constant.encoded.lock().unwrap_or_else(PoisonError::into_inner);
    let found = made.iter().find(|(e, c, _)| (*e, *c) == (encoding, case)).map(|(_, _, text)| text.clone());
    let text = found.unwrap_or_else(|| {
        let text: Arc<[u8]> = encoding.encode(case, constant.content.get().bytes()).into();
        made.push((encoding, case, text.clone()));
        text
    });
    Ok(Value::Str(Some(until_nul(ctx.vcl.keep(&text)))))
}
