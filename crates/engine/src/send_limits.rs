//! The limits within which a client must take its response.

use lacquer_net::disconnect::DisconnectPolicy;

#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Seconds for the whole response; 0 is no limit.
    pub total: f64,
    /// The time of the request's last event, from which a stream counts them. A connection counts from the first wait.
    pub since: f64,
    /// Seconds without the client taking a byte.
    pub idle: f64,
    /// The limit after which a client counts as gone while its response waits for more of the body.
    pub patience: DisconnectPolicy,
}
