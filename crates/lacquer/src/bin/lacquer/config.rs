//! `lacquer.toml`: options of `lacquer run` in a file. Those of the command line and of the environment have precedence.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use lacquer_inspect::access_log::Format;
use lacquer_inspect::log_sink::Target;
use lacquer_tools::report;
use lacquer_tools::settings::{self, FILE, Mistake, Setting};
use lacquer_tools::site::{RULES, Site, Wrong};
use lacquer_vcl::Diagnostic;

use crate::admin;
use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::listen::Listen;
use crate::spec::{parse_backend, storage};
use crate::web;

/// Adds the options of the file that `--config` names, or of that in the current folder.
pub fn complete(mut values: Values) -> Result<Values, Failure> {
    let file = match values.one("config") {
        Some(file) => file.to_owned(),
        None if Path::new(FILE).is_file() => FILE.to_owned(),
        None => return Ok(values),
    };
    let bytes = fs::read(&file).map_err(|error| Failure::new(format_args!("{file}: {error}")))?;
    let settings = parse(&bytes).map_err(|mistake| {
        let has_colors = colors::wanted(io::stderr().is_terminal());
        eprintln!("{}", report::text(&mistake.diagnostic(&file, &bytes), has_colors));
        Failure::new(format_args!("{file}: 1 error"))
    })?;
    let given = values.clone();
    let has = |name: &str| given.has(name);
    for setting in settings {
        // A VCL file, or another origin, replaces what the file says about either.
        let is_replaced = match setting.name {
            "vcl" | "backend" => has("vcl") || has("backend"),
            name if RULES.contains(&name) => has(name) || has("vcl"),
            "p" => false,
            name => has(name),
        };
        if !is_replaced {
            values.add(setting.name, &setting.value);
        }
    }
    // The last value of a parameter counts.
    given.many("p").iter().for_each(|param| values.add("p", param));
    Ok(values)
}

/// Returns the mistake in a file, if it has one.
pub fn check(file: &str, bytes: &[u8]) -> Option<Diagnostic> {
    parse(bytes).err().map(|mistake| mistake.diagnostic(file, bytes))
}

/// Reads a file and checks all of its values.
fn parse(bytes: &[u8]) -> Result<Vec<Setting>, Mistake> {
    let settings = settings::read(bytes)?;
    settings::site(&settings)?;
    for setting in &settings {
        check_value(setting).map_err(|wrong| setting.mistake(wrong))?;
    }
    let names: Vec<&str> = settings.iter().map(|setting| setting.name).collect();
    let is_rule = |name: &&str| *name == "backend" || RULES.contains(name);
    if let (Some(at), Some(rule)) =
        (names.iter().position(|name| *name == "vcl"), names.iter().find(|n| is_rule(n)))
    {
        return Err(settings[at].mistake(Wrong {
            what: format!("it cannot be combined with {rule}"),
            hint: "a VCL file has its own backends and rules".to_owned(),
        }));
    }
    Ok(settings)
}

fn check_value(setting: &Setting) -> Result<(), Wrong> {
    let value = setting.value.as_str();
    match setting.name {
        "backend" => {
            let backend = parse_backend(value).map_err(wrong)?;
            Site::default().add_backend(&backend)
        }
        "listen" | "https-listen" => Listen::parse(setting.name, value).map(drop).map_err(wrong),
        "admin" => admin::parse(value).map(drop).map_err(wrong),
        "web" => web::parse(value).map(drop).map_err(wrong),
        "storage" => storage(Some(value)).map(drop).map_err(wrong),
        "log" => Format::parse(value)
            .map(drop)
            .map_err(|hint| Wrong { what: "it is not a format".to_owned(), hint }),
        "log-to" => Target::parse(value)
            .map(drop)
            .map_err(|hint| Wrong { what: "it is not a destination".to_owned(), hint }),
        _ => Ok(()),
    }
}

fn wrong(failure: Failure) -> Wrong {
    let (what, hint) = failure.texts();
    Wrong { what, hint: hint.unwrap_or_else(|| "see lacquer run --help".to_owned()) }
}
