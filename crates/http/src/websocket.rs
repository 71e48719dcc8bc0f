//! The fields of WebSocket's opening handshake (RFC 6455 section 4).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::header_table::HeaderName;

pub const KEY: HeaderName<'static> = HeaderName::new(b"Sec-WebSocket-Key");
pub const ACCEPT: HeaderName<'static> = HeaderName::new(b"Sec-WebSocket-Accept");

/// The text that the protocol appends to a key.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the value of `Sec-WebSocket-Key` for a nonce.
pub fn key(nonce: [u8; 16]) -> String {
    STANDARD.encode(nonce)
}

/// Returns the value of `Sec-WebSocket-Accept` that confirms a key.
pub fn accept(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_confirmed() {
        assert_eq!(key(*b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_ne!(accept(b"dGhlIHNhbXBsZSBub25jZQ="), accept(b"dGhlIHNhbXBsZSBub25jZQ=="));
    }
}
