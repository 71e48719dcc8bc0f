//! Module netmapper: maps addresses to the names of networks, which are in files that may change.

mod database;
mod table;

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};

use crate::support::{CallResult, DONE, Table as Functions, log, shown, text};
use database::Database;

pub(crate) static MODULE: Functions =
    Functions { name: "netmapper", functions: &[("init", init), ("map", map)], objects: &[], suspends: &[] };

/// The databases of a VCL by their labels.
#[derive(Default)]
struct Databases(Mutex<Vec<Labeled>>);

#[derive(Clone)]
struct Labeled {
    label: Vec<u8>,
    database: Arc<Database>,
}

/// The database that a call used first, so that further calls need no lock to find it.
#[derive(Default)]
struct Used(OnceLock<Labeled>);

fn init<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let (label, file) = (args.str(0).unwrap_or_default(), args.str(1).unwrap_or_default());
    let interval = u64::try_from(args.int(2)).ok().filter(|seconds| *seconds > 0);
    let interval = interval.ok_or("netmapper.init: the interval must be at least one second")?;
    let all = ctx.vcl_state::<Databases>(0);
    let mut all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
    if all.iter().any(|known| known.label == label) {
        return Err(format!("netmapper.init: the label \"{}\" exists", shown(Some(label))).into());
    }
    let database = Database::open(Path::new(OsStr::from_bytes(file)), Duration::from_secs(interval));
    let database = database.map_err(|why| ModuleError(format!("netmapper.init: {why}")))?;
    all.push(Labeled { label: label.to_vec(), database });
    DONE
}

/// Returns the database with this label.
fn find(ctx: &Ctx<'_>, label: &[u8]) -> Result<Labeled, ModuleError> {
    let all = ctx.vcl_state::<Databases>(0);
    let all = all.0.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().find(|known| known.label == label).cloned();
    found.ok_or_else(|| format!("netmapper.map: there is no label \"{}\"", shown(Some(label))).into())
}

fn map<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let label = args.str(0).unwrap_or_default();
    let used = ctx.call_state::<Used>(args)?;
    let other;
    let database = match used.0.get() {
        Some(known) if known.label == label => &known.database,
        _ => {
            other = find(ctx, label)?;
            let _ = used.0.set(other.clone());
            &other.database
        }
    };
    for message in database.take_messages() {
        log(ctx, Tag::Error, format!("netmapper: {message}"));
    }
    let address = shown(args.str(1));
    let Ok(ip) = address.parse::<IpAddr>() else {
        log(ctx, Tag::Error, format!("netmapper.map: invalid address \"{address:.64}\""));
        return Ok(Value::Str(None));
    };
    match database.with_table(|table| table.find(ip).map(<[u8]>::to_vec)) {
        Some(name) => text(ctx, &name),
        None => Ok(Value::Str(None)),
    }
}

/// Looks up an address in a file of networks.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(json: &[u8], ip: IpAddr) {
    if let Ok(table) = table::Table::parse(json) {
        let _ = table.find(ip);
    }
}
