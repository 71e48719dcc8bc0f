//! Errors and warnings with their locations in the sources, and their two renderings.
//!
//! [`vcc_text`] returns the text of `vcl.load`, which users' programs parse, byte for byte.
//! [`Diagnostic::pretty`] formats for terminals. Both use the same pieces.

use std::fmt::Write as _;

use crate::text::Text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Warning,
    Error,
}

/// One problem. It owns all its text, so it outlives the compilation.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub pieces: Vec<Piece>,
    /// Advice for the user, shown only by the pretty rendering.
    pub hint: Option<String>,
    /// The location of a problem whose traditional text has none.
    pub focus: Option<Place>,
}

/// Texts and locations in any order.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    Place(Place),
}

/// A range of source text. Offsets count bytes within the first and the last line.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub file: String,
    pub line: u32,
    pub start: usize,
    pub end: usize,
    pub text: Text,
    /// The line that the range ends on, if it differs from the first.
    pub last: Option<LastLine>,
    /// Whether the text contains both ends of the range or only its start.
    pub range: bool,
    /// The includes that lead here, innermost first: file and line.
    pub included_from: Vec<(String, u32)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LastLine {
    pub file: String,
    pub line: u32,
    pub text: Text,
}

/// Returns the column as Varnish counts it: from 1, with tabs to the next multiple of 8.
pub(crate) fn display_column(line: &[u8], offset: usize) -> u32 {
    let mut column = 0;
    for byte in line.iter().take(offset) {
        column = if *byte == b'\t' { (column & !7) + 8 } else { column + 1 };
    }
    column + 1
}

impl Place {
    pub fn column(&self) -> u32 {
        display_column(&self.text, self.start)
    }

    /// Writes the excerpt in vcc's format: coordinates, line, marker line, empty line.
    fn vcc(&self, out: &mut String) {
        let _ = write!(out, "('{}' Line {} Pos {})", self.file, self.line, self.column());
        match &self.last {
            None => {
                if self.range {
                    let end = display_column(&self.text, self.end.saturating_sub(1));
                    let _ = write!(out, " -- (Pos {end})");
                }
                out.push('\n');
                excerpt(out, &self.text, self.start, self.end);
            }
            Some(LastLine { file, line, text }) => {
                let end = display_column(text, self.end.saturating_sub(1));
                let last = format!("('{file}' Line {line} Pos {end})");
                let adjacent = self.line + 1 == *line && *file == self.file;
                if adjacent && self.range {
                    let _ = write!(out, " -- {last}");
                }
                out.push('\n');
                excerpt(out, &self.text, self.start, usize::MAX);
                if self.range {
                    if !adjacent {
                        let _ = write!(out, "[...]\n{last}\n");
                    }
                    excerpt(out, text, 0, self.end);
                }
            }
        }
        out.push('\n');
    }

    /// Returns whether another place is the same text.
    fn is_at(&self, other: &Place) -> bool {
        let ends = |place: &Place| (place.line, place.start, place.end, place.last.as_ref().map(|l| l.line));
        self.file == other.file && ends(self) == ends(other)
    }

    fn pretty(&self, out: &mut String, width: usize) {
        let (file, line) = (&self.file, self.line);
        let _ = writeln!(out, "{:width$}--> {file}:{line}:{}", "", self.column());
        for (file, line) in &self.included_from {
            let _ = writeln!(out, "{:width$}    included from {file}:{line}", "");
        }
        let _ = writeln!(out, "{:width$} |", "");
        let end = if self.last.is_some() { self.text.len() } else { self.end };
        caret_lines(out, width, line, &self.text, self.start, end);
        if let Some(LastLine { line, text, .. }) = self.last.as_ref().filter(|_| self.range) {
            if self.line + 1 != *line {
                let _ = writeln!(out, "{:>width$}", "...");
            }
            let start = text.len() - text.trim_ascii_start().len();
            caret_lines(out, width, *line, text, start.min(self.end), self.end);
        }
    }
}

