//! The certificate of the service, and the settings of TLS. Keys and signatures of Ed25519 always have the same length, so
//! that the packets of a world have, too.

use std::sync::{Arc, OnceLock};

use lacquer_tls::Frontend;
use quinn_proto::ClientConfig;
use quinn_proto::crypto::rustls::QuicClientConfig;
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::h3_client::NAME;

const ALPN: &[u8] = b"h3";

/// The two sides.
pub struct Sides {
    server: Arc<rustls::ServerConfig>,
    client: Arc<QuicClientConfig>,
}

impl Sides {
    /// Returns those of all worlds.
    pub fn get() -> &'static Sides {
        static SIDES: OnceLock<Sides> = OnceLock::new();
        SIDES.get_or_init(|| Sides::create().unwrap_or_else(|error| panic!("no certificate: {error}")))
    }

    fn create() -> Result<Sides, Box<dyn std::error::Error>> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = CertificateParams::new(vec![NAME.to_owned()])?;
        params.serial_number = Some(SerialNumber::from(1u64));
        let certificate = CertificateDer::from(params.self_signed(&key)?.der().to_vec());
        let private = PrivatePkcs8KeyDer::from(key.serialize_der());
        let server = rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
        let mut server =
            server.with_no_client_auth().with_single_cert(vec![certificate.clone()], private.into())?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        // Without tickets, which no client of a world uses.
        server.send_tls13_tickets = 0;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate)?;
        let mut client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Sides { server: Arc::new(server), client: Arc::new(QuicClientConfig::try_from(client)?) })
    }

    pub fn frontend(&self) -> Frontend {
        Frontend::fixed(self.server.clone())
    }

    pub fn client(&self) -> ClientConfig {
        ClientConfig::new(self.client.clone())
    }
}
