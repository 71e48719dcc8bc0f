//! Files that VCL reads. They are read once, and stored as long as a VCL that has read them is loaded.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};

use crate::blocking::FILES;
use crate::support::CallResult;

type Files = HashMap<Vec<u8>, Weak<[u8]>>;

fn path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

/// Returns the contents that are stored.
fn known() -> MutexGuard<'static, Files> {
    static KNOWN: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read<'a>(ctx: &mut Ctx<'a>, name: Option<&[u8]>) -> Result<Option<&'a [u8]>, ModuleError> {
    let Some(name) = name else { return Ok(None) };
    let held = known().get(name).and_then(Weak::upgrade);
    let content = match held {
        Some(content) => content,
        None => {
            let name = name.to_vec();
            match FILES.run(ctx, move || read_now(name))? {
                Some(content) => content,
                None => return Ok(None),
            }
        }
    };
    Ok(Some(ctx.vcl.keep(&content)))
}

/// Reads a file, unless another task has read it meanwhile.
fn read_now(name: Vec<u8>) -> Option<Arc<[u8]>> {
    let content: Arc<[u8]> = std::fs::read(path(&name)).ok()?.into();
    let mut known = known();
    if let Some(content) = known.get(&name).and_then(Weak::upgrade) {
        return Some(content);
    }
    known.retain(|_, held| held.strong_count() > 0);
    known.insert(name, Arc::downgrade(&content));
    Some(content)
}

/// Returns the content up to its first NUL, because a string ends there.
pub fn fileread<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let content = read(ctx, args.str(0))?;
    Ok(Value::Str(content.map(|c| c.split(|b| *b == 0).next().unwrap_or_default())))
}

pub fn blobread<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match read(ctx, args.str(0))? {
        Some(content) => {
            Ok(Value::Blob(Some(ctx.blob_of(content, 0).ok_or("Workspace overflow (std.blobread)")?)))
        }
        None => Ok(Value::Blob(None)),
    }
}

pub fn file_exists<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let Some(name) = args.str(0).map(<[u8]>::to_vec) else { return Ok(Value::Bool(false)) };
    Ok(Value::Bool(FILES.run(ctx, move || path(&name).exists())?))
}
