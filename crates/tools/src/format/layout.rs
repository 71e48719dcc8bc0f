//! Writes tokens at their places, with the comments between them.

use super::comments::{Comment, comments, line_breaks};
use super::grammar::{Lead, Place};
use lacquer_vcl::tokens::{Tok, Token};

const INDENT: usize = 4;
/// The width of a tab in a comment of several lines.
const TAB: usize = 8;

pub fn write(text: &[u8], tokens: &[Token], places: &[Place]) -> Vec<u8> {
    let out = Vec::with_capacity(text.len() + text.len() / 8);
    let mut writer = Writer { text, out, old: Column::default(), new: Column::default() };
    let mut end = 0;
    let mut after_open = false;
    for (token, place) in tokens.iter().zip(places) {
        writer.item(end, token, *place, after_open);
        end = token.span.end as usize;
        after_open = token.kind == Tok::LBrace;
    }
    if !writer.out.is_empty() {
        writer.out.push(b'\n');
    }
    writer.out
}

struct Writer<'t> {
    text: &'t [u8],
    out: Vec<u8>,
    /// The column of the last comment in the text.
    old: Column,
    /// The column of the last comment in `out`.
    new: Column,
}

impl Writer<'_> {
    /// Writes a token and the comments before it. `gap_start` is the end of the token before it, which opens a block if
    /// `after_open` is set.
    fn item(&mut self, gap_start: usize, token: &Token, place: Place, after_open: bool) {
        let (start, end) = (token.span.start as usize, token.span.end as usize);
        let text = self.text;
        let gap = &text[gap_start..start];
        let closes = token.kind == Tok::RBrace;
        // The end of a block that contains only comments stands below them.
        let is_line = place.lead == Lead::Line || closes && place.lead == Lead::Tight && has_lines(gap);
        let level = place.level + if is_line { usize::from(closes) } else { place.hang };
        let mut may_be_empty = is_line && !after_open && !self.out.is_empty();
        let mut wants_empty = place.gap;
        let mut last: Option<Comment<'_>> = None;
        let mut end_of_comments = 0;
        for comment in comments(gap) {
            let column = self.old.advance(&text[..gap_start + comment.start]);
            let own_line = comment.breaks > 0 || self.out.is_empty() || last.is_some_and(|c| c.ends_line);
            if own_line {
                let empty = may_be_empty && (comment.breaks > 1 || wants_empty);
                self.new_line(level, empty);
                (may_be_empty, wants_empty) = (is_line, false);
            } else {
                self.out.push(b' ');
            }
            self.comment(comment.text, column);
            end_of_comments = comment.start + comment.text.len();
            last = Some(Comment { breaks: usize::from(own_line), ..comment });
        }
        if token.kind == Tok::Eoi {
            return;
        }
        let breaks = line_breaks(&gap[end_of_comments..]);
        let broken = match place.lead {
            // A comment that begins a line may be followed by its statement.
            Lead::Line => closes || breaks > 0 || last.is_none_or(|c| c.breaks == 0),
            Lead::SoftSpace | Lead::SoftTight => breaks > 0,
            Lead::Space | Lead::Tight => is_line,
        };
        if broken || last.is_some_and(|c| c.ends_line) {
            let empty = may_be_empty && !closes && (breaks > 1 || wants_empty);
            self.new_line(if is_line { place.level } else { level }, empty);
        } else if last.is_some() && !matches!(token.kind, Tok::Semi | Tok::Comma)
            || matches!(place.lead, Lead::Space | Lead::SoftSpace)
        {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(&text[start..end]);
    }

    fn new_line(&mut self, level: usize, empty: bool) {
        if !self.out.is_empty() {
            self.out.push(b'\n');
            if empty {
                self.out.push(b'\n');
            }
        }
        self.out.resize(self.out.len() + INDENT * level, b' ');
    }

    /// Writes a comment. Its further lines move by as many columns as the first one, which was at `column`.
    fn comment(&mut self, comment: &[u8], old: usize) {
        let new = self.new.advance(&self.out);
        for (number, line) in comment.split(|b| *b == b'\n').enumerate() {
            let line = line.trim_ascii_end();
            if number > 0 {
                self.out.push(b'\n');
                let content = line.trim_ascii_start();
                let width =
                    if content.is_empty() { 0 } else { width(0, &line[..line.len() - content.len()]) };
                let width = if content.is_empty() { 0 } else { (width + new).saturating_sub(old) };
                self.out.resize(self.out.len() + width, b' ');
                self.out.extend_from_slice(content);
            } else {
                self.out.extend_from_slice(line);
            }
        }
    }
}

/// Returns whether a gap contains a comment that begins or ends a line.
fn has_lines(gap: &[u8]) -> bool {
    comments(gap).any(|comment| comment.ends_line || comment.breaks > 0)
}

/// The column of a position in a text. Positions only grow, so that each byte is read once.
#[derive(Default)]
struct Column {
    position: usize,
    column: usize,
}

impl Column {
    /// Moves to the end of a text that begins with the one before. Returns its column.
    fn advance(&mut self, text: &[u8]) -> usize {
        let new = &text[self.position..];
        self.position = text.len();
        self.column = match new.iter().rposition(|b| *b == b'\n') {
            Some(at) => width(0, &new[at + 1..]),
            None => width(self.column, new),
        };
        self.column
    }
}

/// Returns the column behind a text that begins at a column.
fn width(start: usize, text: &[u8]) -> usize {
    text.iter().fold(start, |column, byte| match byte {
        b'\t' => column / TAB * TAB + TAB,
        // Not the first byte of a character.
        0x80..=0xbf => column,
        _ => column + 1,
    })
}
