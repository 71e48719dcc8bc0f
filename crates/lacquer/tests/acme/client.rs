//! Clients of HTTP, without and with TLS. They trust every certificate.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, StreamOwned,
};

#[derive(Debug)]
struct Trusting(CryptoProvider);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(port: u16, name: &str) -> Result<Tls, String> {
    let provider = aws_lc_rs::default_provider();
    let verifier = Arc::new(Trusting(provider.clone()));
    let builder =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let builder = builder.unwrap().dangerous().with_custom_certificate_verifier(verifier);
    open(port, name, builder.with_no_client_auth())
}

fn open(port: u16, name: &str, config: ClientConfig) -> Result<Tls, String> {
    let config = Arc::new(config);
    let socket = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let connection = ClientConnection::new(config, name.to_owned().try_into().unwrap()).unwrap();
    let mut tls = StreamOwned::new(connection, socket);
    tls.conn.complete_io(&mut tls.sock).map_err(|error| error.to_string())?;
    Ok(tls)
}

/// Returns status and body of a page over TLS, if the certificate is valid for the name and comes from this authority.
pub fn verified_page(port: u16, name: &str, authority: &[u8]) -> Result<(u16, String), String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    fetch(open(port, name, config)?, name, "/")
}

/// Sends a request without TLS and returns the whole response.
pub fn exchange(port: u16, request: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// Returns the server's certificate for a name, in DER.
pub fn handshake(port: u16, name: &str) -> Result<Vec<u8>, String> {
    let tls = connect(port, name)?;
    let certificates = tls.conn.peer_certificates().unwrap_or_default();
    certificates.first().map(|first| first.to_vec()).ok_or("no certificate".to_owned())
}

fn request(target: &str, host: &str, connection: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n")
}

/// Returns status and body.
fn parse(response: &[u8]) -> (u16, String) {
    let text = String::from_utf8_lossy(response);
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.unwrap_or_else(|| panic!("{text}")), body.to_owned())
}

/// Returns status and body of a page.
pub fn page(port: u16, target: &str) -> (u16, String) {
    parse(exchange(port, &request(target, "a.example", "close")).as_bytes())
}

/// Returns status and body of a page over TLS.
pub fn page_over_tls(port: u16, name: &str, target: &str) -> (u16, String) {
    fetch(connect(port, name).expect("a handshake"), name, target).expect("a response")
}

fn fetch(mut tls: Tls, name: &str, target: &str) -> Result<(u16, String), String> {
    tls.write_all(request(target, name, "close").as_bytes()).map_err(|error| error.to_string())?;
    let mut response = Vec::new();
    let _ = tls.read_to_end(&mut response);
    Ok(parse(&response))
}

/// Returns a whole response over TLS.
pub fn exchange_over_tls(port: u16, name: &str, target: &str) -> String {
    let mut tls = connect(port, name).expect("a handshake");
    tls.write_all(request(target, name, "close").as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = tls.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// A connection that stays open.
pub struct Kept {
    tls: Tls,
    name: String,
}

impl Kept {
    pub fn open(port: u16, name: &str) -> Kept {
        let mut kept = Kept { tls: connect(port, name).expect("a handshake"), name: name.to_owned() };
        assert_eq!(kept.get("/first"), 200);
        kept
    }

    /// Returns the status of a page, whose response fits one record.
    pub fn get(&mut self, target: &str) -> u16 {
        self.tls.write_all(request(target, &self.name, "keep-alive").as_bytes()).unwrap();
        let mut buffer = [0; 16 << 10];
        let read = self.tls.read(&mut buffer).expect("a response");
        parse(&buffer[..read]).0
    }
}
