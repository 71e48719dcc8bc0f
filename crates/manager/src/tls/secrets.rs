//! The secrets that each worker continues to use, and that the next program inherits in an upgrade.

use lacquer_tls::{QuicSecret, TicketSecret};
use serde::{Deserialize, Serialize};

/// The secrets of session tickets and of QUIC's endpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Secrets {
    pub tickets: TicketSecret,
    pub quic: QuicSecret,
}

impl Secrets {
    /// Derives both from random bytes.
    pub fn new(bytes: [u8; 32], now: f64) -> Secrets {
        Secrets { tickets: TicketSecret::new(bytes, now), quic: QuicSecret::new(bytes) }
    }
}
