//! Counts diagnostics of files, and prints them before a command fails because of them.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use lacquer_tools::report;
use lacquer_vcl::{Diagnostic, Severity};

use crate::colors;

/// Prints diagnostics to standard error.
pub fn print(diagnostics: &[Diagnostic]) {
    let has_colors = colors::wanted(io::stderr().is_terminal());
    for d in diagnostics {
        eprintln!("{}", report::text(d, has_colors));
    }
}

pub fn count(diagnostics: &[Diagnostic], severity: Severity) -> usize {
    diagnostics.iter().filter(|d| d.severity == severity).count()
}

/// Returns the number of errors and warnings in words.
pub fn verdict(diagnostics: &[Diagnostic]) -> String {
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

/// Returns the exit code of a command that has examined files.
pub fn exit_code(is_unreadable: bool, is_correct: bool) -> ExitCode {
    match (is_unreadable, is_correct) {
        (true, _) => ExitCode::from(2),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}
