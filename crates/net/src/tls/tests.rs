//! Connections between this transport and rustls' own client and server, over sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use lacquer_tls::Frontend;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, SupportedCipherSuite,
};
use tokio::net::TcpStream;

use super::*;
use crate::http_version::HttpVersion;
use crate::peek::Peeked;
use crate::stream::Stream;

const NAME: &str = "example.test";

/// A certificate that its clients trust.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new(algorithm: &'static rcgen::SignatureAlgorithm) -> Identity {
        let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
        let parameters = rcgen::CertificateParams::new(vec![NAME.to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        Identity {
            certificate: certificate.der().clone(),
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        }
    }

    fn server(&self, suites: &[SupportedCipherSuite]) -> Arc<ServerConfig> {
        let builder =
            ServerConfig::builder_with_provider(provider(suites)).with_safe_default_protocol_versions();
        let mut config = builder
            .expect("versions of the suites")
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .expect("the key of the certificate");
        config.enable_secret_extraction = true;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }

    fn client(&self, suites: &[SupportedCipherSuite]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        let builder =
            ClientConfig::builder_with_provider(provider(suites)).with_safe_default_protocol_versions();
        let mut config =
            builder.expect("versions of the suites").with_root_certificates(roots).with_no_client_auth();
        config.enable_secret_extraction = true;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

fn provider(suites: &[SupportedCipherSuite]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: suites.to_vec(), ..default_provider() })
}

fn name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("a name")
}

/// Runs rustls' own client on a thread.
fn with_client<R: Send + 'static>(
    config: Arc<ClientConfig>,
    to: SocketAddr,
    script: impl FnOnce(&mut rustls::StreamOwned<ClientConnection, std::net::TcpStream>) -> R + Send + 'static,
) -> JoinHandle<R> {
    std::thread::spawn(move || {
        let connection = ClientConnection::new(config, name()).expect("a configuration");
        let socket = std::net::TcpStream::connect(to).expect("a listener");
        script(&mut rustls::StreamOwned::new(connection, socket))
    })
}

/// Runs rustls' own server on a thread, for one connection.
fn with_server<R: Send + 'static>(
    config: Arc<ServerConfig>,
    script: impl FnOnce(&mut rustls::StreamOwned<ServerConnection, std::net::TcpStream>) -> R + Send + 'static,
) -> (SocketAddr, JoinHandle<R>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        let connection = ServerConnection::new(config).expect("a configuration");
        let (socket, _) = listener.accept().expect("a client");
        script(&mut rustls::StreamOwned::new(connection, socket))
    });
    (at, thread)
}

async fn listen() -> (tokio::net::TcpListener, SocketAddr) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    (listener, at)
}

async fn accept_one(
    listener: &tokio::net::TcpListener,
    config: Arc<ServerConfig>,
) -> Result<Stream, Failure> {
    let (socket, _) = listener.accept().await.expect("a client");
    let turns = HandshakeTurns::default();
    let how = Acceptance { frontend: &Frontend::fixed(config), turns: &turns, wants_ja3: true };
    accept(Stream::Tcp(socket), Vec::new(), &how).await.map_err(|failed| failed.failure)
}

async fn connect_to(at: SocketAddr, config: Arc<ClientConfig>) -> Result<Stream, Failure> {
    let socket = TcpStream::connect(at).await.expect("a listener");
    connect(Stream::Tcp(socket), config, name()).await
}

/// Returns `n` bytes that depend on their positions.
fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 + i / 251) as u8).collect()
}

