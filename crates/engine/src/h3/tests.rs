//! Tests the sink of HTTP/3 over QUIC on a real socket: whatever the order of a sink's calls, a client receives the
//! bytes in this order.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lacquer_cache::ChunkSizes;
use lacquer_deliver::ResponseSink;
use lacquer_flow::delivery::End;
use lacquer_h3::frame::{Kind, Piece, Reader};
use lacquer_h3::{Error, Reason};
use lacquer_net::{Listener, Side};
use lacquer_quic::{Connection, Dir, Group, Host, Settings, Workers};
use lacquer_testing::Random;
use lacquer_tls::{Frontend, QuicSecret};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::receiving::Failure;
use super::{Conn, Stream};
use crate::client_transport::ClientTransport;
use crate::protocol_tests::{Response, World, limited_sink, ok_head, runtime};
use crate::services::Services;
use crate::session::Sess;

const SETTINGS: Settings = Settings {
    idle: Duration::from_secs(10),
    streams: 100,
    stream_window: 1 << 20,
    window: 1 << 20,
    send_window: 50_000,
    connections: 10,
};

type Connections = Rc<RefCell<Vec<Rc<Connection>>>>;

/// Keeps the connections of an endpoint.
struct Keeper(Connections);

impl Host for Keeper {
    fn settings(&self) -> Settings {
        SETTINGS
    }

    fn is_closing(&self) -> bool {
        false
    }

    fn serve(&self, connection: Rc<Connection>) {
        self.0.borrow_mut().push(connection);
    }

    fn count_relayed(&self, _is_lost: bool) {}
}

