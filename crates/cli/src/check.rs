//! Checks a command before it is run: that it exists, that the client may run it, that it has a JSON reply
//! if one is requested, and that the number of its arguments is valid.

use crate::command_table::{CommandSpec, find};
use crate::status;

/// A command that may be run.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// The command to run.
    pub spec: &'static CommandSpec,
    /// Whether the reply is JSON, because the second word is `-j`.
    pub json: bool,
}

/// The command that may be run, or the status and text of the reply. `None` is a well-formed command that the table
/// does not contain.
pub type CheckResult = Result<Option<Checked>, (u16, String)>;

/// Checks the words of a command.
pub fn check(words: &Result<Vec<String>, &'static str>, authenticated: bool) -> CheckResult {
    let words = match words {
        Ok(words) => words,
        Err(fault) => return Err((status::SYNTAX, format!("Syntax Error: {fault}\n"))),
    };
    let Some(name) = words.first() else {
        return Err((status::SYNTAX, "Empty CLI command.\n".to_owned()));
    };
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err((status::UNKNOWN, "All commands are in lower-case.\n".to_owned()));
    }
    let Some(spec) = find(name).filter(|spec| authenticated || spec.open) else {
        if authenticated {
            return Ok(None);
        }
        return Err((status::UNKNOWN, "Unknown request.\nType 'help' for more info.\n".to_owned()));
    };
    let json = words.get(1).is_some_and(|word| word == "-j");
    if json && !spec.json {
        return Err((status::UNIMPLEMENTED, "JSON unimplemented\n".to_owned()));
    }
    let given = words.len() - 1;
    if given < spec.min + usize::from(json) {
        return Err((status::TOO_FEW, "Too few parameters\n".to_owned()));
    }
    if spec.max.is_some_and(|max| given > max + usize::from(json)) {
        return Err((status::TOO_MANY, "Too many parameters\n".to_owned()));
    }
    Ok(Some(Checked { spec, json }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(line: &str, authenticated: bool) -> u16 {
        let words = lacquer_params::tokenize::split(line, lacquer_params::tokenize::Rules::COMMAND);
        check(&words, authenticated).map_or_else(|(status, _)| status, |_| 200)
    }

    #[test]
    fn checks_return_the_status() {
        for (line, status) in [
            ("help", 200),
            ("FOO?", 101),
            ("\"", 100),
            ("", 100),
            ("help  1 2 3", 105),
            ("vcl.load x", 104),
            ("debug.panic.master -j", 102),
            ("param.set -j a b", 200),
            ("ban a b c && d e f", 200),
            ("not.known", 200),
        ] {
            assert_eq!(status_of(line, true), status, "{line}");
        }
        assert_eq!(status_of("param.show", false), 101);
        assert_eq!(status_of("ping", false), 200);
    }
}
