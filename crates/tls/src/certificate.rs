//! A certificate in use: its key and its settings are prepared when a client first needs them.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;

use crate::bundle::{Bundle, StapledKey};
use crate::change::Entry;
use crate::client::Verifying;
use crate::configs::{Configs, Wanted};
use crate::protocols::Protocols;
use crate::settings::{Alpn, Settings};

/// The parts that were prepared.
#[derive(Debug)]
enum Key {
    /// As the manager has sent it, which has checked it.
    Raw(Bundle),
    Ready(Arc<StapledKey>),
}

#[derive(Debug)]
struct Prepared {
    key: Key,
    /// Few: a listener can override the protocols, and clients differ in ALPN.
    configs: Vec<(Wanted, Arc<ServerConfig>)>,
}

/// A certificate.
#[derive(Debug)]
pub struct Certificate {
    settings: Arc<Settings>,
    prepared: Mutex<Prepared>,
}

impl Certificate {
    pub fn new(entry: &Entry, bundle: Bundle) -> Certificate {
        let prepared = Prepared { key: Key::Raw(bundle), configs: Vec::new() };
        Certificate { settings: entry.settings.clone(), prepared: Mutex::new(prepared) }
    }

    /// Returns the settings of a connection. `fallback` are the protocols of its listener.
    pub fn config(
        &self,
        fallback: Protocols,
        alpn: Alpn,
        clients: &Verifying,
        configs: &Configs,
    ) -> Result<Arc<ServerConfig>, String> {
        let protocols = self.settings.protocols.or(fallback);
        let wanted = (protocols, alpn, clients.context());
        let mut prepared = self.prepared.lock();
        if let Some((_, config)) = prepared.configs.iter().find(|(key, _)| *key == wanted) {
            return Ok(config.clone());
        }
        let key = match &prepared.key {
            Key::Ready(key) => key.clone(),
            Key::Raw(bundle) => Arc::new(bundle.stapled_key()?),
        };
        prepared.key = Key::Ready(key.clone());
        let mut config = ServerConfig::clone(&*configs.get(&self.settings, (protocols, alpn), clients)?);
        config.cert_resolver = key;
        let config = Arc::new(config);
        prepared.configs.push((wanted, config.clone()));
        Ok(config)
    }

    /// Forgets the settings of connections, because those for former verifications of clients are not used again.
    pub fn forget_configs(&self) {
        self.prepared.lock().configs = Vec::new();
    }
}
