//! The TLS side of a connection. The settings depend on the client's first message, so they are chosen once it has
//! arrived; then quinn's own session over rustls does the handshake.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use lacquer_tls::{Algorithms, Frontend, Refused};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::pki_types::CertificateDer;
use rustls::server::{Accepted, Acceptor};
use rustls::{AlertDescription, CipherSuite};

/// The maximum number of bytes of the client's first message.
const MAX_HELLO: usize = 1 << 16;
/// The maximum number of bytes of a record, and its type and version (RFC 8446 section 5.1).
const MAX_RECORD: usize = 1 << 14;
const HANDSHAKE_RECORD: [u8; 3] = [22, 3, 1];
/// The type and length before a handshake message.
const MESSAGE_HEADER: usize = 4;

/// The facts about a handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeFacts {
    /// The name that the client has asked for (SNI).
    pub server_name: Option<Box<str>>,
    /// The name of the cipher in OpenSSL.
    pub cipher: &'static str,
    /// The algorithms of the certificate.
    pub certificate: Option<Algorithms>,
    /// The fingerprint of the client.
    pub ja3: Option<Box<str>>,
    /// The certificate of the client, which was verified when the session began.
    pub client: Option<Box<[u8]>>,
}

/// Creates sessions with the settings of a listener.
pub struct Settings {
    frontend: Frontend,
    /// Protects first packets, which does not depend on certificates.
    initial: Arc<QuicServerConfig>,
}

impl Settings {
    pub fn new(frontend: Frontend) -> Result<Settings, String> {
        let initial = lacquer_tls::quic_initial_config()?;
        let initial = QuicServerConfig::try_from(initial).map_err(|e| e.to_string())?;
        Ok(Settings { frontend, initial: Arc::new(initial) })
    }
}

impl ServerConfig for Settings {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.initial.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, original, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        Box::new(TlsSession {
            begun: Begun::Hello(Box::default()),
            facts: HandshakeFacts::default(),
            params: *params,
            version,
            settings: self,
        })
    }
}

/// The part of a handshake.
enum Begun {
    /// The client's first message is incomplete.
    Hello(Box<Hello>),
    Session(Box<dyn Session>),
}

/// The bytes of the client's first message that have arrived.
#[derive(Default)]
struct Hello {
    received: Vec<u8>,
    acceptor: Acceptor,
}

struct TlsSession {
    settings: Arc<Settings>,
    version: u32,
    params: TransportParameters,
    begun: Begun,
    facts: HandshakeFacts,
}

fn failed(alert: AlertDescription, reason: &dyn fmt::Display) -> TransportError {
    let code = TransportErrorCode::crypto(u8::from(alert));
    TransportError { code, frame: None, reason: reason.to_string() }
}

/// Returns the error that ends the handshake of a client for which there are no settings.
fn refused(why: &Refused) -> TransportError {
    let alert = match why {
        Refused::NoCertificates => AlertDescription::HandshakeFailure,
        Refused::UnknownName(_) | Refused::Pending(_) => AlertDescription::UnrecognisedName,
        Refused::Unusable(_) => AlertDescription::InternalError,
    };
    failed(alert, why)
}

/// Parses the client's first message, if it is complete.
fn accept(received: &[u8], acceptor: &mut Acceptor) -> Result<Option<Accepted>, TransportError> {
    let len = |header: &[u8]| u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
    let whole = received.get(..MESSAGE_HEADER).map_or(MESSAGE_HEADER, |header| MESSAGE_HEADER + len(header));
    if whole > MAX_HELLO {
        return Err(failed(AlertDescription::IllegalParameter, &"the first message is too long"));
    }
    let Some(message) = received.get(..whole) else { return Ok(None) };
    let mut records = Vec::with_capacity(whole + MESSAGE_HEADER + HANDSHAKE_RECORD.len());
    for piece in message.chunks(MAX_RECORD) {
        records.extend_from_slice(&HANDSHAKE_RECORD);
        records.extend_from_slice(&(piece.len() as u16).to_be_bytes());
        records.extend_from_slice(piece);
    }
    let mut rest = &records[..];
    loop {
        if !rest.is_empty() {
            acceptor.read_tls(&mut rest).map_err(|e| failed(AlertDescription::InternalError, &e))?;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(Some(accepted)),
            Ok(None) if rest.is_empty() => {
                return Err(failed(AlertDescription::DecodeError, &"the first message is malformed"));
            }
            Ok(None) => {}
            Err((error, _)) => return Err(failed(AlertDescription::DecodeError, &error)),
        }
    }
}

