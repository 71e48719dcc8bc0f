//! Decodes a header block into a request. The fields are decoded in place, in an area of the request's workspace:
//! each becomes a line of the message. An error of one stream does not stop the decoding, because the following
//! fields may change the tables that both sides share.

mod builder;
mod check;
mod decode;

#[cfg(test)]
mod tests;

pub use builder::{RequestBuilder, RequestHead};
pub use decode::RequestDecoder;

/// The protocol whose rules apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http2,
    /// Pseudo-headers precede other fields, and there must be a host.
    Http3,
}

/// How the end of a request's body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The stream ended with the headers.
    None,
    /// By `Content-Length`, which the DATA frames have to match.
    Length(u64),
    /// By the end of the stream.
    UntilEnd,
}

/// The limits of a header block, from the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum total bytes of all fields; beyond it the stream is refused.
    pub req_size: usize,
    /// Maximum bytes of one field.
    pub hdr_len: usize,
    /// Maximum total bytes of all fields, including discarded ones; beyond it the connection ends.
    pub list_size: usize,
}

impl Limits {
    /// Creates the limits from the parameters `http_req_size`, `http_req_hdr_len` and `h2_max_header_list_size`. If
    /// the last one is smaller than the first, one and a half times the first is used instead.
    pub fn new(req_size: usize, hdr_len: usize, max_list_size: usize) -> Limits {
        let list_size = if max_list_size < req_size { req_size + req_size / 2 } else { max_list_size };
        Limits { req_size, hdr_len, list_size }
    }
}
