//! The HTTP/1 side of requests: a connection is the source of a request's body and the sink of its response. The
//! sessions that read heads are in the crate `lacquer-sessions`; the protocol itself is in `lacquer_http::h1`.

mod reader;
mod sender;

use lacquer_flow::persistence::Carrier;
pub use reader::ConnectionReader;
pub use sender::{Sender, write_message};

use crate::protocol::Protocol;

pub const PROTOCOL: Protocol =
    Protocol { name: "HTTP/1", version: "HTTP/1.1", sink: "V1B", carrier: Carrier::Connection };
