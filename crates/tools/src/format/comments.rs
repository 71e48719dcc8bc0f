//! The comments between two tokens.

/// A comment, from its first character to the last one before white space.
#[derive(Clone, Copy, Debug)]
pub struct Comment<'t> {
    pub text: &'t [u8],
    /// The offset in the gap.
    pub start: usize,
    /// Whether it ends with its line.
    pub ends_line: bool,
    /// The number of line breaks between it and the item before it.
    pub breaks: usize,
}

impl Comment<'_> {
    /// Returns the comment without the white space at the ends of its lines.
    pub fn content(&self) -> Vec<u8> {
        let lines: Vec<&[u8]> = self.text.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).collect();
        lines.join(&b'\n')
    }
}

/// Returns the comments of a gap, which contains nothing else but white space.
pub fn comments(gap: &[u8]) -> impl Iterator<Item = Comment<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let white = gap[at..].iter().position(|b| matches!(b, b'#' | b'/'))?;
        let breaks = line_breaks(&gap[at..at + white]);
        let start = at + white;
        let rest = &gap[start..];
        let ends_line = !rest.starts_with(b"/*");
        let len = if ends_line {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else {
            rest.windows(2).skip(2).position(|w| w == b"*/").map_or(rest.len(), |end| end + 4)
        };
        at = start + len;
        let text = if ends_line { rest[..len].trim_ascii_end() } else { &rest[..len] };
        Some(Comment { text, start, ends_line, breaks })
    })
}

pub fn line_breaks(text: &[u8]) -> usize {
    text.split(|b| *b == b'\n').count() - 1
}
