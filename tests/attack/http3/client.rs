//! A client of HTTP/3, over quinn.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use lacquer_h3::qpack::{self, Begun, Decoder, Step};
use lacquer_h3::{Connection, frame, settings};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime, WriteError};
use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::trusted;

/// The time within which each answer must arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest response that the client reads.
const MAX_RESPONSE: usize = 64 << 20;

/// The number of bytes of datagrams that wait for the client.
const QUEUE: usize = 8 << 20;

/// The number of bytes of a response that the client holds, per stream.
const WINDOW: u32 = 256 * 1024;

/// A response.
#[derive(Debug)]
pub struct Response {
    pub lines: Vec<String>,
    pub body: Vec<u8>,
    pub trailers: Vec<String>,
}

impl Response {
    pub fn status(&self) -> &str {
        self.field(":status").unwrap_or_default()
    }

    /// Returns the value of a field, whose name is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A connection.
pub struct Client {
    pub endpoint: Endpoint,
    pub connection: quinn::Connection,
    _control: SendStream,
}

/// Returns the settings of a client. It gives up after a time without packets.
pub fn config() -> ClientConfig {
    config_of(trusted().config.as_ref().clone())
}

/// Returns the settings of a client that keeps sessions, and sends requests with its first flight.
pub fn early_config() -> ClientConfig {
    let mut tls = trusted().config.as_ref().clone();
    tls.enable_early_data = true;
    tls.resumption = rustls::client::Resumption::in_memory_sessions(16);
    config_of(tls)
}

/// Returns the settings of a client with a certificate, which keeps sessions.
pub fn config_with_certificate(pem: &str) -> ClientConfig {
    let chain =
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key");
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let pair = CertifiedKey::from_der(chain, key, &provider).expect("a pair");
    let mut tls = trusted().config.as_ref().clone();
    tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(pair));
    tls.resumption = rustls::client::Resumption::in_memory_sessions(16);
    config_of(tls)
}

fn config_of(mut tls: rustls::ClientConfig) -> ClientConfig {
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("it has TLS 1.3")));
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_idle_timeout(Some(PATIENCE.try_into().expect("a short time")))
        .stream_receive_window(WINDOW.into());
    config.transport_config(Arc::new(transport));
    config
}

/// Returns an endpoint whose socket holds all that arrives while the test does other work: the last packet of a connection
/// must not be lost.
fn endpoint() -> Endpoint {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    if sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, QUEUE).expect("a buffer");
    }
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime));
    endpoint.expect("an endpoint")
}

