//! `lacquer check`: compiles a VCL file with the daemon's own compiler and prints the diagnostics.

use crate::args::Values;
use crate::failure::Failure;
use lacquer_manager::{Machine, show};
use lacquer_vcl::{Diagnostic, Options, Severity};
use std::fs;
use std::io::{self, Read};
use std::process::ExitCode;

/// Maximum number of errors to print. Later ones are mostly consequences of earlier ones.
const MAX_ERRORS: usize = 10;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand.as_deref().unwrap_or("-");
    let name = if file == "-" { "<stdin>" } else { file };
    let names = DaemonNames::new(values.many("storage"), values.many("label"));
    let diagnostics = diagnose(name, &read(file)?, &names);
    for d in &diagnostics {
        show(&format!("{}\n", d.pretty()));
    }
    show(&format!("{name}: {}\n", verdict(&diagnostics)));
    let correct = count(&diagnostics, Severity::Error) == 0;
    Ok(if correct { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compiles a file before the daemon starts, so that errors are printed in the format of `lacquer check`.
pub fn ensure_correct(file: &str) -> Result<(), Failure> {
    let diagnostics = diagnose(file, &read(file)?, &DaemonNames::new(&[], &[]));
    if count(&diagnostics, Severity::Error) == 0 {
        return Ok(());
    }
    for d in &diagnostics {
        eprintln!("{}", d.pretty());
    }
    Err(Failure::new(format_args!("{file}: {}", verdict(&diagnostics))))
}

fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let bytes = if file == "-" {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    bytes.map_err(|error| Failure::new(format_args!("{file}: {error}")))
}

/// Names that the daemon's options define and a VCL file may refer to.
struct DaemonNames {
    storages: Vec<String>,
    labels: Vec<String>,
}

impl DaemonNames {
    /// Adds the given storages to those of a daemon without `-s`.
    fn new(storages: &[String], labels: &[String]) -> DaemonNames {
        let usual = ["s0", "Transient"].map(str::to_owned);
        DaemonNames { storages: [&usual, storages].concat(), labels: labels.to_vec() }
    }
}

/// Returns errors and warnings of the compiler, and lints for a correct file.
fn diagnose(name: &str, text: &[u8], names: &DaemonNames) -> Vec<Diagnostic> {
    let machine = Machine::new();
    // The absolute name makes the compiler find includes in the same folder.
    let absolute = std::path::absolute(name).ok().filter(|path| path.exists());
    let absolute = absolute.as_deref().map(std::path::Path::to_string_lossy);
    let name = absolute.as_deref().unwrap_or(name);
    let mut options = Options::new(lacquer_vmods::catalogue(), &machine, &machine);
    options.max_errors = MAX_ERRORS;
    options.strict_hosts = false;
    (options.storages, options.labels) = (&names.storages, &names.labels);
    match lacquer_vcl::compile(name, text, &options) {
        Ok(mut compiled) => {
            compiled.warnings.extend(lacquer_vcl::lint(&compiled.program));
            compiled.warnings
        }
        Err(diagnostics) => diagnostics,
    }
}

fn count(diagnostics: &[Diagnostic], severity: Severity) -> usize {
    diagnostics.iter().filter(|d| d.severity == severity).count()
}

fn verdict(diagnostics: &[Diagnostic]) -> String {
    let errors = count(diagnostics, Severity::Error);
    let warnings = count(diagnostics, Severity::Warning);
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    match (errors, warnings) {
        (0, 0) => "correct".to_owned(),
        (0, w) => format!("correct, with {}", plural(w, "warning")),
        (e, 0) => plural(e, "error"),
        (e, w) => format!("{}, {}", plural(e, "error"), plural(w, "warning")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_contain_line_and_problem() {
        let good =
            "vcl 4.1;\nimport std;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { std.log(\"x\"); }\n";
        assert_eq!(
            count(&diagnose("good.vcl", good.as_bytes(), &DaemonNames::new(&[], &[])), Severity::Error),
            0,
            "{:?}",
            diagnose("good.vcl", good.as_bytes(), &DaemonNames::new(&[], &[]))
        );
        let bad = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { set req.nothing = 1; }\n";
        let found = diagnose("bad.vcl", bad.as_bytes(), &DaemonNames::new(&[], &[]));
        assert_eq!(count(&found, Severity::Error), 1);
        assert!(found[0].pretty().contains("bad.vcl:3"), "{}", found[0].pretty());
    }
}
