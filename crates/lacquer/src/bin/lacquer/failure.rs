//! The failure of a command: a reason, and a hint for the user.

use std::fmt::Display;
use std::process::ExitCode;

use lacquer_inspect::page::wrap;
use serde_json::json;

#[derive(Debug, PartialEq)]
pub struct Failure {
    what: String,
    hint: Option<String>,
    /// The command line to which it belongs, if it is reported as JSON.
    json_for: Option<String>,
}

impl Failure {
    pub fn new(what: impl Display) -> Self {
        Self { what: what.to_string(), hint: None, json_for: None }
    }

    pub fn hint(self, hint: impl Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    /// Returns the failure of a command that talks to a daemon.
    pub fn of(fault: lacquer_inspect::Fault) -> Self {
        Self::new(fault.what).hint(fault.hint)
    }

    /// Lets the failure be reported as JSON, for a command line.
    pub fn in_json(self, command: String) -> Self {
        Self { json_for: Some(command), ..self }
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

    /// Returns what `report` prints: the reason, and the hint in lines that fit, or an object of JSON.
    fn text(&self) -> String {
        if let Some(command) = &self.json_for {
            return format!("{}\n", json!({"error": self.what, "where": command, "hint": self.hint}));
        }
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

    #[test]
    fn an_object_has_reason_place_and_hint() {
        let failure = Failure::new("a \"b\"\nc").in_json("lacquer stat -n x".to_owned());
        let text = failure.text();
        assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        let found: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(found, json!({"error": "a \"b\"\nc", "where": "lacquer stat -n x", "hint": null}));
    }
}