/// Runs a test of clients on a runtime of its own.
pub fn run<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        Client::try_connect(address).await.expect("a connection")
    }

    pub async fn try_connect(address: SocketAddr) -> Result<Client, quinn::ConnectionError> {
        Client::connect_with(&config(), address).await
    }

    /// Connects with these settings.
    pub async fn connect_with(
        config: &ClientConfig,
        address: SocketAddr,
    ) -> Result<Client, quinn::ConnectionError> {
        let endpoint = endpoint();
        let connecting = endpoint.connect_with(config.clone(), address, "example.test").expect("a name");
        Client::begin(endpoint, connecting.await?).await
    }

    /// Connects with the session of an earlier connection, and can send requests before the handshake ends. Returns
    /// whether the daemon accepts them, once it has decided; `None` without a session.
    pub async fn connect_early(
        config: &ClientConfig,
        address: SocketAddr,
    ) -> (Client, Option<quinn::ZeroRttAccepted>) {
        let endpoint = endpoint();
        let connecting = endpoint.connect_with(config.clone(), address, "example.test").expect("a name");
        let (connection, accepted) = match connecting.into_0rtt() {
            Ok((connection, accepted)) => (connection, Some(accepted)),
            Err(connecting) => (connecting.await.expect("a connection"), None),
        };
        (Client::begin(endpoint, connection).await.expect("a control stream"), accepted)
    }

    async fn begin(
        endpoint: Endpoint,
        connection: quinn::Connection,
    ) -> Result<Client, quinn::ConnectionError> {
        let mut control = connection.open_uni().await?;
        let mut bytes = Vec::new();
        Connection::new(settings::Settings::DEFAULT).begin_control(&mut bytes);
        let _ = control.write_all(&bytes).await;
        Ok(Client { endpoint, connection, _control: control })
    }

    /// Reads the daemon's streams until the connection ends. Calls `leave` when it announces that.
    pub async fn watch(connection: quinn::Connection, leave: impl Fn()) {
        // A client that drops one of them stops it, which is an error.
        let mut streams = Vec::new();
        while let Ok(mut stream) = connection.accept_uni().await {
            let mut kind = [0];
            let is_control = stream.read_exact(&mut kind).await.is_ok() && kind == [0];
            let mut reader = frame::Reader::default();
            while is_control && let Ok(Some(chunk)) = stream.read_chunk(1000, true).await {
                let mut input = &chunk.bytes[..];
                while let Some(piece) = reader.next(&mut input) {
                    if let frame::Piece::Begin(header) = piece
                        && header.kind() == frame::Kind::GoAway
                    {
                        leave();
                    }
                }
            }
            streams.push(stream);
        }
    }

    /// Closes the connection, and waits until the daemon knows.
    pub async fn close(self) {
        self.connection.close(0x100_u32.into(), b"");
        self.endpoint.wait_idle().await;
    }

    /// Opens a request. The caller sends its body, and ends it.
    pub async fn open(&self, method: &str, path: &str, more: &[(&str, &str)]) -> (SendStream, RecvStream) {
        self.try_open(method, path, more).await.expect("the daemon reads")
    }

    /// Opens a request on a connection that may end.
    pub async fn try_open(
        &self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
    ) -> Result<(SendStream, RecvStream), WriteError> {
        let (mut send, receive) = self.connection.open_bi().await?;
        let pseudo =
            [(":method", method), (":scheme", "https"), (":authority", "example.test"), (":path", path)];
        let mut bytes = Vec::new();
        frame::write_section(&mut bytes, |out| {
            qpack::begin(out);
            for (name, value) in pseudo.iter().chain(more) {
                qpack::field(out, name.as_bytes(), value.as_bytes());
            }
        });
        send.write_all(&bytes).await?;
        Ok((send, receive))
    }

    /// Sends a request with a body, and returns the response.
    pub async fn send(&self, method: &str, path: &str, more: &[(&str, &str)], body: &[u8]) -> Response {
        let (mut send, mut receive) = self.open(method, path, more).await;
        let write = async {
            if !body.is_empty() {
                send.write_all(frame::data_header(body.len() as u64).as_slice()).await.expect("it reads");
                send.write_all(body).await.expect("the daemon reads the body");
            }
            let _ = send.finish();
        };
        let (response, ()) = tokio::join!(response(&mut receive), write);
        response
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], &[]).await
    }
}

/// Reads a response to its end.
pub async fn response(receive: &mut RecvStream) -> Response {
    try_response(receive).await.expect("a whole response")
}

/// Reads a response, which may end early.
pub async fn try_response(receive: &mut RecvStream) -> Result<Response, quinn::ReadToEndError> {
    let read = tokio::time::timeout(PATIENCE, receive.read_to_end(MAX_RESPONSE)).await;
    Ok(parse(&read.expect("a response in time")?))
}

pub fn parse(bytes: &[u8]) -> Response {
    let (mut reader, mut input) = (frame::Reader::default(), bytes);
    let mut response = Response { lines: Vec::new(), body: Vec::new(), trailers: Vec::new() };
    let mut kind = frame::Kind::Unknown;
    while let Some(piece) = reader.next(&mut input) {
        match piece {
            frame::Piece::Begin(header) => kind = header.kind(),
            frame::Piece::Payload(bytes) if kind == frame::Kind::Headers => {
                let found = lines(bytes);
                // The final response follows interim ones.
                let is_head = found.first().is_some_and(|line| line.starts_with(":status"));
                *(if is_head { &mut response.lines } else { &mut response.trailers }) = found;
            }
            frame::Piece::Payload(bytes) => response.body.extend_from_slice(bytes),
        }
    }
    assert!(reader.is_between_frames(), "the stream ends within a frame");
    response
}

pub fn lines(section: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::new(0, 0);
    let Ok(Begun::Section(mut section)) = decoder.begin(0, section) else { panic!("a section") };
    let (mut lines, mut out) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match decoder.next(&mut section, &mut out).expect("valid fields") {
            Step::Field(line) => lines.push(String::from_utf8_lossy(&out[..line.len]).into_owned()),
            Step::End => return lines,
            Step::Full => panic!("a field that is too long"),
        }
    }
}
