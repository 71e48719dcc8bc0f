//! The handshakes by which an ACME server verifies names (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{ClientHello, NoServerSessionStorage};
use rustls::sign::SingleCertAndKey;

use crate::change::ChallengeCertificates;

/// The protocol that only such handshakes offer.
pub const PROTOCOL: &str = "acme-tls/1";

/// The certificates of the challenges that are pending, by name.
#[derive(Debug, Default)]
pub struct Challenges {
    all: RwLock<HashMap<String, Arc<ServerConfig>>>,
}

impl Challenges {
    /// Replaces all certificates.
    pub fn set(&self, certificates: ChallengeCertificates) -> Result<(), String> {
        let mut all = HashMap::new();
        for (name, bundle) in certificates.all {
            let key = Arc::new(bundle.certified_key()?);
            let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
            let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
            let resolver = Arc::new(SingleCertAndKey::from(key));
            let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
            config.alpn_protocols = vec![PROTOCOL.as_bytes().to_vec()];
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            // The transport protects the records itself.
            config.enable_secret_extraction = true;
            all.insert(name, Arc::new(config));
        }
        *self.all.write() = all;
        Ok(())
    }

    /// Returns the settings for a handshake of an ACME server, if a challenge is pending for the name.
    pub fn find(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut offers = hello.alpn()?;
        if offers.next() != Some(PROTOCOL.as_bytes()) || offers.next().is_some() {
            return None;
        }
        self.all.read().get(&hello.server_name()?.to_ascii_lowercase()).cloned()
    }
}
