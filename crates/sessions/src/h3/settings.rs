//! The settings of QUIC that follow from the parameters.

use lacquer_params::Params;
use lacquer_quic::Settings;
use lacquer_sources::clock;

/// The most bytes of responses that a connection holds until the client has acknowledged them. It limits the rate to one
/// client to this much in a round trip.
const SEND_WINDOW: u64 = 1024 * 1024;
/// The bytes of request bodies that a connection holds, in windows of a stream.
const WINDOWS: u32 = 4;
/// The number of connections of a reactor on one address.
const CONNECTIONS: usize = 50_000;

/// Returns the settings of new connections.
pub fn settings(params: &Params) -> Settings {
    let stream_window = params.h2_initial_window_size as u32;
    Settings {
        idle: clock::seconds(params.timeout_idle),
        streams: params.h2_max_concurrent_streams,
        stream_window,
        window: stream_window.saturating_mul(WINDOWS),
        send_window: SEND_WINDOW,
        connections: CONNECTIONS,
    }
}
