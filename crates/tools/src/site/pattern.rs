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
            c if may_be_encoded(c) => text.push_str(&encoded_too(c)),
            c => text.push_str(&escaped(c)),
        }
    }
    if given.ends_with('/') || (given.starts_with('/') && given.ends_with('*')) {
        return text;
    }
    text + if given.starts_with('*') { "(\\?|$)" } else { "([/?]|$)" }
}

/// Returns whether clients send a character as bytes after percent signs, because no URL contains it (RFC 3986 section 2).
fn may_be_encoded(c: char) -> bool {
    !c.is_ascii() || " \"<>\\^`{|}".contains(c)
}

/// Returns an expression that matches a character as it is, and the form that clients send.
fn encoded_too(c: char) -> String {
    let mut buffer = [0; 4];
    let mut text = format!("(?:{}|(?i:", escaped(c));
    for byte in c.encode_utf8(&mut buffer).bytes() {
        let _ = write!(text, "%{byte:02X}");
    }
    text + "))"
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

/// Replaces quotes in a regular expression by escapes that match the same, and characters outside ASCII by expressions
/// that also match the form that clients send.
fn regex(given: &str) -> Result<String, Wrong> {
    if given.contains("\\Q") {
        return Err(Wrong::new(
            "\\Q is not supported in a pattern",
            "write a backslash before each character",
        ));
    }
    let mut text = String::new();
    let mut chars = given.chars();
    let mut is_in_set = false;
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => match chars.next() {
                Some(next) if next == '"' || !next.is_ascii() => next,
                Some(next) => {
                    let _ = write!(text, "\\{next}");
                    continue;
                }
                None => return Err(Wrong::new("it ends with a backslash", "write two for one")),
            },
            '[' => {
                text.push('[');
                text.push_str(begin_of_set(&mut chars, is_in_set));
                is_in_set = true;
                continue;
            }
            ']' => {
                is_in_set = false;
                c
            }
            c => c,
        };
        match c {
            '"' => text.push_str("\\x22"),
            c if c.is_ascii() => text.push(c),
            c if is_in_set => {
                return Err(Wrong::new(
                    format!("`{c}` is several bytes in a URL, and a set has one"),
                    "write alternatives instead of a set: (ä|ö) for [äö]",
                ));
            }
            c => text.push_str(&encoded_too(c)),
        }
    }
    check(&text)?;
    Ok(text)
}

/// Takes what follows an opening bracket if it could be mistaken for the end of a set of characters: a bracket as the first
/// character, or a class such as `[:alpha:]` within a set.
fn begin_of_set<'g>(chars: &mut std::str::Chars<'g>, is_in_set: bool) -> &'g str {
    let rest = chars.as_str();
    let len = if is_in_set {
        let class = rest.strip_prefix(':').and_then(|class| class.split_once(":]"));
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'^');
        class.filter(|(name, _)| is_name(name)).map_or(0, |(name, _)| name.len() + 3)
    } else {
        let inverted = usize::from(rest.starts_with('^'));
        inverted + usize::from(rest[inverted..].starts_with(']'))
    };
    *chars = rest[len..].chars();
    &rest[..len]
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
