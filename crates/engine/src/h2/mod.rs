//! The HTTP/2 side of requests: a stream is the source of a request's body and the sink of its response. The streams
//! of a connection share its state and its sending side. The sessions that read frames are in the crate
//! `lacquer-sessions`; the protocol itself is in `lacquer-h2`.

mod body;
mod buffers;
mod conduct;
mod conn;
mod data_frames;
mod frame_quota;
mod output;
mod receive_buffer;
mod sender;
mod sending;
mod stream;

pub use buffers::Buffers;
pub use conduct::Conduct;
pub use conn::{Conn, StreamEntry};
pub use frame_quota::{FrameQuota, QuotaQueue};
use lacquer_flow::persistence::Carrier;
pub use output::Flush;
pub use sender::StreamSender;
pub use stream::{Gone, Stream};

use crate::protocol::Protocol;

pub const PROTOCOL: Protocol =
    Protocol { name: "HTTP/2", version: "HTTP/2.0", sink: "H2B", carrier: Carrier::Stream };

/// The state that all HTTP/2 connections of a reactor share.
#[derive(Default)]
pub struct ReactorState {
    buffers: Buffers,
    quota_queue: QuotaQueue,
}

impl ReactorState {
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    pub fn quota_queue(&self) -> &QuotaQueue {
        &self.quota_queue
    }
}
