//! Reads a Rust file for the style rules: its text, and the same text with comments and the contents of
//! literals blanked out, so that a rule about code never matches prose. A hand-written
//! scanner is sufficient, because the rules look for words, braces and lines only.

use std::fs;
use std::path::{Path, PathBuf};

/// One source file. `code` has the same lines as `text`; `product` is `code` without test items.
pub struct Source {
    pub path: String,
    pub text: String,
    pub code: String,
    pub product: String,
}

/// A function with a body: its location and its number of lines.
#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

impl Source {
    pub fn new(path: &str, text: String) -> Self {
        let code = blank_comments_and_literals(&text);
        let product = blank_tests(&code);
        Self { path: path.to_owned(), text, code, product }
    }

    /// Returns whether the whole file is test code.
    pub fn is_test(&self) -> bool {
        self.product.is_empty() && !self.code.is_empty()
    }

    /// The crate's folder name under `crates/`, or `""` for files elsewhere.
    pub fn krate(&self) -> &str {
        self.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("")
    }

    pub fn functions(&self) -> Vec<Function> {
        let bytes = self.code.as_bytes();
        let mut found = Vec::new();
        for at in words(&self.code, "fn") {
            let name: String = self.code[at + 2..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            let Some(open) = body_start(bytes, at) else { continue };
            if name.is_empty() {
                continue; // a function pointer type
            }
            let close = matching_brace(bytes, open);
            let line = line_of(&self.code, at);
            found.push(Function { name, line, lines: line_of(&self.code, close) - line + 1 });
        }
        found
    }
}

/// A struct with named fields.
#[derive(Debug, PartialEq)]
pub struct Struct {
    pub name: String,
    pub line: usize,
    pub fields: usize,
}

impl Source {
    pub fn structs(&self) -> Vec<Struct> {
        let bytes = self.code.as_bytes();
        let named = words(&self.code, "struct").filter_map(|at| {
            let name: String = self.code[at + 6..].trim_start().chars().take_while(|c| is_word(*c)).collect();
            let open = body_start(bytes, at)?;
            let body = &self.code[open + 1..matching_brace(bytes, open)];
            Some(Struct { name, line: line_of(&self.code, at), fields: fields_in(body) })
        });
        named.collect()
    }
}

/// Counts the fields in a struct's body: the single colons outside brackets.
fn fields_in(body: &str) -> usize {
    let (mut depth, mut fields) = (0, 0);
    let bytes = body.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'<' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'>' if at == 0 || bytes[at - 1] != b'-' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) != Some(&b':') && (at == 0 || bytes[at - 1] != b':') => {
                fields += 1;
            }
            _ => {}
        }
    }
    fields
}

/// Reads all Rust files of the repository, sorted by path.
pub fn all(root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    for top in ["crates", "fuzz", "bench", "tests"] {
        collect(&root.join(top), &mut paths);
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("source files are UTF-8");
        let relative = path.strip_prefix(root).expect("found below the root");
        Source::new(&relative.to_string_lossy(), text)
    };
    paths.into_iter().map(read).collect()
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, into);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Returns the byte offsets of `word` as a whole word in `code`.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Returns the line number, from 1, of a byte offset.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the brace that opens the body of the function whose `fn` is at `at`; `None` for a declaration.
pub fn body_start(code: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, &b) in code.iter().enumerate().skip(at) {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(i),
            b';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Returns the brace that closes the one at `open`, or the end of the file.
pub fn matching_brace(code: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (i, &b) in code.iter().enumerate().skip(open) {
        match b {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    code.len() - 1
}

/// Blanks every item after `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn blank_tests(code: &str) -> String {
    let mut bytes = code.as_bytes().to_vec();
    let marks = ["#[cfg(test)]", "#[cfg(all(test,"].into_iter().flat_map(|mark| code.match_indices(mark));
    for (at, _) in marks {
        let end = match body_start(&bytes, at) {
            Some(open) => matching_brace(&bytes, open),
            None => bytes[at..].iter().position(|&b| b == b';').map_or(bytes.len() - 1, |n| at + n),
        };
        blank(&mut bytes[at..=end]);
    }
    String::from_utf8(bytes).expect("only whole characters were blanked")
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
}

fn blank_comments_and_literals(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let before = text[..at].chars().next_back();
        let length = token_to_blank(rest, before.is_some_and(is_word));
        if let Some(length) = length {
            blank(&mut bytes[at..at + length]);
            at += length;
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    String::from_utf8(bytes).expect("only whole characters were blanked")
}

/// Returns the length of the comment or literal that `rest` begins with, if any.
fn token_to_blank(rest: &str, within_word: bool) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if rest.starts_with('"') {
        return Some(quoted(rest, '"'));
    }
    if let Some(after) = rest.strip_prefix('\'') {
        let mut chars = after.chars();
        let is_char = matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')));
        return is_char.then(|| quoted(rest, '\''));
    }
    if !within_word {
        return raw_string(rest);
    }
    None
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let step = &rest.as_bytes()[at..];
        if step.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if step.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str, mark: char) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a raw string literal: `r"…"`, `br#"…"#` and the like.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|p| rest.starts_with(p))?;
    let hashes = rest[prefix.len()..].bytes().take_while(|&b| b == b'#').count();
    let body = prefix.len() + hashes;
    rest[body..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let close = rest[body + 1..].find(&end).map_or(rest.len(), |n| body + 1 + n + end.len());
    Some(close)
}