impl TlsSession {
    /// Chooses the settings for a client, and creates its session.
    fn begin(&mut self, accepted: &Accepted) -> Result<Box<dyn Session>, TransportError> {
        let hello = accepted.client_hello();
        let config = self.settings.frontend.choose_http3(&hello).map_err(|why| refused(&why))?;
        let certificate = config.cert_resolver.resolve(accepted.client_hello());
        let certificate = certificate.as_ref().and_then(|key| key.cert.first());
        self.facts.certificate = certificate.and_then(|der| Algorithms::of(der));
        let quic = QuicServerConfig::try_from(config.clone())
            .map_err(|e| failed(AlertDescription::InternalError, &e))?;
        self.facts.server_name = hello.server_name().map(Box::from);
        self.facts.cipher = chosen_cipher(&config, hello.cipher_suites());
        Ok(Arc::new(quic).start_session(self.version, &self.params))
    }

    fn session(&self) -> Option<&dyn Session> {
        match &self.begun {
            Begun::Session(session) => Some(&**session),
            Begun::Hello(_) => None,
        }
    }

    fn session_mut(&mut self) -> Option<&mut Box<dyn Session>> {
        match &mut self.begun {
            Begun::Session(session) => Some(session),
            Begun::Hello(_) => None,
        }
    }
}

impl Session for TlsSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        match self.session() {
            Some(session) => session.initial_keys(id, side),
            None => {
                let initial = self.settings.initial.clone();
                initial.start_session(self.version, &self.params).initial_keys(id, side)
            }
        }
    }

    /// Returns [`HandshakeFacts`].
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.session()?.handshake_data()?;
        let chain =
            self.peer_identity().and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
        let client = chain.and_then(|chain| chain.first().map(|der| Box::from(der.as_ref())));
        Some(Box::new(HandshakeFacts { client, ..self.facts.clone() }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session()?.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session()?.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session()?.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session().is_none_or(Session::is_handshaking)
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let hello = match &mut self.begun {
            Begun::Session(session) => return session.read_handshake(bytes),
            Begun::Hello(hello) => hello,
        };
        hello.received.extend_from_slice(bytes);
        let Some(accepted) = accept(&hello.received, &mut hello.acceptor)? else { return Ok(false) };
        let received = std::mem::take(&mut hello.received);
        self.facts.ja3 = lacquer_tls::ja3_of_message(&received);
        let mut session = self.begin(&accepted)?;
        let outcome = session.read_handshake(&received);
        self.begun = Begun::Session(session);
        outcome
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session().map_or(Ok(None), Session::transport_parameters)
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        self.session_mut()?.write_handshake(buffer)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session_mut()?.next_1rtt_keys()
    }

    fn is_valid_retry(&self, original: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session().is_some_and(|session| session.is_valid_retry(original, header, payload))
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let session = self.session().ok_or(ExportKeyingMaterialError)?;
        session.export_keying_material(output, label, context)
    }
}

/// Returns the name in OpenSSL of the cipher that rustls chooses: the first that both sides have, in the order of the
/// side that the settings prefer.
fn chosen_cipher(config: &rustls::ServerConfig, offered: &[CipherSuite]) -> &'static str {
    let usable = config.crypto_provider().cipher_suites.iter();
    let ours = || usable.clone().filter_map(|suite| suite.tls13()?.quic.map(|_| suite.suite()));
    let chosen = if config.ignore_client_order {
        ours().find(|suite| offered.contains(suite))
    } else {
        offered.iter().copied().find(|suite| ours().any(|other| other == *suite))
    };
    match chosen {
        Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => "TLS_AES_128_GCM_SHA256",
        Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => "TLS_AES_256_GCM_SHA384",
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => "TLS_CHACHA20_POLY1305_SHA256",
        _ => "unknown",
    }
}
