//! `lacquer document`: prints manual pages and shell completions of both programs, and the pages of the reference.

use std::process::ExitCode;

use lacquer_manager::{OPTIONS, show as print};
use lacquer_tools::manual::{self, Flag, Program, Reference};

use crate::COMMANDS;
use crate::args::Values;
use crate::failure::Failure;
use crate::reference::REFERENCES;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let name = values.one("program").unwrap_or("lacquer");
    let format = values.operand().unwrap_or_default();
    let text = if let Some((_, reference)) = REFERENCES.iter().find(|(other, _)| *other == name) {
        of_reference(&reference(version()), format)
    } else {
        match name {
            "lacquer" => of_program(&lacquer(), format),
            "lacquerd" => of_program(&lacquerd(), format),
            other => {
                let names: Vec<&str> = REFERENCES.iter().map(|(name, _)| *name).collect();
                let what = format_args!("--program {other}: there is no such program");
                return Err(Failure::new(what).hint(format!("write lacquer, lacquerd, {}", names.join(", "))));
            }
        }
    };
    let text = text.ok_or_else(|| {
        let hint = "write man or markdown, or for a program bash, zsh or fish";
        Failure::new(format_args!("there is no format {format}")).hint(hint)
    })?;
    print(&text);
    Ok(ExitCode::SUCCESS)
}

fn of_program(program: &Program, format: &str) -> Option<String> {
    let write: fn(&Program) -> String = match format {
        "man" => manual::man,
        "markdown" => manual::page,
        "bash" => manual::bash,
        "zsh" => manual::zsh,
        "fish" => manual::fish,
        _ => return None,
    };
    Some(write(program))
}

fn of_reference(reference: &Reference, format: &str) -> Option<String> {
    let write: fn(&Reference) -> String = match format {
        "man" => manual::man_of_reference,
        "markdown" => manual::page_of_reference,
        _ => return None,
    };
    Some(write(reference))
}

fn version() -> String {
    format!("Lacquer {}", env!("CARGO_PKG_VERSION"))
}

fn lacquer() -> Program {
    Program {
        name: "lacquer",
        version: version(),
        summary: "run and inspect an HTTP cache",
        about: "Lacquer stores copies of the responses of a web server and serves them fast.\n\
                This program starts a cache without configuration, and has the tools for those who write VCL.\n\
                The daemon is lacquerd(1).",
        commands: COMMANDS.iter().map(crate::args::Command::describe).collect(),
        groups: Vec::new(),
        see_also: &[
            "lacquerd(1)",
            "lacquer-params(7)",
            "lacquer-counters(7)",
            "lacquer-tags(7)",
            "lacquer-vcl(7)",
        ],
    }
}

fn lacquerd() -> Program {
    Program {
        name: "lacquerd",
        version: version(),
        summary: "HTTP cache, programmed in VCL",
        about: "The daemon has the options of varnishd, its management protocol, and its log and counters in shared\n\
                memory.\n\n\
                The Debian package starts it as the service lacquer, with the options of /etc/lacquer/settings.",
        commands: Vec::new(),
        groups: OPTIONS.iter().map(|(title, rows)| (*title, flags(rows))).collect(),
        see_also: &["lacquer(1)", "lacquer-params(7)", "lacquer-cli(7)", "lacquer-vcl(7)"],
    }
}

/// Converts rows of syntax and meaning. A row whose syntax is not an option belongs to the option before it.
fn flags(rows: &[(&'static str, &'static str)]) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for (syntax, meaning) in rows {
        let meaning = meaning.trim();
        let option = syntax.trim_start_matches('[').strip_prefix('-');
        let name = option.and_then(|option| option.get(..1));
        let last = flags.last_mut();
        match (name, last) {
            (Some(name), Some(last)) if last.name == name => add(&mut last.help, syntax, meaning),
            (Some(name), _) => {
                let value = option.map_or("", |option| option[1..].trim());
                // The rest of such a value is in the next row.
                let value = if name == "a" { "[name=]address[,protocol][,option=value...]" } else { value };
                flags.push(Flag { name, value, help: meaning.to_owned() });
            }
            (None, Some(last)) => add(&mut last.help, syntax, meaning),
            (None, None) => {}
        }
    }
    flags
}

fn add(help: &mut String, syntax: &str, meaning: &str) {
    let syntax = syntax.trim().trim_end_matches(':');
    help.push('\n');
    if !syntax.is_empty() && !syntax.starts_with("[,PROTO") {
        help.push_str(syntax);
        help.push_str(": ");
    }
    help.push_str(meaning);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Run with `UPDATE=1` to write the pages.
    #[test]
    fn the_reference_is_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let programs = [lacquer(), lacquerd()].map(|program| (program.name, manual::page(&program)));
        let references = REFERENCES.iter().map(|(name, reference)| {
            let page = manual::page_of_reference(&reference(version()));
            (name.trim_start_matches("lacquer-"), page)
        });
        for (name, text) in programs.into_iter().chain(references) {
            let path = folder.join(name).with_extension("md");
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, &text).expect("writable");
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            let hint = "run UPDATE=1 cargo test -p lacquer --bin lacquer reference";
            assert!(found == text, "docs/reference/{name}.md differs from the tables: {hint}");
        }
    }

    #[test]
    fn every_entry_of_the_reference_has_a_meaning() {
        for (name, reference) in REFERENCES {
            let reference = reference(version());
            let entries = reference.groups.iter().flat_map(|group| &group.entries);
            let empty: Vec<&str> = entries
                .clone()
                .filter(|entry| entry.text.is_empty() && entry.facts.is_empty())
                .map(|entry| entry.name.as_str())
                .collect();
            assert!(empty.is_empty() && entries.count() >= 30, "{name}: {empty:?}");
        }
    }

    #[test]
    fn every_command_and_option_is_documented() {
        let page = manual::man(&lacquer());
        for command in COMMANDS {
            assert!(
                page.contains(&format!(".SS \"lacquer {}", command.name.replace('-', "\\-"))),
                "{}",
                command.name
            );
        }
        let letters = "aAbCdfFhiIjlMnPprsSTtVWx?".chars();
        let names: Vec<&str> =
            lacquerd().groups.iter().flat_map(|(_, flags)| flags).map(|flag| flag.name).collect();
        for letter in letters {
            assert_eq!(names.iter().filter(|name| **name == letter.to_string()).count(), 1, "-{letter}");
        }
    }
}
