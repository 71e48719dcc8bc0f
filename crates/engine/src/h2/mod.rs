//! HTTP/2 as requests see it: a stream is the source of a request's body and the sink of its response. The streams of a
//! connection share its state and its sending side. The sessions that read frames are in the crate `lacquer-sessions`,
//! the protocol itself in `lacquer-h2`.

mod buffers;
mod conn;
mod receive_buffer;
mod output;
mod reader;
mod sender;
mod sending;
mod stream;
mod frame_quota;

pub use buffers::Buffers;
pub use conn::{Conn, Member};
use lacquer_flow::persistence::Carrier;
pub use output::Flush;
pub use reader::StreamReader;
pub use sender::StreamSender;
pub use stream::{Gone, Stream};
pub use frame_quota::{Turn, Turns};

use crate::protocol::Protocol;

pub const PROTOCOL: Protocol =
    Protocol { name: "HTTP/2", version: "HTTP/2.0", sink: "H2B", carrier: Carrier::Stream };

/// What the connections of a reactor share.
#[derive(Default)]
pub struct Common {
    pub buffers: Buffers,
    pub turns: Turns,
}