/// Returns the settings of a server, and of a client that trusts it.
fn settings() -> (Frontend, quinn::ClientConfig) {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = CertificateDer::from(key.cert.der().to_vec());
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let server = rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let server = server.with_no_client_auth().with_single_cert(vec![certificate.clone()], private.into());
    let mut server = server.expect("a certificate with its key");
    server.alpn_protocols = vec![b"h3".to_vec()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let mut client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h3".to_vec()];
    let client = QuicClientConfig::try_from(client).expect("TLS 1.3");
    (Frontend::fixed(Arc::new(server)), quinn::ClientConfig::new(Arc::new(client)))
}

/// Returns the body in the DATA frames after the head.
fn body(bytes: &[u8]) -> Vec<u8> {
    let (mut reader, mut rest, mut kinds, mut body) = (Reader::default(), bytes, Vec::new(), Vec::new());
    while let Some(piece) = reader.next(&mut rest) {
        match piece {
            Piece::Begin(header) => kinds.push(header.kind()),
            Piece::Payload(bytes) if kinds.len() > 1 => body.extend_from_slice(bytes),
            Piece::Payload(_) => {}
        }
    }
    assert!(reader.is_between_frames(), "the last frame is whole");
    assert_eq!(kinds[0], Kind::Headers, "the head comes first");
    assert!(kinds[1..].iter().all(|kind| *kind == Kind::Data));
    body
}

/// Drives a connection like its session does.
async fn drive(quic: Rc<Connection>, streams: Rc<RefCell<Vec<Rc<Stream>>>>) {
    let mut events = Vec::new();
    std::future::poll_fn(|cx| {
        quic.receive(cx, &mut events);
        events.clear();
        for stream in &*streams.borrow() {
            stream.writable();
            stream.readable();
        }
        quic.send(cx)
    })
    .await;
}

async fn connection(connections: &Connections) -> Rc<Connection> {
    loop {
        if let Some(connection) = connections.borrow_mut().pop() {
            return connection;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn conn(services: &Rc<Services>, quic: &Rc<Connection>) -> Rc<Conn> {
    let listener = Arc::new(Listener::new("a0".into(), ":443".into(), None, []));
    let ends = (Side::of(quic.remote()), Side::of(quic.local()));
    let sess = Rc::new(Sess::between(1, listener, ends, 0, 0.0));
    Rc::new(Conn::new(services.clone(), sess, quic.clone(), &services.params()))
}

/// A connection between a client and the engine.
struct Pair {
    _endpoint: quinn::Endpoint,
    client: quinn::Connection,
    conn: Rc<Conn>,
    /// The streams that are woken with each event.
    streams: Rc<RefCell<Vec<Rc<Stream>>>>,
}

impl Pair {
    async fn connect(world: &World) -> Pair {
        let (frontend, config) = settings();
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("it is bound");
        let (group, workers) = (Group::new(vec![socket]), Workers { own: 1, predecessor: None });
        let seeds = group.and_then(|group| group.seeds(&frontend, &QuicSecret::new([1; 32]), &workers));
        let mut seeds = seeds.expect("settings");
        let (connections, streams) = (Connections::default(), Rc::<RefCell<Vec<_>>>::default());
        let mut endpoint = seeds.remove(0).start(Keeper(connections.clone())).expect("a socket");
        tokio::task::spawn_local(async move { endpoint.run().await });
        let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let connecting = endpoint.connect_with(config, address, "localhost").expect("a name");
        let accept = async {
            let quic = connection(&connections).await;
            tokio::task::spawn_local(drive(quic.clone(), streams.clone()));
            quic
        };
        let (client, quic) = tokio::join!(connecting, accept);
        let (client, conn) = (client.expect("a connection"), conn(&world.services, &quic));
        Pair { _endpoint: endpoint, client, conn, streams }
    }

    /// Opens a stream with these bytes of the client.
    async fn open(&self, bytes: &[u8]) -> (quinn::SendStream, quinn::RecvStream, Rc<Stream>) {
        let (mut send, receive) = self.client.open_bi().await.expect("a stream");
        send.write_all(bytes).await.expect("it is read");
        let id = loop {
            if let Some(id) = self.conn.quic.accept(Dir::Bi) {
                break id;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let stream = Stream::open(&self.conn, id, 0.0);
        *self.streams.borrow_mut() = vec![stream.clone()];
        (send, receive, stream)
    }
}

/// Reads the field section of a request.
async fn head(stream: &Stream) {
    while let Err(failure) = stream.head() {
        assert!(matches!(failure, Failure::Blocked));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A response that is reset after its end is not waited for: the client acknowledges it no more.
#[test]
fn a_response_that_is_reset_leaves_the_connection_idle() {
    let (runtime, world) = (runtime(), World::new("http3-reset"));
    runtime.block_on(async {
        let pair = Pair::connect(&world).await;
        let (_send, _receive, stream) = pair.open(b"x").await;
        stream.write(b"response").expect("it is open");
        stream.finish().expect("it is open");
        assert!(pair.conn.has_unacknowledged());
        stream.kill(Error::Stream(Reason::RequestCancelled));
        assert!(!pair.conn.has_unacknowledged());
    });
}

/// The encoder of a client learns that the trailers of a request which ends early are never decoded.
#[test]
fn requests_that_are_not_read_to_their_end_are_cancelled_in_header_compression() {
    let (runtime, world) = (runtime(), World::new("http3-cancelled"));
    runtime.block_on(async {
        let pair = Pair::connect(&world).await;
        let output = || {
            let mut protocol = pair.conn.protocol.borrow_mut();
            std::mem::take(protocol.qpack.output().expect("there is room"))
        };
        // The capacity of the table, and a field.
        pair.conn.protocol.borrow_mut().qpack.receive(b"\x3f\xe1\x1f\x43x-y\x011").expect("instructions");
        output();
        let (_open, _receive, stream) = pair.open(b"\x01\x02\0\0").await;
        head(&stream).await;
        stream.close();
        assert_eq!(output(), [0x40 | u64::from(stream.id) as u8]);
        let (mut send, _receive, stream) = pair.open(b"\x01\x02\0\0").await;
        send.finish().expect("it is open");
        head(&stream).await;
        let end = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut [0])).await;
        assert_eq!(end.expect("it ends in time").ok(), Some(0));
        stream.close();
        assert!(output().is_empty());
    });
}

#[test]
fn any_order_of_calls_gives_the_bytes_in_this_order() {
    let (runtime, world, mut random) = (runtime(), World::new("http3"), Random(17));
    runtime.block_on(async {
        let pair = Pair::connect(&world).await;
        for round in 0..100 {
            let stored = random.bytes(1 + (round * 997) % 200_000);
            let sizes = [1 << 10, 8 << 10, 256 << 10][round % 3];
            let object = world.complete(&stored, ChunkSizes { first: sizes, max: sizes });
            let response = Response::random(&mut random, stored.len());
            let wanted = response.body(&stored);
            let (_send, mut receive, stream) = pair.open(b"x").await;
            let serve = async {
                let mut sink = limited_sink(&ClientTransport::Http3(stream.clone()), 60.0, 60.0);
                ok_head(&mut sink, End::Stream);
                response.send(&mut sink, &object).await.expect("the client reads");
                assert_eq!(sink.sent().body, wanted.len() as u64);
                stream.close();
            };
            let ((), received) = tokio::join!(serve, receive.read_to_end(1 << 24));
            let received = body(&received.expect("a whole response"));
            assert!(received == wanted, "round {round}: {} of {} bytes", received.len(), wanted.len());
        }
        pair.client.close(0_u32.into(), b"");
    });
}
