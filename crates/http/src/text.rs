//! A reference to a string: its position in a workspace, or in the table of texts that all workspaces share.

/// A reference to a string in a [`Workspace`](crate::Workspace), or in the table of fixed texts that all workspaces
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Text {
    off: u32,
    len: u32,
}

/// Offsets from here on refer to the fixed texts.
const FIXED_BASE: u32 = 1 << 31;
const NONE_OFF: u32 = u32::MAX;

impl Text {
    /// No text, which VCL distinguishes from the empty text.
    pub const NONE: Text = Text { off: NONE_OFF, len: 0 };
    /// The empty text.
    pub const EMPTY: Text = Text { off: 0, len: 0 };

    pub const fn is_none(self) -> bool {
        self.off == NONE_OFF
    }

    pub const fn is_some(self) -> bool {
        self.off != NONE_OFF
    }

    pub const fn len(self) -> usize {
        self.len as usize
    }

    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The maximum size of a workspace. Larger offsets refer to the fixed texts.
    pub(crate) const MAX_WORKSPACE: usize = FIXED_BASE as usize;

    /// Returns whether the text is fixed. Fixed texts are valid in every workspace and need no copy.
    pub(crate) const fn is_fixed(self) -> bool {
        self.off >= FIXED_BASE
    }

    /// Returns the offset of the text, for accounting and tests.
    pub const fn offset(self) -> usize {
        self.off as usize
    }

    /// Returns the part from `from` (inclusive) to `to` (exclusive), limited to the text.
    #[must_use]
    pub const fn slice(self, from: usize, to: usize) -> Text {
        let to = if to as u32 > self.len { self.len } else { to as u32 };
        let from = if from as u32 > to { to } else { from as u32 };
        if self.is_none() { self } else { Text { off: self.off + from, len: to - from } }
    }

    /// Returns the part from `from` to the end.
    #[must_use]
    pub const fn tail(self, from: usize) -> Text {
        self.slice(from, self.len as usize)
    }

    pub(crate) const fn at(off: usize, len: usize) -> Text {
        Text { off: off as u32, len: len as u32 }
    }

    /// Returns the text at this position in the table of fixed texts.
    pub(crate) const fn fixed(at: usize, len: usize) -> Text {
        Text { off: FIXED_BASE + at as u32, len: len as u32 }
    }

    /// Returns the position of a fixed text in the table.
    pub(crate) const fn fixed_offset(self) -> usize {
        (self.off - FIXED_BASE) as usize
    }
}

impl Default for Text {
    fn default() -> Self {
        Text::NONE
    }
}
