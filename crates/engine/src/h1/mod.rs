//! HTTP/1 as requests see it: a connection is the source of a request's body and the sink of its response. The sessions
//! that read heads are in the crate `lacquer-sessions`, the protocol itself in `lacquer_http::h1`.

mod sender;

pub use sender::{BodyFrame, Limits, Sender, write_message};
