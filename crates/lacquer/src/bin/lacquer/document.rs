//! `lacquer document`: prints manual pages and shell completions of both programs, for packages.

use std::process::ExitCode;

use lacquer_manager::{OPTIONS, show as print};
use lacquer_tools::manual::{self, Flag, Program};

use crate::COMMANDS;
use crate::args::Values;
use crate::failure::Failure;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let program = match values.one("program") {
        None | Some("lacquer") => lacquer(),
        Some("lacquerd") => lacquerd(),
        Some(other) => {
            let what = format_args!("--program {other}: there is no such program");
            return Err(Failure::new(what).hint("write lacquer or lacquerd"));
        }
    };
    let write: fn(&Program) -> String = match values.operand().unwrap_or_default() {
        "man" => manual::man,
        "bash" => manual::bash,
        "zsh" => manual::zsh,
        "fish" => manual::fish,
        other => {
            return Err(
                Failure::new(format_args!("there is no format {other}")).hint("write man, bash, zsh or fish")
            );
        }
    };
    print(&write(&program));
    Ok(ExitCode::SUCCESS)
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
        see_also: &["lacquerd(1)"],
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
        see_also: &["lacquer(1)"],
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
