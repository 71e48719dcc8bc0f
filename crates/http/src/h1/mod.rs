//! HTTP/1 on the wire: finding the end of a head, parsing it in place, deciding how the body is
//! framed, decoding and encoding chunks, writing heads, and whether the connection stays open.
//! As lax as Varnish 7.7 where its users rely on it, strict where two readers could disagree about
//! where a message ends.

mod chunked;
mod connection;
mod emit;
mod framing;
mod length;
mod parse;
mod scan;
mod target;

pub use chunked::{ChunkError, ChunkHeader, ChunkedDecoder, LAST_CHUNK, Piece, Run};
pub use connection::decide_connection;
pub use emit::{minimal_response, write_request_head, write_response_head};
pub use framing::{Framing, request_fault, request_framing, response_body};
pub use length::{canonical_request_length, content_length};
pub use parse::{
    BadHead, BogoHeader, BogoKind, RequestHead, ResponseHead, garbage, parse_request, parse_response,
    rehost_https,
};
pub use scan::{H2_PREFACE, HeadScan, head_complete, interim_head};

#[cfg(test)]
mod tests;
