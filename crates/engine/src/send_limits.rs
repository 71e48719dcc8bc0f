//! The time limits for a client to receive its response.

use lacquer_net::disconnect::DisconnectPolicy;
use lacquer_sources::clock::{self, Instant};

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

/// The time limits of a response on a stream.
#[derive(Clone, Copy)]
pub struct StreamLimits {
    /// The seconds for which the client may take no byte.
    idle: f64,
    /// The seconds for the whole response; 0 means no limit.
    total: f64,
    /// The time by which the whole response must be sent.
    by: Option<Instant>,
}

impl StreamLimits {
    pub fn new(limits: SendLimits) -> StreamLimits {
        let left = |total: f64| clock::seconds((limits.since + total - clock::real()).max(0.0));
        let by = (limits.total > 0.0).then(|| Instant::now() + left(limits.total));
        StreamLimits { idle: limits.idle, total: limits.total, by }
    }

    /// Returns the limits of a write that begins now. It may have frames of other responses, so it has as much time as a
    /// whole response, whatever is left to this one.
    #[must_use]
    pub fn of_write(self) -> StreamLimits {
        let by = (self.total > 0.0).then(|| Instant::now() + clock::seconds(self.total));
        StreamLimits { by, ..self }
    }

    /// Returns the time by which the whole response must be sent.
    pub fn by(self) -> Option<Instant> {
        self.by
    }

    /// Returns the time until which a response may wait from now on, and the parameter that limits it.
    pub fn longest_wait(self) -> (Instant, &'static str) {
        let idle = Instant::now() + clock::seconds(clock::limit(self.idle));
        match self.by {
            Some(by) if by < idle => (by, "send_timeout"),
            _ => (idle, "idle_send_timeout"),
        }
    }
}
