//! The settings of connections to one origin, and the client's side of its handshakes.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::{DnsName, ServerName};
use rustls::sign::SingleCertAndKey;

use super::checks::Checks;
use super::identity::Identity;
use super::provider::provider;
use super::verifier::Verifier;

/// The name in place of one that TLS cannot carry. It is neither sent nor compared.
const NO_NAME: &str = "name.invalid";
/// The number of servers whose sessions are kept. A connection has one server name.
const SESSION_NAMES: usize = 1;

/// TLS settings of one origin. They contain the sessions that later connections resume, so an origin with other
/// addresses or other settings needs other settings.
pub struct OriginTls {
    name: ServerName<'static>,
    checks: Checks,
    identity: Option<Identity>,
    config: Arc<ClientConfig>,
    /// The same, but HTTP/2 is offered too.
    http2: Option<Arc<ClientConfig>>,
}

impl OriginTls {
    /// Creates the settings. `server_name` is a host name or an address; it is sent (SNI) if it is a host name and
    /// `sends_name` is set. Fails if the name is to be compared and is neither.
    pub fn new(
        server_name: &str,
        sends_name: bool,
        checks: Checks,
        identity: Option<Identity>,
    ) -> Result<OriginTls, String> {
        let parsed = ServerName::try_from(server_name.to_owned());
        let is_valid = parsed.is_ok();
        if !is_valid && matches!(checks, Checks::Authorities { name: true, .. }) {
            return Err(format!("{server_name:?} can not be compared with the names in a certificate"));
        }
        let name = match parsed {
            Ok(name) => name,
            Err(_) => ServerName::DnsName(DnsName::try_from(NO_NAME).map_err(|error| error.to_string())?),
        };
        let builder = ClientConfig::builder_with_provider(provider().clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let builder = builder.dangerous();
        let builder = builder.with_custom_certificate_verifier(Arc::new(Verifier::new(checks.clone())));
        let mut config = match &identity {
            Some(identity) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.key.clone())))
            }
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = sends_name && is_valid;
        // The server then refuses to treat the connection as another protocol (RFC 9325, section 3.7).
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The records are sealed and opened by the transport.
        config.enable_secret_extraction = true;
        config.resumption = Resumption::in_memory_sessions(SESSION_NAMES);
        Ok(OriginTls { name, checks, identity, config: Arc::new(config), http2: None })
    }

    /// Returns the settings with an offer of HTTP/2 by [`OriginTls::http2_config`].
    #[must_use]
    pub fn offering_http2(self) -> OriginTls {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        OriginTls { http2: Some(Arc::new(config)), ..self }
    }

    /// Returns the settings for a handshake, with the sessions.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Returns the settings for a handshake that offers HTTP/2, if these settings allow it.
    pub fn http2_config(&self) -> &Arc<ClientConfig> {
        self.http2.as_ref().unwrap_or(&self.config)
    }

    /// Returns whether the settings are equal, apart from the sessions.
    pub fn is_same(&self, other: &OriginTls) -> bool {
        let chain = |tls: &OriginTls| tls.identity.as_ref().map(|identity| identity.key.cert.clone());
        self.name == other.name
            && self.checks.is_same(&other.checks)
            && self.config.enable_sni == other.config.enable_sni
            && self.http2.is_some() == other.http2.is_some()
            && chain(self) == chain(other)
    }

    /// Returns the name of the server, for SNI and the check of the certificate.
    pub fn name(&self) -> &ServerName<'static> {
        &self.name
    }

    /// Returns whether certificates are checked although no authority is trusted, so that every handshake fails.
    pub(super) fn trusts_nobody(&self) -> bool {
        matches!(&self.checks, Checks::Authorities { trusted, .. } if trusted.is_empty())
    }
}

impl fmt::Debug for OriginTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OriginTls")
            .field("name", &self.name)
            .field("checks", &self.checks)
            .finish_non_exhaustive()
    }
}
