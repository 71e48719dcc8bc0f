//! The settings of connections that follow from the parameters.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{IdleTimeout, TransportConfig, VarInt};

/// The least time without packets after which a connection is lost. Servers that wait longer for a response keep the
/// connection alive.
const LEAST_IDLE: Duration = Duration::from_secs(30);
/// The streams of a client for control, for header compression, and a few of unknown types.
const UNI_STREAMS: u32 = 8;
/// The maximum number of bytes of a handshake that are received out of order.
const CRYPTO_BUFFER: usize = 16 * 1024;

/// The bytes of responses that a connection holds before its client has acknowledged any. QUIC sends a tenth of them
/// before the first acknowledgment.
const LEAST_SEND_WINDOW: u64 = 128 * 1024;

/// The settings of new connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The time after which an idle connection is closed.
    pub idle: Duration,
    /// The number of requests that a client may have open.
    pub streams: u32,
    /// The bytes of a request body that a client may send before they are read.
    pub stream_window: u32,
    /// The bytes of all request bodies that a client may send before they are read.
    pub window: u32,
    /// The most bytes of responses that a connection holds until the client has acknowledged them. It holds less of them
    /// while the client has acknowledged little.
    pub send_window: u64,
    /// The number of connections of a reactor.
    pub connections: usize,
}

impl Settings {
    pub(crate) fn transport(&self) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        let idle = IdleTimeout::try_from(self.idle.max(LEAST_IDLE)).ok();
        config
            .max_idle_timeout(idle.or(Some(IdleTimeout::from(VarInt::MAX))))
            .max_concurrent_bidi_streams(self.streams.into())
            .max_concurrent_uni_streams(UNI_STREAMS.into())
            .stream_receive_window(self.stream_window.into())
            .receive_window(self.window.max(self.stream_window).into())
            .send_window(send_window(0, self.send_window))
            .crypto_buffer_size(CRYPTO_BUFFER)
            .datagram_receive_buffer_size(None);
        Arc::new(config)
    }
}

/// Returns the bytes of responses that a connection holds until the client has acknowledged them, at most `most`. The
/// congestion window has the bytes that are on their way; as many again are ready to follow them. It grows with
/// acknowledgments only, so a client that sends none holds little memory.
pub(crate) fn send_window(congestion_window: u64, most: u64) -> u64 {
    congestion_window.saturating_mul(2).max(LEAST_SEND_WINDOW).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_send_window_follows_the_congestion_window() {
        const MOST: u64 = 1024 * 1024;
        for (congestion_window, expected) in [
            (0, LEAST_SEND_WINDOW),
            (14_720, LEAST_SEND_WINDOW),
            (100_000, 200_000),
            (MOST / 2, MOST),
            (MOST, MOST),
            (u64::MAX, MOST),
        ] {
            assert_eq!(send_window(congestion_window, MOST), expected, "{congestion_window}");
        }
        assert_eq!(send_window(100_000, 1000), 1000);
    }
}
