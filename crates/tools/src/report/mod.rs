//! Formats the diagnostics of VCL files for terminals and for other programs.

mod json;
mod sarif;

pub use json::json;
pub use sarif::sarif;

use std::fmt::Write as _;

use lacquer_vcl::{Diagnostic, Severity};

/// Colors of a terminal.
const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const GREEN: &str = "\x1b[1;32m";
const BLUE: &str = "\x1b[1;34m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// Returns a diagnostic as text for a terminal with or without colors.
pub fn text(diagnostic: &Diagnostic, has_colors: bool) -> String {
    let pretty = diagnostic.pretty();
    if !has_colors {
        return pretty;
    }
    let color = if diagnostic.severity == Severity::Error { RED } else { YELLOW };
    let mut out = String::with_capacity(pretty.len() * 2);
    for (number, line) in pretty.lines().enumerate() {
        match line.split_once(": ").filter(|_| number == 0) {
            Some((severity, message)) => {
                let _ = write!(out, "{color}{severity}{PLAIN}{BOLD}: {message}{PLAIN}");
            }
            None => out.push_str(&paint(line, color)),
        }
        out.push('\n');
    }
    out
}

/// Colors a line below the first one: the frame, the marks below an excerpt, and a hint.
fn paint(line: &str, color: &str) -> String {
    if let Some((before, hint)) = line.split_once("= hint: ").filter(|(before, _)| before.trim().is_empty()) {
        return format!("{before}{GREEN}= hint:{PLAIN} {hint}");
    }
    if let Some((before, place)) = line.split_once("--> ").filter(|(before, _)| before.trim().is_empty()) {
        return format!("{before}{BLUE}-->{PLAIN} {place}");
    }
    match line.split_once('|') {
        Some((number, rest)) if number.trim().bytes().all(|b| b.is_ascii_digit()) => {
            let is_marks = number.trim().is_empty() && rest.bytes().all(|b| matches!(b, b' ' | b'^'));
            let rest = if is_marks { format!("{color}{rest}{PLAIN}") } else { rest.to_owned() };
            format!("{BLUE}{number}|{PLAIN}{rest}")
        }
        _ => line.to_owned(),
    }
}

/// Returns the name of the rule that a warning ends with, in brackets.
fn rule(diagnostic: &Diagnostic) -> Option<String> {
    let message = diagnostic.message();
    let name = message.strip_suffix(']')?.rsplit_once(" [")?.1;
    Some(name.to_owned())
}

/// A location as other programs count it: from 1, in characters. The end is the character after the last one.
struct Region {
    line: u32,
    column: usize,
    end_line: u32,
    end_column: usize,
}

fn region(diagnostic: &Diagnostic) -> Option<Region> {
    let place = diagnostic.place()?;
    let column = |text: &[u8], offset: usize| {
        let before = String::from_utf8_lossy(&text[..offset.min(text.len())]);
        before.chars().count() + 1
    };
    let column_of_start = column(&place.text, place.start);
    let (end_line, end_column) = match &place.last {
        Some(last) => (last.line, column(&last.text, place.end)),
        None => (place.line, column(&place.text, place.end).max(column_of_start)),
    };
    Some(Region { line: place.line, column: column_of_start, end_line, end_column })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacquer_vcl::{NoFiles, NoModules, NumericResolver, Options, compile};

    fn diagnostics(text: &str) -> Vec<Diagnostic> {
        let options = Options::new(&NoModules, &NoFiles, &NumericResolver);
        compile("a b.vcl", text, &options).map_or_else(|e| e, |c| lacquer_vcl::lint(&c.program))
    }

    const WRONG: &str = "vcl 4.1;\nbackend b none;\nsub vcl_recv { set req.http.é = req.ulr; }\n";
    const LINTED: &str =
        "vcl 4.1;\nbackend b none;\nsub vcl_recv {\n  return (pass);\n  set req.url = \"a\";\n}\n";

    #[test]
    fn colors_only_frame_the_text() {
        for diagnostic in diagnostics(&WRONG.replace('é', "e")).iter().chain(&diagnostics(LINTED)) {
            let mut plain = text(diagnostic, true);
            assert!(plain.contains(RED) || plain.contains(YELLOW));
            for code in [RED, YELLOW, GREEN, BLUE, BOLD, PLAIN] {
                plain = plain.replace(code, "");
            }
            assert_eq!(plain, text(diagnostic, false));
        }
    }

    #[test]
    fn json_contains_location_message_and_hint() {
        let text = WRONG.replace("é", "e");
        let found = json(&[("a b.vcl".to_owned(), diagnostics(&text))]);
        let value: serde_json::Value = serde_json::from_str(&found).unwrap();
        let first = &value[0]["diagnostics"][0];
        assert_eq!(value[0]["file"], "a b.vcl");
        assert_eq!(first["severity"], "error");
        assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(3), Some(37)));
        assert_eq!((first["end_line"].as_u64(), first["end_column"].as_u64()), (Some(3), Some(40)));
        assert_eq!(first["hint"], "did you mean 'req.url'?");
    }

    #[test]
    fn sarif_names_its_rules() {
        let found = sarif(&[("a b.vcl".to_owned(), diagnostics(LINTED))]);
        let value: serde_json::Value = serde_json::from_str(&found).unwrap();
        let run = &value["runs"][0];
        assert_eq!(value["version"], "2.1.0");
        assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "unreachable");
        let result = &run["results"][0];
        assert_eq!(result["ruleId"], "unreachable");
        assert_eq!(result["level"], "warning");
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a%20b.vcl");
        assert_eq!(place["region"]["startLine"], 5);
        assert_eq!(sarif(&[]).matches("\"results\": []").count(), 1);
    }
}
