//! The settings of endpoints. The keys follow from the manager's secret, so that a worker accepts the address
//! validation tokens of the one before it, and resets its connections.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac};
use lacquer_sources::random;
use lacquer_tls::{Frontend, QuicSecret};
use quinn_proto::{EndpointConfig, ServerConfig};

use crate::group_name::GroupName;
use crate::ids::{IdGenerator, IdKey, Neutral, Owner};
use crate::settings::Settings;
use crate::tls_session;

/// The bytes of packets that wait for a connection to be accepted, for each and for all of them.
const INCOMING_BUFFER: u64 = 16 * 1024;
const INCOMING_BUFFERS: u64 = 4 * 1024 * 1024;

/// The time between two resets. All clients of a worker that was replaced need one.
const RESET_INTERVAL: Duration = Duration::from_micros(500);

/// The keys that the endpoints of a group share. Another group does not recognize their connection ids: it would answer a
/// packet with one of them by the token that resets the connection.
#[derive(Clone)]
pub struct Keys {
    pub ids: IdKey,
    reset: Arc<hmac::Key>,
    token: Arc<hkdf::Prk>,
}

impl Keys {
    pub fn of(secret: &QuicSecret, group: &GroupName) -> Keys {
        let of_group = |purpose: &[u8]| secret.derive(&[purpose, group.as_bytes()].concat());
        let reset = hmac::Key::new(hmac::HMAC_SHA256, &of_group(b"stateless reset"));
        let token = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&secret.derive(b"address validation"));
        Keys { ids: IdKey::new(of_group(b"connection ids")), reset: Arc::new(reset), token: Arc::new(token) }
    }

    /// Returns the settings of the endpoint of a reactor.
    pub fn endpoint(&self, owner: Owner, neutral: &Neutral) -> Arc<EndpointConfig> {
        let mut config = EndpointConfig::new(self.reset.clone());
        let (key, neutral) = (self.ids, neutral.clone());
        config.cid_generator(move || Box::new(IdGenerator { key, owner, neutral: neutral.clone() }));
        config.min_reset_interval(RESET_INTERVAL);
        let mut seed = [0; 32];
        // Without a seed, the library asks the system for one.
        config.rng_seed(random::secret(&mut seed).is_ok().then_some(seed));
        Arc::new(config)
    }
}

/// Creates the settings of connections, and renews them when parameters change.
pub struct Server {
    tls: Arc<tls_session::Settings>,
    token: Arc<hkdf::Prk>,
    current: Option<(Settings, Arc<ServerConfig>)>,
}

impl Server {
    pub fn new(keys: &Keys, frontend: Frontend) -> Result<Server, String> {
        let tls = Arc::new(tls_session::Settings::new(frontend)?);
        Ok(Server { tls, token: keys.token.clone(), current: None })
    }

    /// Returns the settings for new connections.
    pub fn config(&mut self, settings: &Settings) -> Arc<ServerConfig> {
        if let Some((of, config)) = &self.current
            && of == settings
        {
            return config.clone();
        }
        let mut config = ServerConfig::new(self.tls.clone(), self.token.clone());
        config
            .transport_config(settings.transport())
            .migration(true)
            .incoming_buffer_size(INCOMING_BUFFER)
            .incoming_buffer_size_total(INCOMING_BUFFERS);
        let config = Arc::new(config);
        self.current = Some((*settings, config.clone()));
        config
    }
}
