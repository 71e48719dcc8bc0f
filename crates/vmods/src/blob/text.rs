//! Text that stands for bytes.

/// The case of digits above nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Lower,
    Upper,
}

/// The text is not in the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal;
