//! The methods by which a server verifies that a name is ours, and the responses to its challenges.

use instant_acme::ChallengeType;
use rcgen::{CertificateParams, CustomExtension, KeyPair};

/// A method of verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// HTTP-01: the server fetches a page over HTTP from port 80.
    Http,
    /// TLS-ALPN-01 (RFC 8737): the server reads a certificate in a handshake on port 443.
    TlsAlpn,
    /// DNS-01: the server reads a TXT record.
    Dns,
}

impl Method {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Method::Http => "http-01",
            Method::TlsAlpn => "tls-alpn-01",
            Method::Dns => "dns-01",
        }
    }

    pub(crate) fn kind(self) -> ChallengeType {
        match self {
            Method::Http => ChallengeType::Http01,
            Method::TlsAlpn => ChallengeType::TlsAlpn01,
            Method::Dns => ChallengeType::Dns01,
        }
    }
}

/// A response that the worker gives while an order is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// The page `/.well-known/acme-challenge/TOKEN` has this content.
    Page { token: String, content: String },
    /// Handshakes with the protocol `acme-tls/1` for this name get this certificate and key, in PEM.
    Certificate { name: String, pem: String },
}

/// The maximum length of a token.
const MAX_TOKEN: usize = 256;

/// Returns whether a token has the form that RFC 8555 prescribes (section 8.3): characters of base64url.
pub fn is_token(token: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(fits)
}

/// Makes the certificate of TLS-ALPN-01, which contains the digest of the key authorization, with its key.
pub fn certificate(name: &str, digest: &[u8]) -> Result<Challenge, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem() + &key.serialize_pem();
    Ok(Challenge::Certificate { name: name.to_owned(), pem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        assert!(is_token("evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA"));
        for wrong in ["", "a/b", "a b", "a\r\nb", "..", "a.b", "\u{e4}", &"a".repeat(MAX_TOKEN + 1)] {
            assert!(!is_token(wrong), "{wrong:?}");
        }
    }
}
