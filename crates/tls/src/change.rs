//! The messages from the manager to the worker about TLS.

use std::sync::Arc;

use rustls::ServerConfig;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bundle::Bundle;
use crate::client::ClientVerification;
use crate::on_demand::NameList;
use crate::protocols::Protocols;
use crate::quic_secret::QuicSecret;
use crate::settings::{Alpn, Settings};
use crate::ticketer::TicketSecret;

/// Encodes a message for the link.
fn encode(message: &impl Serialize) -> Vec<u8> {
    // Only values without a known length fail, and the messages have none.
    postcard::to_stdvec(message).unwrap_or_default()
}

fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, String> {
    postcard::from_bytes(bytes).map_err(|e| format!("the manager's message about TLS cannot be read: {e}"))
}

impl Bundle {
    /// Encodes the certificate with its key for [`single_config`].
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

/// Returns the settings of a server of HTTP/1 that has one certificate, whichever name a client asks for. `bundle` is an
/// encoded [`Bundle`].
pub fn single_config(bundle: &[u8]) -> Result<Arc<ServerConfig>, String> {
    let bundle: Bundle = decode(bundle)?;
    let mut config = Settings::default().build(Protocols::default(), Alpn::Http1, None)?;
    config.cert_resolver = Arc::new(bundle.stapled_key()?);
    Ok(Arc::new(config))
}

/// The settings that stay the same while a worker lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    pub frontends: Vec<FrontendSetup>,
    /// The protocols of listeners that set none.
    pub protocols: Protocols,
    pub ticket_secret: TicketSecret,
    pub quic_secret: QuicSecret,
}

impl Setup {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn decode(bytes: &[u8]) -> Result<Setup, String> {
        decode(bytes)
    }
}

/// The TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontendSetup {
    /// The name of the listener.
    pub name: String,
    pub protocols: Protocols,
    /// Whether a client that asks for an unknown name is refused, or gets the default certificate.
    pub sni_nomatch_abort: bool,
    /// Whether certificates for all listeners are searched too.
    pub match_global: bool,
    /// How clients are verified; `None` if they are not asked for certificates.
    pub clients: Option<ClientVerification>,
}

/// A change of the certificates in use. It takes effect as a whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    /// The ids of certificates that go.
    pub remove: Vec<u64>,
    pub add: Vec<Entry>,
    /// New verifications of clients, by the number of the listener.
    pub clients: Vec<(u32, Option<ClientVerification>)>,
    /// A new list of names whose certificates are obtained on demand.
    pub on_demand: Option<Box<NameList>>,
}

impl Change {
    /// Returns whether it has no effect.
    pub fn is_empty(&self) -> bool {
        let has_certificates = !self.remove.is_empty() || !self.add.is_empty();
        !has_certificates && self.clients.is_empty() && self.on_demand.is_none()
    }

    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn decode(bytes: &[u8]) -> Result<Change, String> {
        decode(bytes)
    }
}

/// Certificates for the handshakes of an ACME server (TLS-ALPN-01, RFC 8737), by the name that it asks for. They
/// replace all earlier ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChallengeCertificates {
    pub all: Vec<(String, Bundle)>,
}

impl ChallengeCertificates {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub fn decode(bytes: &[u8]) -> Result<ChallengeCertificates, String> {
        decode(bytes)
    }
}

/// The order of a certificate among those that have a name in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rank {
    /// The number of the transaction that brought it. The latest wins.
    pub transaction: u32,
    /// Its number in the transaction. The first wins.
    pub order: u32,
}

impl Rank {
    /// Returns whether this certificate is preferred to the other for a name that both have.
    pub fn beats(self, other: Rank) -> bool {
        (self.transaction, other.order) > (other.transaction, self.order)
    }
}

/// A certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Unique for the life of the manager.
    pub id: u64,
    /// The number of its listener, or `None` for all listeners.
    pub frontend: Option<u32>,
    pub rank: Rank,
    /// When it was made the default of its listener: the highest number wins. 0 for all others.
    pub default: u64,
    pub settings: Arc<Settings>,
    pub bundle: Bundle,
}
