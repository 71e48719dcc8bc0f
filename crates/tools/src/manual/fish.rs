//! Completion for fish.

use std::fmt::Write as _;

use super::{Flag, Program, first_line};

/// Returns the completion of a program.
pub fn fish(program: &Program) -> String {
    let name = program.name;
    let mut text = format!("# Completion of {name} for fish.\n");
    for option in program.own_options() {
        let _ = writeln!(text, "complete -c {name}{}", described(option));
    }
    for first in program.first_words() {
        let alone = program.commands.iter().find(|command| command.name == first);
        let summary = alone.or(program.below(first).first().copied()).map_or("", |command| command.summary);
        let _ = writeln!(
            text,
            "complete -c {name} -f -n __fish_use_subcommand -a {first} -d '{}'",
            quoted(summary)
        );
    }
    for family in program.families() {
        let second: Vec<&str> =
            program.below(family).iter().filter_map(|command| command.words().1).collect();
        let all = second.join(" ");
        let condition =
            format!("__fish_seen_subcommand_from {family}; and not __fish_seen_subcommand_from {all}");
        let _ = writeln!(text, "complete -c {name} -f -n '{condition}' -a '{all}'");
    }
    for command in &program.commands {
        let (first, second) = command.words();
        let mut condition = format!("__fish_seen_subcommand_from {first}");
        match second {
            Some(second) => {
                let _ = write!(condition, "; and __fish_seen_subcommand_from {second}");
            }
            None => {
                for family in program.families() {
                    let _ = write!(condition, "; and not __fish_seen_subcommand_from {family}");
                }
            }
        }
        for option in &command.options {
            let _ = writeln!(text, "complete -c {name} -n '{condition}'{}", described(option));
        }
    }
    text
}

fn described(option: &Flag) -> String {
    let kind = if option.is_long() { "-l" } else { "-s" };
    let value = if option.value.is_empty() { "" } else { " -r" };
    let name = if option.name == "?" { "'?'" } else { option.name };
    format!(" {kind} {name}{value} -d '{}'", quoted(first_line(&option.help)))
}

/// Returns a text for single quotes.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "\\'")
}
