//! Pages of the documentation, in Markdown.

use std::fmt::Write as _;

use super::{Flag, Program, Reference};

/// Returns the page of a program.
pub fn page(program: &Program) -> String {
    let mut page =
        format!("# {}\n\n{}.\n\n{}\n", program.name, sentence(program.summary), plain(program.about));
    for command in &program.commands {
        let _ = write!(page, "\n## {} {}\n\n", program.name, command.name);
        let operand = command.operand.map(|(what, _)| format!(" {what}")).unwrap_or_default();
        let options = if command.options.is_empty() { "" } else { " [options]" };
        let _ = write!(
            page,
            "    {} {}{options}{operand}\n\n{}\n",
            program.name,
            command.name,
            plain(command.about)
        );
        if let Some((what, help)) = command.operand {
            let _ = write!(page, "\n`{what}`: {}.\n", plain(help));
        }
        add_options(&command.options, &mut page);
        if !command.examples.is_empty() {
            page.push_str("\nExamples:\n\n");
        }
        for (typed, effect) in command.examples {
            let _ = writeln!(page, "- `{typed}`: {}", plain(effect));
        }
    }
    for (group, options) in &program.groups {
        let _ = write!(page, "\n## {}\n", plain(group));
        add_options(options, &mut page);
    }
    page
}

fn add_options(options: &[Flag], page: &mut String) {
    if options.is_empty() {
        return;
    }
    page.push_str("\n| option | meaning |\n|---|---|\n");
    for option in options {
        let blank = if option.value.is_empty() { "" } else { " " };
        let syntax = format!("{}{blank}{}", option.dashed(), option.value).replace('|', "\\|");
        let lines: Vec<String> = option.help.lines().map(|line| plain(line).replace('|', "\\|")).collect();
        let _ = writeln!(page, "| `{syntax}` | {} |", lines.join("<br>"));
    }
}

/// Returns the page of a reference.
pub fn page_of_reference(reference: &Reference) -> String {
    let mut page = format!("# {}\n\n{}\n", reference.title, plain(&reference.about));
    for group in &reference.groups {
        let _ = write!(page, "\n## {}\n", plain(&group.title));
        if !group.about.is_empty() {
            let _ = write!(page, "\n{}\n", plain(&group.about));
        }
        for entry in &group.entries {
            let _ = write!(page, "\n### `{}`\n", entry.name);
            if !entry.facts.is_empty() {
                let _ = write!(page, "\n*{}.*\n", plain(&entry.facts.join("; ")));
            }
            if !entry.text.is_empty() {
                let _ = write!(page, "\n{}\n", plain(&entry.text));
            }
        }
    }
    page
}

/// Returns a text with a capital at its beginning.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// Returns a text whose characters have no other meaning in Markdown, except for backticks. An underscore within a word
/// has none.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut is_code, mut is_in_word) = (false, false);
    for c in text.chars() {
        is_code ^= c == '`';
        if !is_code && (matches!(c, '*' | '<' | '>' | '[' | ']') || c == '_' && !is_in_word) {
            out.push('\\');
        }
        is_in_word = c.is_alphanumeric() || c == '_' && is_in_word;
        out.push(c);
    }
    out
}
