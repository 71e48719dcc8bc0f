//! Tests the modules geoip and geoip2 with a database in MaxMind's format that is written here: a tree of 24-bit records for IPv4,
//! a data section, and metadata after their marker.

use std::path::Path;

use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::Ctx;

use crate::host::{Transaction, compile};

enum Datum {
    Text(&'static str),
    Double(f64),
    Int(u32),
    Short(u16),
    Long(u64),
    Bool(bool),
    Map(Vec<(&'static str, Datum)>),
    List(Vec<Datum>),
}

/// Type in the upper three bits, or 0 there and the type minus seven in the next byte; size in the lower five.
fn control(out: &mut Vec<u8>, kind: u8, size: usize) {
    let size = u8::try_from(size).unwrap();
    assert!(size < 29);
    if kind <= 7 {
        out.push(kind << 5 | size);
    } else {
        out.extend([size, kind - 7]);
    }
}

fn encode(out: &mut Vec<u8>, datum: &Datum) {
    match datum {
        Datum::Text(text) => {
            control(out, 2, text.len());
            out.extend(text.bytes());
        }
        Datum::Double(number) => {
            control(out, 3, 8);
            out.extend(number.to_be_bytes());
        }
        Datum::Int(number) => {
            control(out, 6, 4);
            out.extend(number.to_be_bytes());
        }
        Datum::Short(number) => {
            control(out, 5, 2);
            out.extend(number.to_be_bytes());
        }
        Datum::Long(number) => {
            control(out, 9, 8);
            out.extend(number.to_be_bytes());
        }
        Datum::Bool(truth) => control(out, 14, usize::from(*truth)),
        Datum::Map(entries) => {
            control(out, 7, entries.len());
            for (name, value) in entries {
                encode(out, &Datum::Text(name));
                encode(out, value);
            }
        }
        Datum::List(items) => {
            control(out, 11, items.len());
            for item in items {
                encode(out, item);
            }
        }
    }
}

/// Returns a database with one network.
fn database(network: [u8; 4], bits: u32, datum: &Datum) -> Vec<u8> {
    let address = u32::from_be_bytes(network);
    let mut out = Vec::new();
    for node in 0..bits {
        // The path leads to the next node, and ends 16 bytes into the data at the last one; everything else is unknown.
        let on = if node + 1 == bits { bits + 16 } else { node + 1 };
        let right = address >> (31 - node) & 1 == 1;
        let records = if right { [bits, on] } else { [on, bits] };
        for record in records {
            out.extend(&record.to_be_bytes()[1..]);
        }
    }
    out.extend([0; 16]);
    encode(&mut out, datum);
    out.extend(b"\xab\xcd\xefMaxMind.com");
    let metadata = Datum::Map(vec![
        ("binary_format_major_version", Datum::Short(2)),
        ("binary_format_minor_version", Datum::Short(0)),
        ("build_epoch", Datum::Long(1_700_000_000)),
        ("database_type", Datum::Text("Test-City")),
        ("description", Datum::Map(vec![])),
        ("ip_version", Datum::Short(4)),
        ("languages", Datum::List(vec![Datum::Text("en")])),
        ("node_count", Datum::Int(bits)),
        ("record_size", Datum::Short(24)),
    ]);
    encode(&mut out, &metadata);
    out
}

/// Returns the log of a program, and the reason if it could not be loaded.
fn run_program(program: &str) -> (Result<(), String>, Vec<String>) {
    let loaded = compile(program);
    let mut init = Transaction::new(Method::Init);
    let made = loaded.init(&mut init);
    if made.is_err() {
        return (made, init.logged());
    }
    let mut request = Transaction::new(Method::Recv);
    loaded.run(Method::Recv, &mut Ctx::new(&mut request, loaded.instance()));
    (made, request.logged())
}

/// Runs a program that begins with `new db`.
fn run(file: &Path, statements: &str) -> (Result<(), String>, Vec<String>) {
    run_program(&format!(
        "import geoip2; import std;\n\
         sub vcl_init {{ new db = geoip2.geoip2(\"{}\"); }} sub vcl_recv {{ {statements} }}",
        file.display()
    ))
}

fn with_file<T>(name: &str, bytes: &[u8], run: impl FnOnce(&Path) -> T) -> T {
    let path = std::env::temp_dir().join(format!("lacquer-geoip2-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).expect("the temporary directory is writable");
    let outcome = run(&path);
    let _ = std::fs::remove_file(&path);
    outcome
}

#[test]
fn addresses_are_looked_up_by_path() {
    let names = |en, de| Datum::Map(vec![("en", Datum::Text(en)), ("de", Datum::Text(de))]);
    let here = Datum::Map(vec![
        (
            "country",
            Datum::Map(vec![("iso_code", Datum::Text("DE")), ("names", names("Germany", "Deutschland"))]),
        ),
        (
            "location",
            Datum::Map(vec![("latitude", Datum::Double(50.5)), ("accuracy_radius", Datum::Int(20))]),
        ),
        ("subdivisions", Datum::List(vec![Datum::Map(vec![("iso_code", Datum::Text("HE"))])])),
        ("is_anycast", Datum::Bool(true)),
    ]);
    let paths = [
        ("country/iso_code", "192.0.2.77", "DE"),
        ("country/names/de", "192.0.2.0", "Deutschland"),
        ("location/latitude", "192.0.2.1", "50.500000"),
        ("location/accuracy_radius", "192.0.2.1", "20"),
        ("subdivisions/0/iso_code", "192.0.2.1", "HE"),
        ("is_anycast", "192.0.2.255", "true"),
        // Missing data: the path, a structure as text, the address.
        ("country/nothing", "192.0.2.1", ""),
        ("country", "192.0.2.1", ""),
        ("country/iso_code", "192.0.3.1", ""),
        ("country/iso_code", "2001:db8::1", ""),
    ];
    let look_up = |(path, ip, _): &(&str, &str, &str)| {
        format!("std.log(\"=\" + db.lookup(\"{path}\", std.ip(\"{ip}\", \"0.0.0.0\")));")
    };
    let statements: String = paths.iter().map(look_up).collect();
    let (made, log) = with_file("city", &database([192, 0, 2, 0], 24, &here), |path| run(path, &statements));
    assert_eq!(made, Ok(()), "{log:?}");
    let found: Vec<&str> = log.iter().filter_map(|line| line.strip_prefix("VCL_Log =")).collect();
    let expected: Vec<&str> = paths.iter().map(|(_, _, value)| *value).collect();
    assert_eq!(found, expected, "{log:?}");
}

#[test]
fn an_invalid_database_fails_the_load() {
    for (name, bytes) in [("empty", &b""[..]), ("text", b"vcl 4.1;"), ("cut", b"\xab\xcd\xefMaxMind.com\xe9")]
    {
        let (made, log) = with_file(name, bytes, |path| run(path, ""));
        assert!(made.is_err() && log.iter().any(|line| line.contains("geoip2.geoip2: ")), "{name}: {log:?}");
    }
}

/// Runs a program that uses module geoip with this database.
fn run_geoip(file: &Path, statements: &str) -> (Result<(), String>, Vec<String>) {
    run_program(&format!(
        "import geoip; import std;\n\
         sub vcl_init {{ geoip.init(\"{}\"); }} sub vcl_recv {{ {statements} }}",
        file.display()
    ))
}

fn german() -> Datum {
    let names = |name| Datum::Map(vec![("en", Datum::Text(name))]);
    let country = Datum::Map(vec![("iso_code", Datum::Text("DE")), ("names", names("Germany"))]);
    let region = Datum::Map(vec![("iso_code", Datum::Text("HE")), ("names", names("Hesse"))]);
    Datum::Map(vec![("country", country), ("subdivisions", Datum::List(vec![region]))])
}

const GEOIP_CALLS: &str = "std.log(\"=\" + geoip.country_code(\"192.0.2.7\") + geoip.country_name(\"192.0.2.7\") \
     + geoip.region_name(\"192.0.2.7\") + geoip.country_code(\"192.0.3.1\") + geoip.country_code(\"nonsense\"));";

#[test]
fn countries_and_regions_are_found() {
    let bytes = database([192, 0, 2, 0], 24, &german());
    let (made, log) = with_file("geoip", &bytes, |path| run_geoip(path, GEOIP_CALLS));
    assert_eq!(made, Ok(()), "{log:?}");
    assert!(log.contains(&"VCL_Log =DEGermanyHesseUnknownUnknown".to_owned()), "{log:?}");
    assert!(log.contains(&"Error geoip: invalid address \"nonsense\"".to_owned()), "{log:?}");
    let (made, log) = with_file("geoip-text", b"GeoIP.dat", |path| run_geoip(path, ""));
    assert!(made.is_err() && log.iter().any(|line| line.contains("VCL_Error geoip: ")), "{log:?}");
}

/// A database that was cut short or damaged anywhere fails the load, or its values are unknown. Each program is compiled,
/// which takes milliseconds, so that only every fifth byte is tried.
#[test]
fn damaged_databases_do_no_harm() {
    let bytes = database([192, 0, 2, 0], 24, &german());
    for at in (0..bytes.len()).step_by(5) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        for bytes in [&bytes[at..], &bytes[..at], &[&bytes[..at], &bytes[at + 1..]].concat(), &damaged] {
            let (_, log) = with_file("geoip-damaged", bytes, |path| run_geoip(path, GEOIP_CALLS));
            assert!(!log.is_empty());
        }
    }
}
