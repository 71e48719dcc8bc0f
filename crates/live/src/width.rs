//! The width of characters on a terminal.

use unicode_width::UnicodeWidthChar;

/// Returns the number of columns that a character needs.
pub fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}
