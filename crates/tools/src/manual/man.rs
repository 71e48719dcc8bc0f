//! Manual pages in the language of man(7).

use std::fmt::Write as _;

use super::{Flag, Program, Subcommand};

/// Returns the page of a program.
pub fn man(program: &Program) -> String {
    let name = program.name;
    let title = name.to_ascii_uppercase();
    let mut page = format!(".TH {title} 1 \"\" \"{}\" \"User Commands\"\n", plain(&program.version));
    let _ = write!(
        page,
        ".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n",
        plain(name),
        plain(program.summary),
        plain(name)
    );
    let usage =
        if program.commands.is_empty() { "[\\fIoptions\\fR]" } else { "\\fIcommand\\fR [\\fIoptions\\fR]" };
    let _ = write!(page, "{usage}\n.SH DESCRIPTION\n");
    paragraphs(program.about, &mut page);
    if !program.commands.is_empty() {
        page.push_str(".SH COMMANDS\n");
        for command in &program.commands {
            add_command(name, command, &mut page);
        }
    }
    for (group, options) in &program.groups {
        let _ = writeln!(page, ".SH \"{}\"", plain(&group.to_ascii_uppercase()));
        add_options(options, &mut page);
    }
    if !program.see_also.is_empty() {
        let pages: Vec<String> =
            program.see_also.iter().map(|other| format!("\\fB{}\\fR", plain(other))).collect();
        let _ = write!(page, ".SH \"SEE ALSO\"\n{}\n", pages.join(", "));
    }
    page
}

fn add_command(program: &str, command: &Subcommand, page: &mut String) {
    let _ = write!(page, ".SS \"{} {}", plain(program), plain(command.name));
    if !command.options.is_empty() {
        page.push_str(" [options]");
    }
    if let Some((what, _)) = command.operand {
        let _ = write!(page, " {}", plain(what));
    }
    page.push_str("\"\n");
    paragraphs(command.about, page);
    if let Some((what, help)) = command.operand {
        let _ = write!(page, ".TP\n.I {}\n{}\n", plain(what), line(help));
    }
    add_options(&command.options, page);
    if !command.examples.is_empty() {
        page.push_str(".PP\nExamples:\n");
    }
    for (typed, effect) in command.examples {
        let _ = write!(page, ".TP\n.B {}\n{}\n", plain(typed), line(effect));
    }
}

fn add_options(options: &[Flag], page: &mut String) {
    for option in options {
        let _ = write!(page, ".TP\n\\fB{}\\fR", plain(&option.dashed()));
        if !option.value.is_empty() {
            let _ = write!(page, " \\fI{}\\fR", plain(option.value));
        }
        page.push('\n');
        let lines: Vec<String> = option.help.lines().map(line).collect();
        let _ = writeln!(page, "{}", lines.join("\n.br\n"));
    }
}

/// Adds a text whose paragraphs are separated by empty lines.
fn paragraphs(text: &str, page: &mut String) {
    for paragraph in text.split("\n\n") {
        page.push_str(".PP\n");
        for text in paragraph.lines() {
            let _ = writeln!(page, "{}", line(text));
        }
    }
}

/// Returns a text without characters that have a meaning in the language.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '"' => out.push_str("\\(dq"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns a line of text. A dot at its beginning is not a request.
fn line(text: &str) -> String {
    let text = plain(text.trim());
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}
