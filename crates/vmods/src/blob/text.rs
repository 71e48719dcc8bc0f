//! Textual representations of bytes.

/// The case of hexadecimal digits above nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Lower,
    Upper,
}

/// The text is not valid in the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal;
