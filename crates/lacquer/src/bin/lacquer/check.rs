//! `lacquer check`: compiles a VCL file with the daemon's own compiler and prints the diagnostics.

use crate::args::Values;
use crate::failure::Failure;
use lacquer_manager::{Machine, show};
use lacquer_vcl::{Diagnostic, Options, Severity};
use std::fs;
use std::io::{self, Read};
use std::process::ExitCode;

/// So many errors are shown at once; after more, later ones are mostly echoes.
const MAX_ERRORS: usize = 10;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand.as_deref().unwrap_or("-");
    let name = if file == "-" { "<stdin>" } else { file };
    let around = Around::new(values.many("storage"), values.many("label"));
    let diagnostics = diagnose(name, &read(file)?, &around);
    for d in &diagnostics {
        show(&format!("{}\n", d.pretty()));
    }
    show(&format!("{name}: {}\n", verdict(&diagnostics)));
    let correct = count(&diagnostics, Severity::Error) == 0;
    Ok(if correct { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Before the daemon is started with a file: shows what is wrong with it in our words.
pub fn ensure_correct(file: &str) -> Result<(), Failure> {
    let diagnostics = diagnose(file, &read(file)?, &Around::new(&[], &[]));
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

/// Names that a daemon has and a file alone does not.
struct Around {
    storages: Vec<String>,
    labels: Vec<String>,
}

impl Around {
    /// The storages of a daemon that was given none, and those that were named.
    fn new(storages: &[String], labels: &[String]) -> Around {
        let usual = ["s0", "Transient"].map(str::to_owned);
        Around { storages: [&usual, storages].concat(), labels: labels.to_vec() }
    }
}

/// Errors and warnings, then what is correct but likely to hurt.
fn diagnose(name: &str, text: &[u8], around: &Around) -> Vec<Diagnostic> {
    let machine = Machine;
    // Includes beside the file are found by its full name.
    let absolute = std::path::absolute(name).ok().filter(|path| path.exists());
    let absolute = absolute.as_deref().map(std::path::Path::to_string_lossy);
    let name = absolute.as_deref().unwrap_or(name);
    let mut options = Options::new(lacquer_vmods::catalogue(), &machine, &machine);
    options.max_errors = MAX_ERRORS;
    (options.storages, options.labels) = (&around.storages, &around.labels);
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
    fn diagnostics_name_place_and_problem() {
        let good =
            "vcl 4.1;\nimport std;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { std.log(\"x\"); }\n";
        assert_eq!(
            count(&diagnose("good.vcl", good.as_bytes(), &Around::new(&[], &[])), Severity::Error),
            0,
            "{:?}",
            diagnose("good.vcl", good.as_bytes(), &Around::new(&[], &[]))
        );
        let bad = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { set req.nothing = 1; }\n";
        let found = diagnose("bad.vcl", bad.as_bytes(), &Around::new(&[], &[]));
        assert_eq!(count(&found, Severity::Error), 1);
        assert!(found[0].pretty().contains("bad.vcl:3"), "{}", found[0].pretty());
    }
}
