//! The HTTP/3 side of requests: a stream is the source of a request's body and the sink of its response. The streams of
//! a connection share its state. The sessions that open them are in the crate `lacquer-sessions`; the protocol itself is
//! in `lacquer-h3`, and its transport in `lacquer-quic`.

mod body;
mod conn;
mod receiving;
mod sender;
mod stream;
#[cfg(test)]
mod tests;

pub use conn::Conn;
use lacquer_flow::persistence::Carrier;
pub use receiving::{Failure, Head};
pub use sender::StreamSender;
pub use stream::Stream;

use crate::protocol::Protocol;

pub const PROTOCOL: Protocol =
    Protocol { name: "HTTP/3", version: "HTTP/3.0", sink: "H3B", carrier: Carrier::Stream };
