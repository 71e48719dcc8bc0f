//! hash: selects a healthy backend by the hash of a text, in proportion to the weights. It selects when VCL calls
//! `.backend()`. The director itself cannot be used as a backend, because it has no text to hash.

use std::any::Any;
use std::sync::Arc;

use lacquer_vcl_runtime::instance::ObjectState;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Director, Health, Instance, ModuleError, ObjectType, Value};
use sha2::{Digest, Sha256};

use super::group::Group;
use super::object::Object;
use crate::support::{CallResult, DONE};

pub const TYPE: ObjectType = ObjectType {
    name: "hash",
    new,
    methods: &[("add_backend", add_backend), ("remove_backend", remove_backend), ("backend", backend)],
};

struct Hash {
    group: Group,
}

impl Director for Hash {
    fn name(&self) -> &str {
        &self.group.name
    }

    fn kind(&self) -> &'static str {
        "hash"
    }

    fn resolve(&self, _ctx: &mut Ctx<'_>, _me: BackendId) -> BackendId {
        BackendId::NONE
    }

    fn healthy(&self, _vcl: &Instance) -> Health {
        Health { healthy: true, changed: 0.0 }
    }

    fn determines_health(&self) -> bool {
        false
    }

    fn list(&self, _vcl: &Instance, details: bool, json: bool) -> String {
        match (details, json) {
            (false, false) => "0/0\thealthy".to_owned(),
            (false, true) => "[0, 0, \"healthy\"]".to_owned(),
            (true, _) => String::new(),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    Ok(Arc::new(Object::register(ctx, Hash { group: Group::new(args.object_name) })))
}

fn add_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    args.this::<Object<Hash>>()?.director.group.add(args.backend(0), args.real(1), 0)?;
    DONE
}

fn remove_backend<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    args.this::<Object<Hash>>()?.director.group.remove(args.backend(0))?;
    DONE
}

fn backend<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let this = args.this::<Object<Hash>>()?;
    let point = f64::from(hash_of(args.parts(0).flatten())) / 4_294_967_296.0;
    Ok(Value::Backend(this.director.group.pick(ctx, point)))
}

/// Returns the hash for directors: the last four bytes of SHA-256, in little-endian order.
pub fn hash_of<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> u32 {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part);
    }
    let digest = sha.finalize();
    u32::from_le_bytes([digest[28], digest[29], digest[30], digest[31]])
}
