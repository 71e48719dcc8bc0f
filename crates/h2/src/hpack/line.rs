//! A field in the form of the line that a message stores.

/// The separator between name and value.
pub const SEPARATOR: &[u8] = b": ";

/// A field, written to the start of the caller's buffer as "name: value".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub len: usize,
    pub name_len: usize,
    /// 1 if the field is well-formed. This is a whole word so that lines are copied word by word.
    well_formed: usize,
}

impl Line {
    /// Creates a line of `len` bytes. `is_well_formed` is the result of [`super::is_well_formed`].
    pub const fn new(len: usize, name_len: usize, is_well_formed: bool) -> Line {
        Line { len, name_len, well_formed: is_well_formed as usize }
    }

    /// Returns whether name and value contain only characters that RFC 9113 section 8.2.1 allows. This was checked
    /// when the field was decoded first.
    pub const fn is_well_formed(&self) -> bool {
        self.well_formed != 0
    }

    pub fn name<'a>(&self, out: &'a [u8]) -> &'a [u8] {
        &out[..self.name_len]
    }

    pub fn value<'a>(&self, out: &'a [u8]) -> &'a [u8] {
        &out[self.name_len + SEPARATOR.len()..self.len]
    }
}
