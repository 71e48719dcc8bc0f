//! Files that VCL reads: once, and kept for as long as a loaded VCL that has read them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use lacquer_vcl_runtime::{Args, Ctx, Value};

use crate::support::Answer;

type Files = Mutex<HashMap<Vec<u8>, Weak<[u8]>>>;

fn path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn read<'a>(ctx: &Ctx<'a>, name: Option<&[u8]>) -> Option<&'a [u8]> {
    static FILES: OnceLock<Files> = OnceLock::new();
    let name = name?;
    let mut files = FILES.get_or_init(Files::default).lock().unwrap_or_else(PoisonError::into_inner);
    let content = match files.get(name).and_then(Weak::upgrade) {
        Some(content) => content,
        None => {
            let content: Arc<[u8]> = std::fs::read(path(name)).ok()?.into();
            files.retain(|_, held| held.strong_count() > 0);
            files.insert(name.to_vec(), Arc::downgrade(&content));
            content
        }
    };
    Some(ctx.vcl.keep(&content))
}

/// As a string the content ends at its first NUL.
pub fn fileread<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    let content = read(ctx, args.str(0));
    Ok(Value::Str(content.map(|c| c.split(|b| *b == 0).next().unwrap_or_default())))
}

pub fn blobread<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    match read(ctx, args.str(0)) {
        Some(content) => {
            Ok(Value::Blob(Some(ctx.blob_of(content, 0).ok_or("Workspace overflow (std.blobread)")?)))
        }
        None => Ok(Value::Blob(None)),
    }
}

pub fn file_exists<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> Answer<'a> {
    Ok(Value::Bool(args.str(0).is_some_and(|name| path(name).exists())))
}
