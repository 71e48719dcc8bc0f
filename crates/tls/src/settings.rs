//! The settings of connections that depend on the certificate.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ProtocolVersion, ServerConfig};
use serde::{Deserialize, Serialize};

use crate::ciphers;
use crate::client::Verifying;
use crate::protocols::Protocols;
use crate::sessions::MAX_EARLY_DATA;

/// Settings that a certificate brings along. An empty text stands for the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    pub protocols: Protocols,
    /// The suites of TLS 1.2, in OpenSSL's syntax.
    pub ciphers: String,
    /// The suites of TLS 1.3.
    pub ciphersuites: String,
    /// The groups of the key exchange.
    pub groups: String,
    /// Whether our order of the suites counts, or else the client's.
    pub prefer_server_ciphers: bool,
}

/// The protocols that a connection negotiates by ALPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// None. A client that offers only protocols that we do not have gets a connection nevertheless, like in Varnish.
    None,
    Http1,
    Http2,
    /// HTTP/3, for QUIC. It requires TLS 1.3.
    Http3,
}

impl Alpn {
    /// Returns the protocols for what a client offers.
    pub fn for_client(hello: &ClientHello<'_>, http2: bool) -> Alpn {
        let Some(mut offers) = hello.alpn() else { return Alpn::None };
        let mut found = Alpn::None;
        if offers.any(|offer| {
            if offer == b"http/1.1" {
                found = Alpn::Http1;
            }
            offer == b"h2" && http2
        }) {
            found = Alpn::Http2;
        }
        found
    }

    fn names(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Alpn::None => &[],
            Alpn::Http1 => &[b"http/1.1"],
            Alpn::Http2 => &[b"h2", b"http/1.1"],
            Alpn::Http3 => &[b"h3"],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

/// The place of a certificate in settings that have none yet.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

impl Settings {
    /// Checks the settings. The error is a text for the operator.
    pub fn check(&self) -> Result<(), String> {
        self.build(self.protocols, Alpn::None, None).map(drop)
    }

    pub(crate) fn build(
        &self,
        protocols: Protocols,
        alpn: Alpn,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<ServerConfig, String> {
        let mut versions = protocols.versions()?;
        if alpn == Alpn::Http3 {
            versions.retain(|version| version.version == ProtocolVersion::TLSv1_3);
            if versions.is_empty() {
                return Err("HTTP/3 requires TLSv1.3, which tls-protos or -p excludes".to_owned());
            }
        }
        let mut provider = default_provider();
        if !self.ciphers.is_empty() {
            provider.cipher_suites.retain(|suite| suite.tls13().is_some());
            provider.cipher_suites.extend(ciphers::tls12(&self.ciphers)?);
        }
        if !self.ciphersuites.is_empty() {
            let mut suites = ciphers::tls13(&self.ciphersuites)?;
            suites.extend(provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()));
            provider.cipher_suites = suites;
        }
        if !self.groups.is_empty() && self.groups != "auto" {
            provider.kx_groups = ciphers::groups(&self.groups)?;
        }
        let builder = ServerConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&versions).map_err(|e| e.to_string())?;
        let verifier = verifier.unwrap_or_else(|| Arc::new(NoClientAuth));
        let builder = builder.with_client_cert_verifier(verifier);
        let mut config = builder.with_cert_resolver(Arc::new(NoCertificate));
        config.ignore_client_order = self.prefer_server_ciphers;
        config.alpn_protocols = alpn.names();
        // The transport protects the records itself.
        config.enable_secret_extraction = true;
        config.send_tls13_tickets = 1;
        Ok(config)
    }

    /// Creates the settings of connections, without a certificate. Sessions are kept by the clients, in tickets, or, if
    /// clients may send early data, by the worker: rustls accepts early data with no tickets.
    pub fn config(
        &self,
        protocols: Protocols,
        alpn: Alpn,
        clients: &Verifying,
    ) -> Result<ServerConfig, String> {
        let mut config = self.build(protocols, alpn, clients.verifier()?)?;
        match clients.sessions() {
            Some(sessions) => {
                config.session_storage = sessions;
                // QUIC limits early data by its windows (RFC 9001 section 4.6.1).
                config.max_early_data_size = if alpn == Alpn::Http3 { u32::MAX } else { MAX_EARLY_DATA };
                config.send_half_rtt_data = true;
            }
            None => {
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.ticketer = clients.ticketer();
            }
        }
        Ok(config)
    }
}

/// Returns settings without a certificate, for the protection of the first packets of QUIC.
pub fn quic_initial_config() -> Result<Arc<ServerConfig>, String> {
    Settings::default().build(Protocols::default(), Alpn::Http3, None).map(Arc::new)
}
