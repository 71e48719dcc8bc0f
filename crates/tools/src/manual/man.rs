//! Manual pages in the language of man(7).

use std::fmt::Write as _;

use super::{Flag, Program, Reference, Subcommand};

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
    add_see_also(program.see_also, &mut page);
    page
}

/// Returns the page of a reference, in section 7.
pub fn man_of_reference(reference: &Reference) -> String {
    let name = reference.name;
    let title = name.to_ascii_uppercase();
    let mut page = format!(".TH {title} 7 \"\" \"{}\" \"Reference\"\n", plain(&reference.version));
    // Names are long: a line may consist of one, and cannot be adjusted.
    let _ =
        write!(page, ".ad l\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n", plain(name), plain(reference.summary));
    add_marked(&reference.about, ".PP", &mut page);
    for group in &reference.groups {
        let _ = writeln!(page, ".SH \"{}\"", plain(&group.title.to_ascii_uppercase()));
        add_marked(&group.about, ".PP", &mut page);
        for entry in &group.entries {
            let _ = write!(page, ".TP\n.B {}\n", plain(&entry.name));
            if !entry.facts.is_empty() {
                let _ = write!(page, "{}\n.br\n", marked(&entry.facts.join("; ")));
            }
            add_marked(&entry.text, ".br", &mut page);
        }
    }
    add_see_also(reference.see_also, &mut page);
    page
}

/// Adds the lines of a text, each after a request but the first one of an entry.
fn add_marked(text: &str, request: &str, page: &mut String) {
    for (at, text) in text.lines().filter(|text| !text.is_empty()).enumerate() {
        if at > 0 || request == ".PP" {
            let _ = writeln!(page, "{request}");
        }
        let _ = writeln!(page, "{}", marked(text));
    }
}

/// Returns a line in which code between backticks is bold.
fn marked(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.trim().split('`').enumerate() {
        match at % 2 {
            0 => out.push_str(&plain(part)),
            _ => {
                let _ = write!(out, "\\fB{}\\fR", plain(part));
            }
        }
    }
    if out.starts_with('.') { format!("\\&{out}") } else { out }
}

fn add_see_also(others: &[&str], page: &mut String) {
    if !others.is_empty() {
        let pages: Vec<String> = others.iter().map(|other| format!("\\fB{}\\fR", plain(other))).collect();
        let _ = write!(page, ".SH \"SEE ALSO\"\n{}\n", pages.join(", "));
    }
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
