//! Completion for zsh.

use std::fmt::Write as _;

use super::{Flag, Program, Subcommand, first_line};

/// Returns the completion of a program.
pub fn zsh(program: &Program) -> String {
    let name = program.name;
    let mut text = format!("#compdef {name}\n# Completion of {name} for zsh.\n_{name}() {{\n");
    if program.commands.is_empty() {
        text.push_str("    _arguments");
        program.own_options().for_each(|option| add_option(option, &mut text));
        text.push_str(" '*:file:_files'\n");
    } else {
        add_commands(program, &mut text);
    }
    let _ = writeln!(text, "}}\n_{name} \"$@\"");
    text
}

fn add_commands(program: &Program, text: &mut String) {
    text.push_str("    local -a choices\n    local command=$words[2]\n    if (( CURRENT == 2 )); then\n        choices=(\n");
    for first in program.first_words() {
        let below = program.below(first);
        let alone = program.commands.iter().find(|command| command.name == first);
        let summary = alone.or(below.first().copied()).map_or("", |command| command.summary);
        let _ = writeln!(text, "            '{first}:{}'", quoted(summary));
    }
    text.push_str("        )\n        _describe command choices\n        return\n    fi\n");
    for family in program.families() {
        let _ = writeln!(
            text,
            "    if [[ $command == {family} ]]; then\n        if (( CURRENT == 3 )); then\n            choices=("
        );
        for command in program.below(family) {
            let second = command.words().1.unwrap_or_default();
            let _ = writeln!(text, "                '{second}:{}'", quoted(command.summary));
        }
        text.push_str("            )\n            _describe command choices\n            return\n        fi\n        command=\"$command $words[3]\"\n    fi\n");
    }
    text.push_str("    case $command in\n");
    for command in &program.commands {
        add_command(command, text);
    }
    text.push_str("    esac\n");
}

fn add_command(command: &Subcommand, text: &mut String) {
    let _ = write!(text, "        ('{}') _arguments", command.name);
    command.options.iter().for_each(|option| add_option(option, text));
    text.push_str(" '--help[describe the command]' '*:file:_files' ;;\n");
}

fn add_option(option: &Flag, text: &mut String) {
    let help = quoted(first_line(&option.help)).replace('[', "\\[").replace(']', "\\]");
    let _ = write!(text, " \\\n            '*{}", option.dashed());
    if option.is_long() && !option.value.is_empty() {
        text.push('=');
    }
    let _ = write!(text, "[{help}]");
    if !option.value.is_empty() {
        let _ = write!(text, ":{}:_files", quoted(option.value).replace(['[', ']', '<', '>'], ""));
    }
    text.push('\'');
}

/// Returns a text for single quotes, in which colons do not separate.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\'', "'\\''").replace(':', "\\:")
}
