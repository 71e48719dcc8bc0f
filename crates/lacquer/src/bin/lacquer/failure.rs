//! The failure of a command: a reason, and a hint for the user.

use std::fmt::Display;
use std::process::ExitCode;

#[derive(Debug, PartialEq)]
pub struct Failure {
    what: String,
    hint: Option<String>,
}

impl Failure {
    pub fn new(what: impl Display) -> Self {
        Self { what: what.to_string(), hint: None }
    }

    pub fn hint(self, hint: impl Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    /// Returns the failure of a command that talks to a daemon.
    pub fn of(fault: lacquer_inspect::Fault) -> Self {
        Self::new(fault.what).hint(fault.hint)
    }

    /// Returns reason and hint.
    pub fn texts(self) -> (String, Option<String>) {
        (self.what, self.hint)
    }

    /// Prints the failure and returns exit code 2, which varnishd uses for errors of its command line.
    pub fn report(&self) -> ExitCode {
        eprintln!("lacquer: {}", self.what);
        if let Some(hint) = &self.hint {
            eprintln!("         {hint}");
        }
        ExitCode::from(2)
    }
}
