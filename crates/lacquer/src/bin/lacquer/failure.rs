//! The failure of a command: a reason, and a hint for the user.

use std::fmt::Display;
use std::process::ExitCode;

use lacquer_inspect::page::wrap;

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
        eprint!("{}", self.text());
        ExitCode::from(2)
    }

    /// Returns what `report` prints: the reason, and the hint in lines that fit.
    fn text(&self) -> String {
        let mut text = format!("lacquer: {}\n", self.what);
        for line in self.hint.iter().flat_map(|hint| hint.lines()) {
            wrap(&mut text, "         ", line);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_hints_are_wrapped() {
        let text = Failure::new("wrong").hint("some words ".repeat(30)).text();
        assert!(
            text.starts_with("lacquer: wrong\n         some words") && text.lines().count() > 3,
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}
