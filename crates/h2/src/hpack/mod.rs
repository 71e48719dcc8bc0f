//! HPACK, the header compression of HTTP/2 (RFC 7541). The decoder writes each field as a line "name: value" into the
//! caller's buffer. Messages consist of such lines, so there is no allocation per field. The encoder keeps no state:
//! its output is valid at any time.

mod decode;
pub mod dynamic_table;
pub mod encode;
pub mod huffman;
mod huffman_table;
pub mod integer;
mod line;
mod static_table;
mod well_formed;

#[cfg(test)]
mod tests;

pub use decode::{Decoder, Step};
pub use line::{Line, SEPARATOR};
pub use static_table::StaticField;
pub(crate) use well_formed::is_blank;
pub use well_formed::is_well_formed;

/// An error in a header block. Later blocks on the connection cannot be decoded either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// A number does not fit into 32 bits.
    Integer,
    /// The tables have no field with this number.
    Index,
    /// An invalid code, or invalid padding.
    Huffman,
    /// A size of the table exceeds the announced maximum, or is not at the start of the block.
    Update,
}

impl HpackError {
    /// Returns the text in Varnish's records.
    pub const fn text(self) -> &'static str {
        match self {
            HpackError::Integer => "Integer overflow",
            HpackError::Index => "Invalid table index",
            HpackError::Huffman => "Invalid huffman code",
            HpackError::Update => "Spurious update",
        }
    }
}

/// The text in Varnish's records for a block that ends within a field.
pub const TRUNCATED: &str = "Feed me";
