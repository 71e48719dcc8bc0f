//! Decodes a header block into a request. The fields are decoded in place, in an area of the request's
//! workspace: each becomes a line of the message. A fault of one stream does not stop the decoding, because
//! the fields that follow may change the tables both sides share.

mod check;
mod decode;

#[cfg(test)]
mod tests;

pub use decode::{RequestDecoder, RequestHead};

/// The delimitation of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The stream ended with the headers.
    None,
    /// By `Content-Length`, which DATA frames have to match.
    Length(u64),
    /// By the end of the stream.
    UntilEnd,
}

/// Bounds of a header block, from the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all fields; beyond them the stream is refused.
    pub req_size: usize,
    /// Bytes of one field.
    pub hdr_len: usize,
    /// Bytes of all fields, kept or not; beyond them the connection ends.
    pub list_size: usize,
}

impl Limits {
    /// Makes the limits from the parameters `http_req_size`, `http_req_hdr_len` and `h2_max_header_list_size`. The last
    /// one becomes one and a half times the first unless it is larger than the first.
    pub fn new(req_size: usize, hdr_len: usize, max_list_size: usize) -> Limits {
        let list_size = if max_list_size < req_size { req_size + req_size / 2 } else { max_list_size };
        Limits { req_size, hdr_len, list_size }
    }
}
