//! The settings of connections without a certificate, which certificates with equal settings share.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::ProducesTickets;

use crate::protocols::Protocols;
use crate::settings::{Alpn, Settings};

type Wanted = (Protocols, Alpn);

pub struct Configs {
    ticketer: Arc<dyn ProducesTickets>,
    built: Mutex<HashMap<(Arc<Settings>, Wanted), Arc<ServerConfig>>>,
}

impl fmt::Debug for Configs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configs").finish_non_exhaustive()
    }
}

impl Configs {
    pub fn new(ticketer: Arc<dyn ProducesTickets>) -> Configs {
        Configs { ticketer, built: Mutex::default() }
    }

    /// Returns the settings, which are built the first time.
    pub fn get(&self, settings: &Arc<Settings>, wanted: Wanted) -> Result<Arc<ServerConfig>, String> {
        let mut built = self.built.lock();
        let key = (settings.clone(), wanted);
        if let Some(config) = built.get(&key) {
            return Ok(config.clone());
        }
        let config = Arc::new(settings.config(wanted.0, wanted.1, &self.ticketer)?);
        built.insert(key, config.clone());
        Ok(config)
    }

    /// Forgets all of them. Certificates keep those that they use.
    pub fn clear(&self) {
        self.built.lock().clear();
    }
}