/// Writes a line with its tabs expanded, and below it `#` for each byte in the range and `-` for the others.
fn excerpt(out: &mut String, line: &[u8], start: usize, end: usize) {
    let mut marks = String::with_capacity(line.len() + 1);
    let mut column = 0;
    for Shown { at, c, bytes } in shown(line) {
        let bytes = if c == '\t' { 8 - (column & 7) } else { bytes };
        match c {
            '\t' => out.extend(std::iter::repeat_n(' ', bytes)),
            c => out.push(c),
        }
        let mark = if at >= start && at < end { '#' } else { '-' };
        marks.extend(std::iter::repeat_n(mark, bytes));
        column += bytes;
    }
    let _ = write!(out, "\n{marks}\n");
}

/// A character of a line as it is shown, its byte index in the line, and its number of bytes.
struct Shown {
    at: usize,
    c: char,
    bytes: usize,
}

/// Returns the characters of a line. Bytes that are not UTF-8 become replacement characters.
fn shown(line: &[u8]) -> impl Iterator<Item = Shown> {
    let mut at = 0;
    line.utf8_chunks().flat_map(move |chunk| {
        let start = at;
        at += chunk.valid().len() + chunk.invalid().len();
        let bad = start + chunk.valid().len();
        let good = chunk.valid().char_indices();
        let good = good.map(move |(i, c)| Shown { at: start + i, c, bytes: c.len_utf8() });
        let broken = |at| Shown { at, c: char::REPLACEMENT_CHARACTER, bytes: 1 };
        good.chain((bad..bad + chunk.invalid().len()).map(broken))
    })
}

/// Approximate width of the rows of a list.
const NOTE_WIDTH: usize = 100;
/// Maximum width of an excerpt in the pretty rendering. A longer line is cut to the part around the problem.
const WIDEST: usize = 120;
/// Number of columns of the excerpt before the problem.
const BEFORE: usize = 40;

fn caret_lines(out: &mut String, width: usize, number: u32, line: &[u8], start: usize, end: usize) {
    let mut text: Vec<char> = Vec::new();
    let mut marks: Vec<char> = Vec::new();
    for Shown { at, c, .. } in shown(line.strip_suffix(b"\r").unwrap_or(line)) {
        let (c, columns) = match c {
            '\t' => (' ', 4),
            c if c.is_control() => (char::REPLACEMENT_CHARACTER, 1),
            c => (c, 1),
        };
        text.extend(std::iter::repeat_n(c, columns));
        if at < end {
            marks.extend(std::iter::repeat_n(if at >= start { '^' } else { ' ' }, columns));
        }
    }
    if !marks.contains(&'^') {
        marks.push('^');
    }
    let mut first = 0;
    if text.len() > WIDEST {
        let caret = marks.iter().position(|m| *m == '^').unwrap_or(0);
        first = caret.saturating_sub(BEFORE);
        let last = (first + WIDEST).min(text.len());
        if last < text.len() {
            text.truncate(last);
            text.push('…');
        }
        marks.truncate(last.max(caret + 1));
        text.drain(..first);
        marks.drain(..first);
    }
    let (cut, room) = if first > 0 { ("…", " ") } else { ("", "") };
    let (text, marks) = (String::from_iter(text), String::from_iter(marks));
    let _ = writeln!(out, "{number:>width$} | {cut}{}\n{:width$} | {room}{marks}", text.trim_end(), "");
}

impl Diagnostic {
    pub(crate) fn new(severity: Severity) -> Diagnostic {
        Diagnostic { severity, pieces: Vec::new(), hint: None, focus: None }
    }

    /// Creates an error without a location.
    pub fn plain_error(message: impl Into<String>) -> Diagnostic {
        let pieces = vec![Piece::Text(message.into())];
        Diagnostic { severity: Severity::Error, pieces, hint: None, focus: None }
    }

    /// Returns the location of the problem, if it has one.
    pub fn place(&self) -> Option<&Place> {
        let first = self.pieces.iter().find_map(|p| match p {
            Piece::Place(place) => Some(place),
            Piece::Text(_) => None,
        });
        first.or(self.focus.as_ref())
    }

