//! Module geoip: country and region of an address, from a MaxMind database.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, Event, Instance, ModuleError, Value};
use maxminddb::{PathElement, Reader};

use crate::support::{CallResult, DONE, Table, WithEvents, log, shown, text};

pub(crate) static MODULE: WithEvents = WithEvents {
    table: Table {
        name: "geoip",
        functions: &[
            ("init", init),
            ("country_code", country_code),
            ("country_name", country_name),
            ("region_name", region_name),
        ],
        objects: &[],
        suspends: &[],
    },
    event: |vcl, event| if event == Event::Initialized { open_default(vcl) } else { Ok(()) },
};

type Database = Arc<Reader<Vec<u8>>>;

/// The text for an address without a value.
const UNKNOWN: &[u8] = b"Unknown";

const FOLDERS: [&str; 2] = ["/usr/share/GeoIP", "/var/lib/GeoIP"];
const FILES: [&str; 4] =
    ["GeoLite2-City.mmdb", "GeoIP2-City.mmdb", "GeoLite2-Country.mmdb", "GeoIP2-Country.mmdb"];

/// The database of a VCL.
#[derive(Default)]
struct Opened(Mutex<Option<Database>>);

/// The same for a call, so that it needs no lock.
#[derive(Default)]
struct Used(OnceLock<Database>);

fn open(file: &str) -> Result<Database, ModuleError> {
    let opened = Reader::open_readfile(file);
    opened.map(Arc::new).map_err(|error| format!("geoip: {file}: {error}").into())
}

fn init<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let database = open(&shown(args.str(0)))?;
    *ctx.vcl_state::<Opened>(0).0.lock().unwrap_or_else(PoisonError::into_inner) = Some(database);
    DONE
}

/// Opens a database in one of the usual places, unless vcl_init has opened one.
fn open_default(vcl: &Instance) -> Result<(), ModuleError> {
    let opened = vcl.vcl_state::<Opened>(0);
    let mut opened = opened.0.lock().unwrap_or_else(PoisonError::into_inner);
    if opened.is_none() {
        let paths =
            FOLDERS.iter().flat_map(|folder| FILES.iter().map(move |file| format!("{folder}/{file}")));
        let found = paths.into_iter().find(|path| std::path::Path::new(path).exists());
        let found = found.ok_or_else(|| {
            format!(
                "geoip: no database: call geoip.init() in vcl_init, or install {} in {}",
                FILES[2], FOLDERS[0]
            )
        })?;
        *opened = Some(open(&found)?);
    }
    Ok(())
}

/// Returns the text under a path of the database.
fn find(
    database: &Reader<Vec<u8>>,
    ip: IpAddr,
    path: &[PathElement<'_>],
) -> Result<Option<String>, ModuleError> {
    let found = database.lookup(ip).and_then(|found| found.decode_path::<String>(path));
    found.map_err(|error| format!("geoip: {error}").into())
}

fn lookup<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>, path: &[PathElement<'_>]) -> CallResult<'a> {
    let address = shown(args.str(0));
    let Ok(ip) = address.parse::<IpAddr>() else {
        log(ctx, Tag::Error, format!("geoip: invalid address \"{address:.64}\""));
        return Ok(Value::Str(Some(UNKNOWN)));
    };
    let used = ctx.call_state::<Used>(args)?;
    let database = match used.0.get() {
        Some(database) => database,
        None => {
            let opened = ctx.vcl_state::<Opened>(0);
            let database = opened.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let database = database.ok_or("geoip: no database is open yet")?;
            used.0.get_or_init(|| database)
        }
    };
    match find(database, ip, path) {
        Ok(Some(found)) => text(ctx, found.as_bytes()),
        Ok(None) => Ok(Value::Str(Some(UNKNOWN))),
        Err(ModuleError(error)) => {
            log(ctx, Tag::Error, error);
            Ok(Value::Str(Some(UNKNOWN)))
        }
    }
}

fn country_code<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    lookup(ctx, args, &[PathElement::Key("country"), PathElement::Key("iso_code")])
}

fn country_name<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    lookup(ctx, args, &[PathElement::Key("country"), PathElement::Key("names"), PathElement::Key("en")])
}

fn region_name<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let largest = [PathElement::Key("subdivisions"), PathElement::Index(0)];
    let name = [PathElement::Key("names"), PathElement::Key("en")];
    lookup(ctx, args, &[largest, name].concat())
}
