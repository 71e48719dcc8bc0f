//! The time limits for a client to receive its response.

use lacquer_net::disconnect::DisconnectPolicy;

#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// The seconds for the whole response; 0 means no limit.
    pub total: f64,
    /// The time of the request's last event. For a stream, `total` counts from then; for a connection, from the first
    /// wait.
    pub since: f64,
    /// The seconds for which the client may take no byte.
    pub idle: f64,
    /// The policy for detecting that a client is gone while its response waits for more of the body.
    pub disconnect: DisconnectPolicy,
}