    /// Replaces the names of files in all locations.
    pub fn rename_files(&mut self, rename: impl Fn(&mut String)) {
        let places = self.pieces.iter_mut().filter_map(|p| match p {
            Piece::Place(place) => Some(place),
            Piece::Text(_) => None,
        });
        for place in places.chain(&mut self.focus) {
            rename(&mut place.file);
            place.last.iter_mut().for_each(|last| rename(&mut last.file));
            place.included_from.iter_mut().for_each(|(file, _)| rename(file));
        }
    }

    /// Returns the further lines of the message.
    pub fn notes(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut texts = 0;
        for text in self.pieces.iter().filter_map(|p| match p {
            Piece::Text(text) => Some(tidy(text)),
            Piece::Place(_) => None,
        }) {
            let skip = usize::from(texts == 0 && !text.is_empty());
            texts += usize::from(!text.is_empty());
            all.extend(notes(text.lines().skip(skip)));
        }
        all
    }

    pub fn file(&self) -> Option<&str> {
        self.place().map(|p| p.file.as_str())
    }

    pub fn line(&self) -> Option<u32> {
        self.place().map(|p| p.line)
    }

    pub fn column(&self) -> Option<u32> {
        self.place().map(Place::column)
    }

    /// Returns the problem as one line.
    pub fn message(&self) -> String {
        let texts = self.pieces.iter().filter_map(|p| match p {
            Piece::Text(text) => Some(tidy(text)),
            Piece::Place(_) => None,
        });
        let first = texts.into_iter().find(|t| !t.is_empty()).unwrap_or_default();
        let line = first.lines().next().unwrap_or_default();
        line.strip_prefix("Warning: ").unwrap_or(line).to_owned()
    }

    fn vcc(&self, out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Place(place) => place.vcc(out),
            }
        }
    }

    /// Returns several lines: severity and message, file:line:column, excerpt, caret, notes, hint.
    pub fn pretty(&self) -> String {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let numbers = self.pieces.iter().filter_map(|p| match p {
            Piece::Place(p) => Some(p.last.as_ref().map_or(p.line, |l| l.line).to_string().len()),
            Piece::Text(_) => None,
        });
        let width = numbers.max().unwrap_or(1).max(3);
        let mut out = format!("{severity}: {}\n", self.message());
        let mut texts = 0;
        let mut shown: Option<&Place> = None;
        // Some messages have the location before the words. The headline is already written.
        for piece in &self.pieces {
            match piece {
                // Calls repeat the place of their first argument.
                Piece::Place(place) if shown.is_some_and(|shown| place.is_at(shown)) => {}
                Piece::Place(place) => {
                    place.pretty(&mut out, width);
                    shown = Some(place);
                }
                // This text repeats the headline, and only the traditional text has it.
                Piece::Text(text) if texts > 0 && text == "Symbol not found.\n" => break,
                Piece::Text(text) => {
                    let text = tidy(text);
                    let skip = usize::from(texts == 0 && !text.is_empty());
                    texts += usize::from(!text.is_empty());
                    for note in notes(text.lines().skip(skip)) {
                        let _ = writeln!(out, "{:width$} = {note}", "");
                    }
                }
            }
        }
        if let Some(place) = &self.focus {
            place.pretty(&mut out, width);
        }
        if let Some(hint) = &self.hint {
            hint_lines(&mut out, width, hint);
        }
        out
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.pretty())
    }
}

/// Writes a hint in lines of at most [`NOTE_WIDTH`] characters, if its words allow that.
fn hint_lines(out: &mut String, width: usize, hint: &str) {
    let first = format!("{:width$} = hint: ", "");
    let indent = first.len();
    let gap = format!("\n{:indent$}", "");
    let _ =
        writeln!(out, "{first}{}", lacquer_params::rows(hint, NOTE_WIDTH.saturating_sub(indent)).join(&gap));
}

/// Returns the lines of a note. Lists, which vcc prints as one item per line, become rows.
fn notes<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut in_list = false;
    for line in lines.filter(|l| !l.trim().is_empty()) {
        match notes.last_mut() {
            Some(last) if line.starts_with('\t') && last.len() + line.len() < NOTE_WIDTH => {
                last.push_str(if in_list { ", " } else { " " });
                last.push_str(line.trim());
            }
            _ => notes.push(line.trim().trim_start_matches("-- ").to_owned()),
        }
        in_list = line.starts_with('\t');
    }
    notes
}

