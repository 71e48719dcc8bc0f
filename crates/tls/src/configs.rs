//! The settings of connections without a certificate, which certificates with equal settings share.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;

use crate::client::Verifying;
use crate::protocols::Protocols;
use crate::settings::{Alpn, Settings};

/// The properties that select the settings of a connection, apart from its certificate: the protocols, ALPN, and the
/// verification of clients.
pub type Wanted = (Protocols, Alpn, [u8; 32]);

#[derive(Default)]
pub struct Configs {
    built: Mutex<HashMap<(Arc<Settings>, Wanted), Arc<ServerConfig>>>,
}

impl fmt::Debug for Configs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configs").finish_non_exhaustive()
    }
}

impl Configs {
    /// Returns the settings, which are built the first time.
    pub fn get(
        &self,
        settings: &Arc<Settings>,
        (protocols, alpn): (Protocols, Alpn),
        clients: &Verifying,
    ) -> Result<Arc<ServerConfig>, String> {
        let mut built = self.built.lock();
        let key = (settings.clone(), (protocols, alpn, clients.context()));
        if let Some(config) = built.get(&key) {
            return Ok(config.clone());
        }
        let config = Arc::new(settings.config(protocols, alpn, clients)?);
        built.insert(key, config.clone());
        Ok(config)
    }

    /// Forgets all of them. Certificates keep those that they use.
    pub fn clear(&self) {
        self.built.lock().clear();
    }
}
