//! The reasons to end a handshake before a certificate is chosen.

use std::fmt;

/// A fatal alert `unrecognized_name` (RFC 6066, section 3), as an unencrypted record.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

/// Why no certificate was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The listener has no certificate at all.
    NoCertificates,
    /// No certificate has the name that the client asks for, and `sni-nomatch-abort` is on.
    UnknownName(String),
    /// The certificate for the name is obtained on demand, and is not there yet.
    Pending(String),
    /// The certificate cannot be used. The manager checks certificates, so this is a fault of ours.
    Unusable(String),
}

impl Refused {
    /// Returns the bytes to send before the connection is closed. A listener without certificates sends none, like
    /// Varnish.
    pub fn alert(&self) -> &'static [u8] {
        match self {
            Refused::NoCertificates | Refused::Unusable(_) => &[],
            Refused::UnknownName(_) | Refused::Pending(_) => &UNRECOGNIZED_NAME,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoCertificates => write!(f, "No certificates loaded"),
            Refused::UnknownName(name) => write!(f, "SNI lookup failed for {name:?}, aborting handshake"),
            Refused::Pending(name) => write!(f, "The certificate for {name:?} is not obtained yet"),
            Refused::Unusable(why) => write!(f, "The certificate cannot be used: {why}"),
        }
    }
}
