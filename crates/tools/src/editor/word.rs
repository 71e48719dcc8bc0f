//! The word at a place: a path of names with dots between them, and what stands before it in its statement.

use std::ops::Range;

/// The path at a place in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// The whole path, such as `req.http.Host`.
    pub path: String,
    pub span: Range<usize>,
    /// The number of bytes of the path before the place.
    pub typed: usize,
}

impl Word {
    /// Returns the part of the path before the place.
    pub fn prefix(&self) -> &str {
        self.path.get(..self.typed).unwrap_or_default()
    }

    /// Returns the path up to the end of the name at the place.
    pub fn up_to_name(&self) -> &str {
        let behind = self.path.get(self.typed..).unwrap_or_default();
        let end = self.typed + behind.find('.').unwrap_or(behind.len());
        self.path.get(..end).unwrap_or_default()
    }

    /// Returns the range of the name at the place.
    pub fn name_span(&self) -> Range<usize> {
        let path = self.up_to_name();
        let start = path.rfind('.').map_or(0, |dot| dot + 1);
        self.span.start + start..self.span.start + path.len()
    }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Returns the path at a place; an empty one if there is none. Numbers are no paths.
pub fn word_at(text: &str, offset: usize) -> Word {
    let offset = offset.min(text.len());
    let bytes = text.as_bytes();
    let before = bytes[..offset].iter().rev().take_while(|byte| is_part(**byte)).count();
    let behind = bytes[offset..].iter().take_while(|byte| is_part(**byte)).count();
    let span = offset - before..offset + behind;
    let path = text.get(span.clone()).unwrap_or_default();
    if path.starts_with(|c: char| c.is_ascii_digit()) {
        return Word { span: offset..offset, ..Word::default() };
    }
    Word { path: path.to_owned(), span, typed: before }
}

/// Returns the text of the current statement before a place.
pub fn statement_before(text: &str, offset: usize) -> &str {
    let before = text.get(..offset.min(text.len())).unwrap_or_default();
    let start = before.rfind([';', '{', '}']).map_or(0, |at| at + 1);
    &before[start..]
}
