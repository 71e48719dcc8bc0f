//! The secret from which the keys of QUIC's endpoints follow. The manager creates it once, so that a new worker can read
//! the connection ids of the one before it, and reset its connections.

use std::fmt;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

/// A secret for the life of the manager.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuicSecret([u8; 32]);

impl QuicSecret {
    /// Derives the secret from random bytes, which may be used for other purposes too.
    pub fn new(bytes: [u8; 32]) -> QuicSecret {
        QuicSecret(QuicSecret(bytes).derive(b"lacquer quic"))
    }

    /// Returns the key for a purpose.
    pub fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), purpose);
        let mut derived = [0; 32];
        derived.copy_from_slice(tag.as_ref());
        derived
    }
}

impl fmt::Debug for QuicSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicSecret").finish_non_exhaustive()
    }
}
