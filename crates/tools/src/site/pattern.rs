//! Patterns for URLs: a path with `*`, or a regular expression between slashes.

use std::fmt::Write as _;

use lacquer_vcl::{NoFiles, NoModules, Options};

use super::wrong::Wrong;
use crate::Offline;

/// The characters that make a text between slashes a regular expression. A path may contain none of them unescaped.
const EXPRESSION: [char; 10] = ['^', '$', '(', ')', '[', ']', '{', '}', '|', '\\'];
const MAX_LENGTH: usize = 1000;

/// A pattern for a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// The regular expression, without quotes and control characters.
    expression: String,
    /// The pattern as the user wrote it, for comments.
    given: String,
}

impl Pattern {
    /// Parses a pattern. A path matches itself and everything below it.
    pub fn parse(given: &str) -> Result<Pattern, Wrong> {
        if given.len() > MAX_LENGTH || given.chars().any(char::is_control) {
            return Err(Wrong::new(
                "the pattern is too long, or has a control character",
                "write a shorter one",
            ));
        }
        let inner = given.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
        let expression = match inner.filter(|inner| inner.contains(EXPRESSION) || inner.contains(".*")) {
            Some(inner) => regex(inner)?,
            None if given.starts_with(['/', '*']) => path(given),
            None => {
                return Err(Wrong::new(
                    "a pattern begins with / or *",
                    format!("write '/{given}' for a path and all below it, or '*{given}' for an ending"),
                ));
            }
        };
        Ok(Pattern { expression, given: given.to_owned() })
    }

    /// Returns the expression as a string of VCL.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.expression)
    }

    pub fn given(&self) -> &str {
        &self.given
    }
}

/// Translates a path with `*` for any text and `?` for one character. The query of a URL does not count.
fn path(given: &str) -> String {
    let mut text = String::from("^");
    for c in given.chars() {
        match c {
            '*' => text.push_str("[^?]*"),
            '?' => text.push_str("[^?]"),
            c => text.push_str(&escaped(c)),
        }
    }
    if given.ends_with('/') || (given.starts_with('/') && given.ends_with('*')) {
        return text;
    }
    text + if given.starts_with('*') { "(\\?|$)" } else { "([/?]|$)" }
}

/// Returns an expression that matches a character.
pub fn escaped(c: char) -> String {
    match c {
        c if c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '%') => c.to_string(),
        // A quote would end the string of VCL.
        c if c.is_ascii() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    }
}

/// Replaces quotes in a regular expression by escapes that match the same.
fn regex(given: &str) -> Result<String, Wrong> {
    if given.contains("\\Q") {
        return Err(Wrong::new(
            "\\Q is not supported in a pattern",
            "write a backslash before each character",
        ));
    }
    let mut text = String::new();
    let mut chars = given.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => text.push_str("\\x22"),
            '\\' => match chars.next() {
                Some('"') => text.push_str("\\x22"),
                Some(next) => {
                    let _ = write!(text, "\\{next}");
                }
                None => return Err(Wrong::new("it ends with a backslash", "write two for one")),
            },
            c => text.push(c),
        }
    }
    check(&text)?;
    Ok(text)
}

/// Compiles a regular expression as VCL does.
fn check(expression: &str) -> Result<(), Wrong> {
    let text = format!(
        "vcl 4.1; backend default none; sub vcl_recv {{ if (req.url ~ \"{expression}\") {{ return (pass); }} }}"
    );
    let options = Options::new(&NoModules, &NoFiles, &Offline);
    let Err(errors) = lacquer_vcl::compile("pattern", text.as_bytes(), &options) else { return Ok(()) };
    // The first line says that the expression is wrong, the next one why.
    let text = lacquer_vcl::vcc_text(&errors);
    let why = text.lines().filter(|line| !line.is_empty()).nth(1).unwrap_or_default();
    Err(Wrong::new(
        format!("not a regular expression: {why}"),
        "write a path with *, or correct the expression",
    ))
}
