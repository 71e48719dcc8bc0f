//! `lacquer check`: compiles VCL files with the daemon's own compiler and prints the diagnostics.

use crate::args::Values;
use crate::colors;
use crate::config;
use crate::failure::Failure;
use crate::findings::{count, exit_code, print, verdict};
use crate::format::{contents, read};
use lacquer_manager::{Machine, show};
use lacquer_tools::{Offline, report};
use lacquer_vcl::{Diagnostic, Options, Resolver, Severity};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

/// Maximum number of errors to print. Later ones are mostly consequences of earlier ones.
const MAX_ERRORS: usize = 10;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let format = values.one("format").unwrap_or("text");
    let output = match format {
        "text" => None,
        "json" => Some(report::json as fn(&[Checked]) -> String),
        "sarif" => Some(report::sarif as fn(&[Checked]) -> String),
        _ => {
            return Err(Failure::new(format_args!("--format {format}: there is no such format"))
                .hint("the formats are text, json and sarif"));
        }
    };
    let denies_warnings = denies_warnings(values.many("deny"))?;
    let settings = Settings::new(values)?;
    let mut checked: Vec<Checked> = Vec::new();
    let mut is_unreadable = false;
    for file in &values.operands {
        let name = if file == "-" { "<stdin>" } else { file };
        let bytes = match contents(file) {
            Ok(bytes) => bytes,
            Err(error) => {
                is_unreadable = true;
                let fault = Diagnostic::plain_error(format!("Cannot be read: {error}\n"));
                checked.push((name.to_owned(), vec![fault]));
                continue;
            }
        };
        let is_config = Path::new(file).extension().is_some_and(|extension| extension == "toml");
        let diagnostics =
            if is_config { config::check(name, &bytes) } else { diagnose(name, &bytes, &settings) };
        checked.push((name.to_owned(), diagnostics));
    }
    match output {
        Some(output) => show(&output(&checked)),
        None => {
            let has_colors = colors::wanted(io::stdout().is_terminal());
            for (name, diagnostics) in &checked {
                let shown = diagnostics.iter().map(|d| report::text(d, has_colors) + "\n");
                show(&format!("{}{name}: {}\n", shown.collect::<String>(), verdict(diagnostics)));
            }
        }
    }
    let is_wrong = |d: &Diagnostic| d.severity == Severity::Error || denies_warnings;
    let is_correct = !checked.iter().flat_map(|(_, diagnostics)| diagnostics).any(is_wrong);
    Ok(exit_code(is_unreadable, is_correct))
}

/// A file and its diagnostics.
type Checked = (String, Vec<Diagnostic>);

fn denies_warnings(denied: &[String]) -> Result<bool, Failure> {
    match denied.iter().find(|what| *what != "warnings") {
        Some(other) => Err(Failure::new(format_args!("--deny {other}: cannot be denied"))
            .hint("write --deny warnings, so that warnings fail like errors")),
        None => Ok(!denied.is_empty()),
    }
}

/// Compiles a file before the daemon starts, so that errors are printed in the format of `lacquer check`.
pub fn ensure_correct(file: &str) -> Result<(), Failure> {
    let diagnostics = diagnose(file, &read(file)?, &Settings::new(&Values::default())?);
    if count(&diagnostics, Severity::Error) == 0 {
        return Ok(());
    }
    print(&diagnostics);
    Err(Failure::new(format_args!("{file}: {}", verdict(&diagnostics))))
}

/// Compiles a text that took the place of a file, without looking up names, and returns its errors. Without `vcl_path`,
/// relative includes are searched beside the file first.
pub fn errors_of(file: &str, text: &[u8], storages: &[String], mut settings: Settings) -> Vec<Diagnostic> {
    settings.is_offline = true;
    settings.is_beside = true;
    settings.storages.extend_from_slice(storages);
    let mut diagnostics = diagnose(file, text, &settings);
    diagnostics.retain(|d| d.severity == Severity::Error);
    diagnostics
}

/// The daemon's options that a VCL file depends on.
pub struct Settings {
    storages: Vec<String>,
    labels: Vec<String>,
    vcl_path: Option<String>,
    is_offline: bool,
    /// Whether relative includes without `vcl_path` are searched beside the file first.
    is_beside: bool,
}

impl Settings {
    /// Adds the given storages to those of a daemon without `-s`.
    pub fn new(values: &Values) -> Result<Settings, Failure> {
        let usual = ["s0", "Transient"].map(str::to_owned);
        let mut vcl_path = None;
        for param in values.many("p") {
            match param.split_once('=') {
                Some(("vcl_path", path)) => vcl_path = Some(path.to_owned()),
                _ => {
                    return Err(Failure::new(format_args!("-p {param}: not used by this command"))
                        .hint("write -p vcl_path=DIR, or several directories with colons between them"));
                }
            }
        }
        Ok(Settings {
            storages: [&usual, values.many("storage")].concat(),
            labels: values.many("label").to_vec(),
            vcl_path,
            is_offline: values.has("offline"),
            is_beside: false,
        })
    }
}

/// Returns errors and warnings of the compiler, and lints for a correct file.
fn diagnose(name: &str, text: &[u8], settings: &Settings) -> Vec<Diagnostic> {
    let machine = Machine::new();
    // The absolute name makes the compiler find includes in the same folder.
    let absolute = std::path::absolute(name).ok().filter(|path| path.exists());
    let absolute = absolute.map(|path| path.to_string_lossy().into_owned());
    let resolver: &dyn Resolver = if settings.is_offline { &Offline } else { &machine };
    let mut options = Options::new(lacquer_vmods::catalogue(), &machine, resolver);
    options.max_errors = MAX_ERRORS;
    options.strict_hosts = false;
    (options.storages, options.labels) = (&settings.storages, &settings.labels);
    let folder = absolute.as_deref().and_then(|file| Path::new(file).parent()).filter(|_| settings.is_beside);
    let usual = folder.map(|folder| format!("{}:{}", folder.display(), options.vcl_path));
    if let Some(path) = settings.vcl_path.as_ref().or(usual.as_ref()) {
        options.vcl_path = path;
    }
    let mut diagnostics = lacquer_tools::diagnose(absolute.as_deref().unwrap_or(name), text, &options);
    if let Some(absolute) = absolute.filter(|absolute| absolute != name) {
        let names = Names { absolute, given: name };
        for diagnostic in &mut diagnostics {
            diagnostic.rename_files(|file| names.shorten(file));
        }
    }
    diagnostics
}

/// A file that the user named by a relative name.
struct Names<'n> {
    absolute: String,
    given: &'n str,
}

impl Names<'_> {
    /// Shortens the name of a file to that which the user gave, or to one relative to the working directory.
    fn shorten(&self, file: &mut String) {
        if *file == self.absolute {
            self.given.clone_into(file);
        } else if let Ok(folder) = std::env::current_dir()
            && let Ok(rest) = Path::new(file.as_str()).strip_prefix(folder)
        {
            *file = rest.to_string_lossy().into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_contain_line_and_problem() {
        let good =
            "vcl 4.1;\nimport std;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { std.log(\"x\"); }\n";
        let settings = Settings::new(&Values::default()).expect("valid");
        let found = diagnose("good.vcl", good.as_bytes(), &settings);
        assert_eq!(count(&found, Severity::Error), 0, "{found:?}");
        let bad = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { set req.nothing = 1; }\n";
        let found = diagnose("bad.vcl", bad.as_bytes(), &settings);
        assert_eq!(count(&found, Severity::Error), 1);
        assert!(found[0].pretty().contains("bad.vcl:3"), "{}", found[0].pretty());
    }
}
