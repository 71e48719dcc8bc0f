//! Module fileserver: the files of a folder as a backend.

mod connection;
mod mime;
mod request;
mod response;
mod root;
mod target;

use std::sync::Arc;

use lacquer_vcl::program::Backend;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, ModuleError, NewBackend, ObjectState, ObjectType, Value};

use crate::support::{CallResult, Table, shown};
use mime::Types;
use root::Root;

pub(crate) static MODULE: Table = Table {
    name: "fileserver",
    functions: &[],
    objects: &[ObjectType { name: "root", new, methods: &[("backend", backend)] }],
    suspends: &[],
};

/// The list of types that is used if none is given.
const SYSTEM_TYPES: &str = "/etc/mime.types";

struct Server(BackendId);

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    let name = args.object_name;
    let path = shown(args.str(0)).into_owned();
    if path.is_empty() {
        return Err(format!("fileserver: can't create {name} with an empty path").into());
    }
    let types = match args.str(1) {
        _ if !args.is_given(1) => Types::read(SYSTEM_TYPES).unwrap_or_default(),
        None | Some(b"") => Types::default(),
        Some(file) => Types::read(&shown(Some(file)))?,
    };
    let root = Arc::new(Root { path: path.into(), types });
    if let Err(why) = root.check() {
        // The folder may appear later.
        ctx.vcl.warn(format!("fileserver {name}: {why}"));
    }
    let open = connection::server(root)?;
    // HTTP requires a host, which files do not have.
    let spec =
        Backend { name: name.to_owned(), host_header: Some("fileserver".into()), ..Backend::default() };
    let backend = NewBackend { spec, local: Some(open), ..NewBackend::default() };
    Ok(Arc::new(Server(ctx.vcl.make_backend(backend)?)))
}

fn backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Backend(args.this::<Server>()?.0))
}
