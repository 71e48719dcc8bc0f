//! `lacquer.toml`: options of `lacquer run` in a file. Those of the command line and of the environment have precedence.

use std::path::Path;

use lacquer_inspect::access_log::Format;
use lacquer_inspect::log_sink::Target;
use lacquer_manager::{check_admin, check_contacts, check_storage};
use lacquer_tools::settings::{self, Contents, FILE, MAX_MISTAKES, Mistake, Setting};
use lacquer_tools::site::{RULES, Site, Wrong};
use lacquer_vcl::Diagnostic;

use crate::admin;
use crate::args::Values;
use crate::combinations::{self, Conflict};
use crate::failure::Failure;
use crate::findings;
use crate::format::read;
use crate::https;
use crate::listen::Listen;
use crate::parameters::{Parameters, Refused};
use crate::spec::{parse_backend, storage};
use crate::web;

/// Adds the options of the file that `--config` names, or of that in the current folder.
pub fn complete(mut values: Values) -> Result<Values, Failure> {
    let file = match values.one("config") {
        Some(file) => file.to_owned(),
        None if Path::new(FILE).is_file() => FILE.to_owned(),
        None => return Ok(values),
    };
    let bytes = read(&file)?;
    let contents = parse(&bytes, &file, &values);
    if !contents.diagnostics.is_empty() {
        findings::print(&contents.diagnostics);
        return Err(Failure::new(format_args!("{file}: {}", findings::verdict(&contents.diagnostics))));
    }
    add_settings(&mut values, &contents.settings);
    Ok(values)
}

/// Adds the settings of a file that no option replaces.
fn add_settings(values: &mut Values, settings: &[Setting]) {
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
}

/// Returns the mistakes in a file.
pub fn check(file: &str, bytes: &[u8]) -> Vec<Diagnostic> {
    parse(bytes, file, &Values::default()).diagnostics
}

/// The options of a file, and what is wrong with them.
struct Checked {
    settings: Vec<Setting>,
    diagnostics: Vec<Diagnostic>,
}

/// Reads a file and checks all of its values, beside the options that are given.
fn parse(bytes: &[u8], file: &str, given: &Values) -> Checked {
    let Contents { mut settings, mut mistakes } = settings::read(bytes);
    if mistakes.is_empty() {
        // A setting that could not be read is not missing.
        mistakes.extend(conflicts(&settings, given));
    }
    mistakes.extend(settings::site(&settings).1);
    mistakes.extend(settings.iter().filter_map(|setting| Some(setting.mistake(check_value(setting).err()?))));
    mistakes.extend(order_parameters(&mut settings));
    mistakes.extend(check_vcl(&settings));
    Checked { diagnostics: settings::diagnostics(&mut mistakes, file, bytes), settings }
}

/// Puts parameters in an order in which the daemon accepts them, because the bounds of some depend on others and the lines
/// of a table have no order. Returns those that it accepts in none.
fn order_parameters(settings: &mut Vec<Setting>) -> Vec<Mistake> {
    let storage = settings.iter().find(|setting| setting.name == "storage");
    let mut parameters = Parameters::new(storage.map(|setting| setting.value.as_str()));
    let mut waiting: Vec<Setting> = settings.extract_if(.., |setting| setting.name == "p").collect();
    loop {
        let before = waiting.len();
        let mut refused = Vec::new();
        for setting in waiting {
            match parameters.set(&setting.value) {
                Ok(()) => settings.push(setting),
                Err(why) => refused.push((setting, why)),
            }
        }
        if refused.len() == before {
            let mistake = |(setting, why): (Setting, Refused)| match why {
                Refused::Name(wrong) => setting.mistake_of_key(wrong),
                Refused::Value(wrong) => setting.mistake(wrong),
            };
            return refused.into_iter().map(mistake).take(MAX_MISTAKES).collect();
        }
        waiting = refused.into_iter().map(|(setting, _)| setting).collect();
    }
}

/// Finds settings that need others, or that exclude them.
fn conflicts(settings: &[Setting], given: &Values) -> Vec<Mistake> {
    let mut all = given.clone();
    add_settings(&mut all, settings);
    let mistake = |Conflict { option, what, hint }: Conflict| {
        let setting = settings.iter().find(|setting| setting.name == option)?;
        // Settings have no dashes.
        let what = what.replace("--", "");
        Some(setting.mistake(Wrong { what, hint: hint.to_owned() }))
    };
    combinations::find(&all).into_iter().filter_map(mistake).collect()
}

/// Finds a VCL file beside backends or rules.
fn check_vcl(settings: &[Setting]) -> Option<Mistake> {
    let vcl = settings.iter().find(|setting| setting.name == "vcl")?;
    let is_rule = |setting: &&Setting| setting.name == "backend" || RULES.contains(&setting.name);
    let rule = settings.iter().find(is_rule)?;
    Some(vcl.mistake(Wrong {
        what: format!("it cannot be combined with {}", rule.name),
        hint: "a VCL file has its own backends and rules".to_owned(),
    }))
}

fn check_value(setting: &Setting) -> Result<(), Wrong> {
    let value = setting.value.as_str();
    let wrong = |failure: Failure| without_option(failure, setting.name, value);
    let plain = |what: String, hint: &str| Wrong { what, hint: hint.to_owned() };
    match setting.name {
        "backend" => {
            let backend = parse_backend(value).map_err(wrong)?;
            Site::default().add_backend(&backend)
        }
        "listen" | "https-listen" => Listen::parse(setting.name, value).map(drop).map_err(wrong),
        "https" => https::check_names(value).map_err(wrong),
        "email" => check_contacts(value).map_err(|what| plain(what, "write one such as me@example.org")),
        "admin" => admin::parse(value).map(drop).map_err(wrong),
        "web" => {
            web::parse(value).map_err(wrong)?;
            check_admin(value).map_err(|what| plain(what, "see docs/admin.md for its options"))
        }
        "otlp" => check_admin(&format!("otlp={value}")).map_err(|what| plain(what, "see docs/otlp.md")),
        "storage" => {
            let argument = storage(Some(value)).map_err(wrong)?;
            check_storage(&argument)
                .map_err(|what| plain(what, "write a size such as 512M, or disk,FILE,size=10G"))
        }
        "log" => Format::parse(value).map(drop).map_err(|hint| plain("it is not a format".to_owned(), &hint)),
        "log-to" => {
            Target::parse(value).map(drop).map_err(|hint| plain("it is not a destination".to_owned(), &hint))
        }
        _ => Ok(()),
    }
}

/// Returns the failure of an option as the mistake of a setting, whose place shows the name and the value.
fn without_option(failure: Failure, name: &str, value: &str) -> Wrong {
    let (what, hint) = failure.texts();
    let option = format!("--{name} {value}: ");
    let what = what.strip_prefix(&option).unwrap_or(&what).to_owned();
    Wrong { what, hint: hint.unwrap_or_else(|| "see lacquer run --help".to_owned()) }
}