/// Returns a text of vcc without the words that introduce a location.
fn tidy(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("(program line ")).collect();
    while let Some(last) = lines.last() {
        let last = last.trim_end();
        let cut =
            ["At:", " at", ":"].iter().find_map(|end| last.strip_suffix(end)).unwrap_or(last).trim_end();
        lines.pop();
        if !cut.is_empty() && cut != "(That was just a warning)" {
            lines.push(cut);
            break;
        }
    }
    lines.join("\n").trim().trim_start_matches("...").to_owned()
}

/// Returns all diagnostics in the format of Varnish's VCC compiler.
pub fn vcc_text(diagnostics: &[Diagnostic]) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        diagnostic.vcc(&mut out);
    }
    out
}

/// Returns the reply to `vcl.load` and `varnishd -C`: the failure if there is an error, else the warnings.
pub fn vcl_load_text(diagnostics: &[Diagnostic]) -> String {
    // Varnish passes on whole lines only, and treats a carriage return as the end of a line.
    let text = vcc_text(diagnostics).replace('\r', "\n");
    let mut out = String::new();
    let text = text.rfind('\n').map_or("", |end| &text[..=end]);
    if !text.is_empty() {
        let _ = write!(out, "Message from VCC-compiler:\n{text}");
    }
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        out.push_str("Running VCC-compiler failed, exited with 2\nVCL compilation failed");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, start: usize, end: usize) -> Place {
        Place {
            file: "a.vcl".to_owned(),
            line: 3,
            start,
            end,
            text: text.into(),
            last: None,
            range: false,
            included_from: Vec::new(),
        }
    }

    #[test]
    fn both_renderings_mark_the_same_location() {
        let mut d = Diagnostic::plain_error("Symbol not found: 'x'\nAt: ");
        d.pieces.push(Piece::Place(Place { range: true, ..place("\tset x;", 5, 6) }));
        d.hint = Some("did you mean 'y'?".to_owned());
        let vcc = "Symbol not found: 'x'\nAt: ('a.vcl' Line 3 Pos 13) -- (Pos 13)\n        set x;\n\
                   ------------#-\n\n";
        assert_eq!(vcc_text(std::slice::from_ref(&d)), vcc);
        let pretty = "error: Symbol not found: 'x'\n   --> a.vcl:3:13\n    |\n  3 |     set x;\n    \
                      |         ^\n    = hint: did you mean 'y'?\n";
        assert_eq!(d.pretty(), pretty);
    }

    #[test]
    fn carets_are_below_their_words() {
        let pretty = |text: &[u8], start, end| {
            let text = Text(text.to_vec());
            let mut out = String::new();
            Place { text, ..place("", start, end) }.pretty(&mut out, 3);
            out.lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(pretty("\"é\" + \tx;\r".as_bytes(), 8, 9), ["  3 | \"é\" +     x;", "    |           ^"]);
        assert_eq!(pretty(b"\"\xe9\xff\" x", 5, 6), ["  3 | \"\u{fffd}\u{fffd}\" x", "    |      ^"]);
        let long = ["a ".repeat(500), "wrong".to_owned(), " b".repeat(500)].concat();
        let lines = pretty(long.as_bytes(), 1000, 1005);
        assert!(lines[0].chars().count() < 140 && lines[0].starts_with("  3 | …"), "{lines:?}");
        let caret = lines[1].find('^').unwrap();
        let shown: String = lines[0].chars().skip(caret).take(5).collect();
        assert_eq!((shown.as_str(), lines[1].matches('^').count()), ("wrong", 5));
    }

    #[test]
    fn a_range_over_two_lines_shows_both() {
        let mut d = Diagnostic::plain_error("Bad\n");
        let mut p = Place { range: true, ..place("if (a", 4, 3) };
        p.last = Some(LastLine { file: "a.vcl".to_owned(), line: 4, text: "  b)".into() });
        d.pieces.push(Piece::Place(p));
        let expect = "Bad\n('a.vcl' Line 3 Pos 5) -- ('a.vcl' Line 4 Pos 3)\nif (a\n----#\n  b)\n###-\n\n";
        assert_eq!(vcc_text(&[d]), expect);
    }
}