async fn read_to_end(rx: &crate::RxHalf) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut piece = vec![0; 20_000];
    loop {
        match rx.read(&mut piece).await? {
            0 => return Ok(all),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}

#[tokio::test]
async fn every_cipher_carries_bytes_of_all_lengths_from_and_to_a_client() {
    let (ecdsa, rsa) =
        (Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256), Identity::new(&rcgen::PKCS_RSA_SHA256));
    for suite in ALL_CIPHER_SUITES {
        let identity = if format!("{:?}", suite.suite()).contains("_RSA_") { &rsa } else { &ecdsa };
        let (listener, at) = listen().await;
        let client = with_client(identity.client(&[*suite]), at, |stream| {
            for n in [1, 100, 5000, 16_384, 16_385, 400_000] {
                let sent = pattern(n);
                stream.write_all(&sent).expect("the server reads");
                stream.flush().expect("the server reads");
                let mut back = vec![0; n];
                stream.read_exact(&mut back).expect("the server writes");
                assert!(sent == back, "{n} bytes");
            }
            stream.conn.send_close_notify();
            stream.flush().expect("the server reads");
            assert_eq!(stream.read(&mut [0; 10]).expect("an orderly end"), 0);
        });
        let stream = accept_one(&listener, identity.server(&[*suite])).await.expect("a handshake");
        let negotiated = stream.negotiated();
        let facts = negotiated.tls.expect("TLS");
        assert_eq!(negotiated.protocol, Some(HttpVersion::Http1));
        assert_eq!((facts.server_name.as_deref(), facts.alpn.as_deref()), (Some(NAME), Some("http/1.1")));
        assert!(facts.ja3.as_deref().is_some_and(|ja3| ja3.starts_with("771,")), "{facts:?}");
        assert_eq!(facts.version, if facts.cipher.starts_with("TLS_") { "TLSv1.3" } else { "TLSv1.2" });
        let key = if std::ptr::eq(identity, &raw const rsa) { "RSA2048" } else { "EC256" };
        assert_eq!(facts.certificate.key.as_deref(), Some(key));
        let (rx, tx) = stream.split();
        let mut piece = vec![0; 30_000];
        loop {
            let n = rx.read(&mut piece).await.expect("the client writes");
            if n == 0 {
                break;
            }
            tx.write_all(&piece[..n]).await.expect("the client reads");
        }
        assert_eq!(tx.held(), 0);
        tx.end().await.expect("the client reads");
        client.join().expect("the client is content");
    }
}

#[tokio::test]
async fn every_cipher_carries_bytes_from_and_to_an_origin() {
    let (ecdsa, rsa) =
        (Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256), Identity::new(&rcgen::PKCS_RSA_SHA256));
    for suite in ALL_CIPHER_SUITES {
        let identity = if format!("{:?}", suite.suite()).contains("_RSA_") { &rsa } else { &ecdsa };
        let (at, server) = with_server(identity.server(&[*suite]), |stream| {
            let mut request = [0; 7];
            stream.read_exact(&mut request).expect("the client writes");
            stream.write_all(&pattern(300_000)).expect("the client reads");
            stream.conn.send_close_notify();
            stream.flush().expect("the client reads");
            request
        });
        let stream = connect_to(at, identity.client(&[*suite])).await.expect("a handshake");
        let (rx, tx) = stream.split();
        tx.write_all(b"request").await.expect("the server reads");
        assert!(read_to_end(&rx).await.expect("an orderly end") == pattern(300_000));
        assert_eq!(&server.join().expect("the server is content"), b"request");
    }
}

#[tokio::test]
async fn a_stream_without_an_orderly_end_is_an_error() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let (at, server) = with_server(identity.server(ALL_CIPHER_SUITES), |stream| {
        stream.write_all(b"half of it").expect("the client reads");
        stream.flush().expect("the client reads");
    });
    let stream = connect_to(at, identity.client(ALL_CIPHER_SUITES)).await.expect("a handshake");
    let (rx, _tx) = stream.split();
    let error = read_to_end(&rx).await.expect_err("no close_notify");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
    server.join().expect("the server is content");
}

#[tokio::test]
async fn a_ticket_on_an_idle_connection_is_no_data_and_resumes_the_next_one() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let (server, client) = (identity.server(ALL_CIPHER_SUITES), identity.client(ALL_CIPHER_SUITES));
    for is_resumed in [false, true] {
        let (at, thread) = with_server(server.clone(), |stream| {
            stream.read_exact(&mut [0; 2]).expect("the client writes");
            stream.write_all(b"ok").expect("the client reads");
            stream.read(&mut [0]).expect("an orderly end")
        });
        let stream = connect_to(at, client.clone()).await.expect("a handshake");
        assert_eq!(stream.negotiated().tls.expect("TLS").is_resumed, is_resumed);
        let (rx, tx) = stream.split();
        assert_eq!(rx.peek(), Peeked::Quiet);
        tx.write_all(b"hi").await.expect("the server reads");
        rx.poll_readable_now().await;
        assert_eq!(rx.peek(), Peeked::Bytes(b"ok".to_vec()));
        let mut buf = [0; 10];
        assert_eq!(rx.read(&mut buf).await.expect("data"), 2);
        assert_eq!(rx.peek(), Peeked::Quiet);
        tx.end().await.expect("the server reads");
        assert_eq!(thread.join().expect("the server is content"), 0);
    }
}

