//! QPACK, the header compression of HTTP/3 (RFC 9204). The decoder writes each field as a line "name: value" into the
//! caller's buffer, like that of HPACK. Its dynamic table changes by instructions on the client's encoder stream. A
//! field section may refer to instructions that have not arrived; it is then blocked. The encoder uses no dynamic
//! table: its output is valid at any time.

mod decode;
mod encode;
mod feedback;
mod instructions;
mod integer;
mod section;
mod static_table;
mod table;
mod text;

#[cfg(test)]
mod tests;

pub use decode::Decoder;
pub use encode::{begin, field, literal, status};
pub use feedback::Feedback;
pub use lacquer_h2::hpack::Line;
pub use section::{Begun, Section, Step};

/// The reason why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpackError {
    /// A number does not fit into 62 bits.
    Integer,
    /// The tables have no field with this number.
    Index,
    /// An invalid Huffman code, or invalid padding.
    Huffman,
    /// The bytes end within a field.
    Truncated,
    /// The number of required insertions cannot be valid.
    InsertCount,
    /// More streams are blocked than announced.
    Blocked,
    /// The capacity of the table exceeds the announced maximum.
    Capacity,
    /// A field is larger than the table.
    TooLarge,
    /// An acknowledgment of something that was not sent.
    Acknowledgment,
}

impl QpackError {
    /// Returns the text of log records.
    pub const fn text(self) -> &'static str {
        match self {
            QpackError::Integer => "Integer overflow",
            QpackError::Index => "Invalid table index",
            QpackError::Huffman => "Invalid huffman code",
            QpackError::Truncated => "Ends within a field",
            QpackError::InsertCount => "Invalid required insert count",
            QpackError::Blocked => "Too many blocked streams",
            QpackError::Capacity => "Table capacity exceeds the announced maximum",
            QpackError::TooLarge => "Field is larger than the table",
            QpackError::Acknowledgment => "Acknowledgment without a reference",
        }
    }
}
