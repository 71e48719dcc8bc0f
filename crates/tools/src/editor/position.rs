//! Positions in texts as editors count them.

/// How a position counts the characters of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes.
    Utf8,
    /// Code units, of which some characters have two.
    Utf16,
}

/// A line and a character, both counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub character: usize,
}

/// The beginnings of the lines of a text.
#[derive(Clone, Debug)]
pub struct Lines(Vec<usize>);

impl Lines {
    pub fn of(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    /// Returns the text of a line without its end.
    pub fn line<'t>(&self, text: &'t str, line: usize) -> &'t str {
        let Some(start) = self.0.get(line).copied() else { return "" };
        let end = self.0.get(line + 1).map_or(text.len(), |next| next - 1);
        text.get(start..end).unwrap_or_default()
    }

    pub fn position(&self, text: &str, offset: usize, encoding: Encoding) -> Position {
        let line = self.0.partition_point(|start| *start <= offset).saturating_sub(1);
        let before = text.get(self.0[line]..offset).unwrap_or_default();
        let character = match encoding {
            Encoding::Utf8 => before.len(),
            Encoding::Utf16 => before.encode_utf16().count(),
        };
        Position { line, character }
    }

    /// Returns the offset of a position. One behind the end of its line, or of the text, becomes that end.
    pub fn offset(&self, text: &str, at: Position, encoding: Encoding) -> usize {
        let Some(start) = self.0.get(at.line).copied() else { return text.len() };
        let mut left = at.character;
        for (offset, c) in self.line(text, at.line).char_indices() {
            let width = if encoding == Encoding::Utf8 { c.len_utf8() } else { c.len_utf16() };
            if left < width {
                return start + offset;
            }
            left -= width;
        }
        start + self.line(text, at.line).len()
    }

    /// Returns the number of lines.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}