impl crate::RxHalf {
    /// Waits until a read would complete at once.
    async fn poll_readable_now(&self) {
        std::future::poll_fn(|cx| self.poll_readable(cx)).await.expect("the connection is open");
    }
}

#[tokio::test]
async fn the_peer_changes_its_keys_and_requests_new_ones() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let (listener, at) = listen().await;
    let client = with_client(identity.client(ALL_CIPHER_SUITES), at, |stream| {
        for _ in 0..10 {
            stream.write_all(b"ping").expect("the server reads");
            stream.flush().expect("the server reads");
            let mut back = [0; 4];
            stream.read_exact(&mut back).expect("the server writes");
            assert_eq!(&back, b"ping");
            stream.conn.refresh_traffic_keys().expect("TLS 1.3");
        }
    });
    let stream = accept_one(&listener, identity.server(ALL_CIPHER_SUITES)).await.expect("a handshake");
    let (rx, tx) = stream.split();
    for _ in 0..10 {
        let mut piece = [0; 100];
        let n = rx.read(&mut piece).await.expect("the client writes");
        tx.write_all(&piece[..n]).await.expect("the client reads");
    }
    client.join().expect("the client is content");
}

#[tokio::test]
async fn a_client_that_does_not_read_fills_one_buffer() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let (listener, at) = listen().await;
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let client = with_client(identity.client(ALL_CIPHER_SUITES), at, move |stream| {
        stream.write_all(b"x").expect("the server reads");
        stream.flush().expect("the server reads");
        wait.recv().expect("the server is full");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("an orderly end");
        all
    });
    let stream = accept_one(&listener, identity.server(ALL_CIPHER_SUITES)).await.expect("a handshake");
    let (_rx, tx) = stream.split();
    let body = pattern(30 << 20);
    let mut sent = 0;
    tx.writable().await.expect("the connection is open");
    loop {
        match tx.try_write(&body[sent..]) {
            Ok(n) => sent += n,
            Err(e) => {
                assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    let held = tx.held();
    assert!(held > 0 && held <= 64 << 10, "{held}");
    go.send(()).expect("the client waits");
    tx.write_all(&body[sent..]).await.expect("the client reads");
    assert_eq!(tx.held(), 0);
    tx.end().await.expect("the client reads");
    assert!(client.join().expect("the client is content") == body);
}

#[tokio::test]
async fn a_client_without_tls_is_told_apart() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    for (bytes, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], Failure::HttpRequest),
        (b"\x80\x2e\x01\x00\x02", Failure::NotTls),
        (b"\x16\x03\x01\xff\xff", Failure::RecordOverflow),
        (b"", Failure::Truncated),
        (b"\x16\x03\x01\x01\x00abc", Failure::Truncated),
    ] {
        let (listener, at) = listen().await;
        let mut client = std::net::TcpStream::connect(at).expect("a listener");
        client.write_all(bytes).expect("the server reads");
        client.shutdown(std::net::Shutdown::Write).expect("the connection is open");
        let failed = accept_one(&listener, identity.server(ALL_CIPHER_SUITES)).await.err();
        assert_eq!(failed, Some(expected));
    }
}

#[tokio::test]
async fn connections_pass_between_this_transport_and_itself() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let (listener, at) = listen().await;
    let (server, client) = tokio::join!(
        accept_one(&listener, identity.server(ALL_CIPHER_SUITES)),
        connect_to(at, identity.client(ALL_CIPHER_SUITES)),
    );
    let (server, client) = (server.expect("a handshake"), client.expect("a handshake"));
    let (rx, tx) = client.split();
    let (from, to) = server.split();
    let body = pattern(3 << 20);
    let (sent, received) = tokio::join!(
        async {
            let cut = body.len() / 3;
            let parts = [std::io::IoSlice::new(&body[..100]), std::io::IoSlice::new(&body[100..cut])];
            let n = to.try_write_vectored(&parts).unwrap_or(0);
            to.write_all(&body[n..]).await?;
            to.end().await
        },
        read_to_end(&rx)
    );
    sent.expect("the client reads");
    assert!(received.expect("an orderly end") == body);
    tx.end().await.expect("the server reads");
    assert_eq!(from.read(&mut [0]).await.expect("an orderly end"), 0);
}
