//! Requests: the frames of a request stream, and the field sections in them, which become requests of the engine. The
//! checks and the log records are those of HTTP/2. Two rules are added (RFC 9114 section 4.3): pseudo-headers precede
//! other fields, and a request has a host.

mod decode;
mod stream;

#[cfg(test)]
mod tests;

pub use decode::{Decoded, decode, decode_trailers};
pub use lacquer_h2::request::{Body, Limits, RequestHead};
pub use stream::{Event, RequestStream};
