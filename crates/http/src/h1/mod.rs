//! HTTP/1 on the wire: finds the end of a head, parses it in place, determines the framing of the body, decodes and
//! encodes chunks, writes heads, and decides on the persistence of the connection. It is as lenient as Varnish 7.7
//! where users rely on that, and strict where two readers could disagree about the end of a message.

mod chunked;
mod connection;
mod emit;
mod framing;
mod interim;
mod length;
mod parse;
mod scan;
mod target;

pub use chunked::{ChunkError, ChunkHeader, ChunkedDecoder, LAST_CHUNK, Piece, Run};
pub use connection::decide_connection;
pub use emit::{minimal_response, write_request_head, write_response_head};
pub use framing::{Framing, request_fault, request_framing, response_body};
pub use interim::{MOST_INTERIM_FIELDS, interim_fields};
pub use length::{BadLength, canonical_request_length, content_length};
pub use parse::{
    BadHead, BogoHeader, BogoKind, RequestHead, ResponseHead, garbage, parse_request, parse_response,
    rehost_https,
};
pub use scan::{H2_PREFACE, HeadScan, head_complete, interim_head};

#[cfg(test)]
mod tests;
