//! Decodes a header block into a request. The fields are decoded in place, in an area of the request's workspace:
//! each becomes a line of the message. An error of one stream does not stop the decoding, because the following
//! fields may change the tables that both sides share.
//!
//! Extended CONNECT becomes a request to upgrade, in the form that HTTP/1.1 has for it.

mod builder;
mod check;
mod connect;
mod decode;
mod extended;

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
    /// By the end of the stream, which is a tunnel: no trailers may follow.
    Tunnel,
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
    /// Extended CONNECT is available (RFC 8441, RFC 9220): this side has announced it.
    pub extended_connect: bool,
    /// Pseudo-headers must precede other fields, as RFC 9113 section 8.3 demands.
    pub ordered: bool,
}

impl Limits {
    /// Creates the limits from the parameters `http_req_size`, `http_req_hdr_len` and `h2_max_header_list_size`. If
    /// the last one is smaller than the first, one and a half times the first is used instead.
    pub fn new(req_size: usize, hdr_len: usize, max_list_size: usize) -> Limits {
        let list_size = if max_list_size < req_size { req_size + req_size / 2 } else { max_list_size };
        Limits { req_size, hdr_len, list_size, extended_connect: false, ordered: false }
    }

    /// Returns the limits of a connection whose requests must have their pseudo-headers first, or not.
    #[must_use]
    pub fn with_order(self, is_required: bool) -> Limits {
        Limits { ordered: is_required, ..self }
    }

    /// Returns the limits of a connection on which extended CONNECT is available, or not.
    #[must_use]
    pub fn with_extended_connect(self, is_available: bool) -> Limits {
        Limits { extended_connect: is_available, ..self }
    }
}
