//! HPACK, the header compression of HTTP/2 (RFC 7541). The decoder writes each field as the line
//! "name: value" where the caller wants it, which is what a message is made of; nothing is allocated per
//! field. The encoder keeps no state: what it writes is good at any time.

mod decode;
mod dynamic_table;
pub mod encode;
pub mod huffman;
mod huffman_table;
mod integer;
mod line;
mod static_table;
pub(crate) mod well_formed;

#[cfg(test)]
mod tests;

pub use decode::{Decoder, Step};
pub use line::Line;

/// The header block is damaged; what follows on the connection cannot be understood either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// A number that does not fit 32 bits.
    Integer,
    /// No such field in the tables.
    Index,
    /// The code of no character, or padding that is none.
    Huffman,
    /// A size of the table that was not granted, or not at the start of the block.
    Update,
}

impl HpackError {
    /// As Varnish's records put it.
    pub const fn text(self) -> &'static str {
        match self {
            HpackError::Integer => "Integer overflow",
            HpackError::Index => "Invalid table index",
            HpackError::Huffman => "Invalid huffman code",
            HpackError::Update => "Spurious update",
        }
    }
}

/// How Varnish's records call a block that ends within a field.
pub const TRUNCATED: &str = "Feed me";
