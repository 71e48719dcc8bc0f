//! Certificates made by rcgen: their loading, the choice among them, and handshakes in memory.

mod choice;
mod clients;
mod loading;
mod resumption;

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::server::{Accepted, Acceptor};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

use crate::bundle::{Bundle, File, Files};
use crate::change::{Change, Entry, FrontendSetup, Rank, Setup};
use crate::frontend::Frontend;
use crate::refused::Refused;
use crate::settings::Settings;
use crate::store::Store;
use crate::ticketer::TicketSecret;

/// An authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    pub fn bundle(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }
}

impl Authority {
    pub fn new() -> Authority {
        Authority::named("Authority of tests")
    }

    pub fn named(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Creates a certificate whose common name is the first name.
    pub fn pair(&self, names: &[&str]) -> Pair {
        let mut params =
            CertificateParams::new(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, names[0]);
        self.sign(&params)
    }

    /// Returns the settings of a client that trusts this authority.
    pub fn client(&self, alpn: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.resumption = Resumption::in_memory_sessions(8);
        config
    }
}

pub fn load(certificate: &str) -> Result<Bundle, String> {
    let certificate = File { name: "c.pem", bytes: certificate.as_bytes() };
    Bundle::load(Files { certificate, key: None, dh: None, staple: None }).map(|(bundle, _)| bundle)
}

pub fn entry(id: u64, pair: &Pair) -> Entry {
    Entry {
        id,
        frontend: None,
        rank: Rank { transaction: 1, order: id as u32 },
        default: 0,
        settings: Arc::new(Settings::default()),
        bundle: load(&pair.bundle()).unwrap(),
    }
}

pub fn frontend_setup(name: &str) -> FrontendSetup {
    FrontendSetup {
        name: name.to_owned(),
        protocols: crate::Protocols::default(),
        sni_nomatch_abort: false,
        match_global: true,
        clients: None,
    }
}

pub fn store(frontends: Vec<FrontendSetup>) -> Store {
    let ticket_secret = TicketSecret::new([1; 32], lacquer_sources::clock::real());
    let quic_secret = crate::QuicSecret::new([2; 32]);
    let setup = Setup { frontends, protocols: crate::Protocols::default(), ticket_secret, quic_secret };
    Store::new(setup, false)
}

pub fn add(store: &Store, entries: Vec<Entry>) {
    store.apply(Change { add: entries, ..Change::default() }).unwrap();
}

/// Moves bytes between the two sides until none is left.
fn converse(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), rustls::Error> {
    while client.wants_write() || server.wants_write() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

fn begin(client: &Arc<ClientConfig>, name: &str) -> (ClientConnection, Accepted) {
    let name = if name.is_empty() { "127.0.0.1" } else { name };
    let mut client =
        ClientConnection::new(client.clone(), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let mut acceptor = Acceptor::default();
    acceptor.read_tls(&mut hello.as_slice()).unwrap();
    (client, acceptor.accept().unwrap().unwrap())
}

/// Does a handshake as the transport does it. A name that is empty is not sent.
pub fn shake(
    frontend: &Frontend,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), Refused> {
    let (mut client, accepted) = begin(client, name);
    let config = frontend.choose(&accepted.client_hello())?;
    let mut server = accepted.into_connection(config).map_err(|(error, _)| error).unwrap();
    converse(&mut client, &mut server).unwrap();
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

/// Does a handshake that may fail. Returns the server's error.
pub fn try_shake(
    frontend: &Frontend,
    client: &Arc<ClientConfig>,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let (mut client, accepted) = begin(client, name);
    let config = frontend.choose(&accepted.client_hello()).expect("a certificate");
    let mut server = accepted.into_connection(config).map_err(|(error, _)| error)?;
    converse(&mut client, &mut server)?;
    Ok((client, server))
}
