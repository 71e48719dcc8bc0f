//! Module geoip2: looks up an address in a MaxMind database.

use std::fmt;
use std::sync::Arc;

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, ObjectState, ObjectType, Value};
use maxminddb::{MaxMindDbError, PathElement, Reader};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::support::{CallResult, Table, copy_if_room, log, shown};

pub(crate) static MODULE: Table = Table {
    name: "geoip2",
    functions: &[],
    objects: &[ObjectType { name: "geoip2", new, methods: &[("lookup", lookup)] }],
    suspends: &[],
};

/// Maximum length of a path; as in the original module, longer paths are refused and parts beyond the ninth ignored.
const PATH_MAX: usize = 100;
const PARTS_MAX: usize = 9;

fn new<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> Result<ObjectState, ModuleError> {
    ctx.host.log_as(0, Tag::Debug as u8, b"geoip2.geoip2: Using maxminddb 2 (the format's version)");
    let name = shown(args.str(0));
    let reader = Reader::open_readfile(&*name).map_err(|error| {
        let text = format!("geoip2.geoip2: {}: {name}", cause(&error));
        ctx.host.log_as(0, Tag::Error as u8, text.as_bytes());
        text
    })?;
    Ok(Arc::new(reader))
}

/// Returns the text of MaxMind's own library for an error, which people search for in logs.
fn cause(error: &MaxMindDbError) -> String {
    match error {
        MaxMindDbError::Io(_) => "Error opening the specified MaxMind DB file".to_owned(),
        other => other.to_string(),
    }
}

/// A value of the database as text. Structures have no text.
enum Scalar {
    Text(String),
    Quoted(String),
    /// The format's number of the structure's type.
    Structure(u8),
}

const MAP: u8 = 7;
const ARRAY: u8 = 11;

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, v: bool) -> Result<Scalar, E> {
        Ok(Scalar::Text(v.to_string()))
    }

    fn visit_i64<E: Error>(self, v: i64) -> Result<Scalar, E> {
        Ok(Scalar::Text(v.to_string()))
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<Scalar, E> {
        Ok(Scalar::Text(v.to_string()))
    }

    fn visit_u128<E: Error>(self, v: u128) -> Result<Scalar, E> {
        Ok(Scalar::Text(v.to_string()))
    }

    fn visit_f64<E: Error>(self, v: f64) -> Result<Scalar, E> {
        Ok(Scalar::Text(format!("{v:.6}")))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Scalar, E> {
        Ok(Scalar::Quoted(v.to_owned()))
    }

    fn visit_bytes<E: Error>(self, v: &[u8]) -> Result<Scalar, E> {
        Ok(Scalar::Quoted(String::from_utf8_lossy(&crate::blob::encode_hex(v)).to_ascii_uppercase()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Structure(MAP))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Scalar, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Structure(ARRAY))
    }
}

fn path(text: &str) -> Vec<PathElement<'_>> {
    let parts = text.split('/').filter(|part| !part.is_empty()).take(PARTS_MAX);
    parts.map(|part| part.parse().map_or(PathElement::Key(part), PathElement::Index)).collect()
}

fn answer<'a>(ctx: &mut Ctx<'a>, text: &[u8]) -> CallResult<'a> {
    let copied = copy_if_room(ctx, text);
    if copied.is_none() {
        log(ctx, Tag::Error, "geoip2.lookup: Out of workspace");
    }
    Ok(Value::Str(copied))
}

fn lookup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let nothing = Ok(Value::Str(None));
    let reader = args.this::<Reader<Vec<u8>>>()?;
    let name = shown(args.str(0));
    if name.is_empty() || name.len() >= PATH_MAX {
        let shown = if args.str(0).is_none() { "NULL" } else { &name };
        log(ctx, Tag::Error, format!("geoip2.lookup: Invalid or missing path ({shown})"));
        return nothing;
    }
    let ip = args.ip(1).ok_or("geoip2.lookup: an address is expected")?.ip();
    let found = match reader.lookup(ip) {
        Ok(found) if found.has_data() => found.decode_path::<Scalar>(&path(&name)),
        Ok(_) => {
            log(ctx, Tag::Debug, format!("geoip2.lookup: No entry for this IP address ({ip})"));
            return nothing;
        }
        Err(error) => Err(error),
    };
    match found {
        Ok(Some(Scalar::Quoted(value))) if args.bool(2) => answer(ctx, format!("\"{value}\"").as_bytes()),
        Ok(Some(Scalar::Quoted(value) | Scalar::Text(value))) => answer(ctx, value.as_bytes()),
        Ok(Some(Scalar::Structure(kind))) => {
            log(ctx, Tag::Error, format!("geoip2.lookup: Unsupported data type ({kind})"));
            nothing
        }
        Ok(None) => {
            log(ctx, Tag::Debug, format!("geoip2.lookup: No data for this path ({name})"));
            nothing
        }
        Err(error) => {
            log(ctx, Tag::Error, format!("geoip2.lookup: {error}"));
            nothing
        }
    }
}
