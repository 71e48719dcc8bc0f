//! The failure of a command: the reason, and advice for the user.

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

    /// Prints the failure; 2 is the exit code varnishd uses for the same kind of trouble.
    pub fn report(&self) -> ExitCode {
        eprintln!("lacquer: {}", self.what);
        if let Some(hint) = &self.hint {
            eprintln!("         {hint}");
        }
        ExitCode::from(2)
    }
}
