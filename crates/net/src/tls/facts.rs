//! The facts about a TLS connection that VCL and the log can use.

use lacquer_tls::Algorithms;
use lacquer_tls::client::ClientCertificate;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, CipherSuite, CommonState, HandshakeKind, ProtocolVersion};

use super::failure::Failure;
use crate::http_version::HttpVersion;

/// The facts about a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// As in `TLSv1.3`.
    pub version: &'static str,
    /// The name of the cipher in OpenSSL.
    pub cipher: &'static str,
    /// The name that the client has asked for (SNI).
    pub server_name: Option<Box<str>>,
    /// The protocol that was agreed on (ALPN).
    pub alpn: Option<Box<str>>,
    /// The certificate of the server.
    pub certificate: Certificate,
    /// The certificate of the client, if it has sent one, which was verified.
    pub client: Option<ClientCertificate>,
    /// The fingerprint of the client, if the parameter `tls_ja3` is on.
    pub ja3: Option<Box<str>>,
    /// The session continues an earlier one.
    pub is_resumed: bool,
}

/// The facts about a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The algorithm of its signature, as in `RSA-SHA256`.
    pub signature: Option<Box<str>>,
    /// The algorithm and size of its key, as in `RSA2048`.
    pub key: Option<Box<str>>,
}

impl Certificate {
    pub(super) fn of(der: Option<&CertificateDer<'_>>) -> Certificate {
        let Some(found) = der.and_then(|der| Algorithms::of(der)) else { return Certificate::default() };
        Certificate { signature: Some(found.signature.into()), key: Some(found.key.into()) }
    }
}

impl TlsFacts {
    /// Returns why the client is refused, if its certificate is not valid at this moment. A resumed session is not verified
    /// again.
    pub fn refusal_at(&self, now: f64) -> Option<Failure> {
        let is_invalid = self.client.as_ref().is_some_and(|client| !client.is_valid_at(now));
        is_invalid.then_some(Failure::Certificate(CertificateError::Expired))
    }

    /// Adds the facts of a complete handshake, in which this end was the server or the client. Returns the version of
    /// HTTP that was agreed on.
    pub(super) fn agree(&mut self, common: &CommonState, is_server: bool) -> Option<HttpVersion> {
        self.version = match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "unknown",
        };
        self.cipher = common.negotiated_cipher_suite().map_or("unknown", |suite| cipher_name(suite.suite()));
        self.is_resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
        let of_peer = common.peer_certificates().and_then(<[_]>::first);
        if is_server {
            self.client = of_peer.map(|der| ClientCertificate::new(der));
        } else {
            self.certificate = Certificate::of(of_peer);
        }
        let alpn = common.alpn_protocol()?;
        self.alpn = Some(String::from_utf8_lossy(alpn).into());
        match alpn {
            b"h2" => Some(HttpVersion::Http2),
            b"http/1.1" => Some(HttpVersion::Http1),
            _ => None,
        }
    }
}

/// Returns the name of a cipher in OpenSSL.
fn cipher_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => "unknown",
    }
}
