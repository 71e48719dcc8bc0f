//! Completion for bash.

use std::fmt::Write as _;

use super::{Flag, Program, Subcommand};

/// Returns the completion of a program.
pub fn bash(program: &Program) -> String {
    let name = program.name;
    if program.commands.is_empty() {
        let options: Vec<String> = program.own_options().map(Flag::dashed).collect();
        return format!("complete -W '{}' -o default {name}\n", options.join(" "));
    }
    let mut text = format!("# Completion of {name} for bash.\n_{name}() {{\n");
    text.push_str(
        "    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\n    COMPREPLY=()\n",
    );
    text.push_str("    if [ \"$COMP_CWORD\" -eq 1 ]; then\n");
    let _ = writeln!(text, "        words='{}'", program.first_words().join(" "));
    text.push_str("    else\n");
    for family in program.families() {
        let second: Vec<&str> =
            program.below(family).iter().filter_map(|command| command.words().1).collect();
        let _ = writeln!(
            text,
            "        if [ \"$command\" = {family} ]; then\n            [ \"$COMP_CWORD\" -gt 2 ] || words='{}'\n            command=\"$command ${{COMP_WORDS[2]}}\"\n        fi",
            second.join(" ")
        );
    }
    text.push_str("        case \"$command\" in\n");
    for command in &program.commands {
        let _ = writeln!(
            text,
            "            '{}') [ -n \"$words\" ] || words='{}' ;;",
            command.name,
            options(command)
        );
    }
    text.push_str("        esac\n    fi\n");
    text.push_str("    case \"$current\" in\n        -*) ;;\n        *) [ \"$COMP_CWORD\" -eq 1 ] || [[ $words != -* ]] || words= ;;\n    esac\n");
    text.push_str("    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}\n");
    let _ = writeln!(text, "complete -o default -F _{name} {name}");
    text
}

fn options(command: &Subcommand) -> String {
    let mut words: Vec<String> = command.options.iter().map(Flag::dashed).collect();
    words.push("--help".to_owned());
    words.join(" ")
}
