//! Tests endpoints over sockets in memory, with clients of the library.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use lacquer_tls::{Frontend, QuicSecret};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionHandle, DatagramEvent, Dir, EndpointConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use crate::connection::Connection;
use crate::endpoint::{Endpoint, Host};
use crate::event::Event;
use crate::group::{Group, Workers};
use crate::ids;
use crate::memory::Wire;
use crate::settings::Settings;

const NAME: &str = "localhost";
const SERVER: &str = "[2001:db8::1]:443";
/// The time in which packets have their effects.
const PATIENCE: Duration = Duration::from_secs(20);
/// The bits of the first byte of a Retry packet (RFC 9000 section 17.2.5). No other packet has all of them.
const RETRY: u8 = 0xf0;

fn now() -> Instant {
    lacquer_sources::clock::Instant::now().into_std()
}

/// Returns the settings of a server, and of a client that trusts it and keeps sessions.
fn sides() -> (Frontend, ClientConfig) {
    let key = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let certificate = CertificateDer::from(key.cert.der().to_vec());
    let private = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let server = rustls::ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]);
    let server = server.with_no_client_auth().with_single_cert(vec![certificate.clone()], private.into());
    let mut server = server.unwrap();
    server.max_early_data_size = u32::MAX;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.enable_early_data = true;
    for protocols in [&mut server.alpn_protocols, &mut client.alpn_protocols] {
        *protocols = vec![b"h3".to_vec()];
    }
    let client = QuicClientConfig::try_from(client).unwrap();
    (Frontend::fixed(Arc::new(server)), ClientConfig::new(Arc::new(client)))
}

/// Keeps the connections of an endpoint, in their order.
#[derive(Clone, Default)]
struct Keeper(Rc<RefCell<Vec<Rc<Connection>>>>);

impl Host for Keeper {
    fn settings(&self) -> Settings {
        Settings {
            idle: Duration::from_secs(30),
            streams: 100,
            stream_window: 1 << 16,
            window: 1 << 16,
            send_window: 1 << 16,
            connections: 1000,
        }
    }

    fn is_closing(&self) -> bool {
        false
    }

    fn serve(&self, connection: Rc<Connection>) {
        self.0.borrow_mut().push(connection);
    }

    fn count_relayed(&self, _is_lost: bool) {}
}

/// An endpoint on one reactor.
struct Server {
    wire: Wire,
    endpoint: Endpoint<Keeper>,
    keeper: Keeper,
}

impl Server {
    fn start(address: &str, frontend: &Frontend) -> Server {
        let wire = Wire::new(address.parse().unwrap());
        let workers = Workers { own: 1, predecessor: None };
        let group = Group::in_memory(vec![wire.clone()]).unwrap();
        let mut seeds = group.seeds(frontend, &QuicSecret::new([1; 32]), &workers).unwrap();
        let keeper = Keeper::default();
        Server { wire, endpoint: seeds.remove(0).start(keeper.clone()).unwrap(), keeper }
    }

    /// Handles the datagrams that have arrived.
    fn receive(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(self.endpoint.run()).poll(&mut cx).is_pending());
    }

    /// Returns the next datagram that was sent.
    fn sent(&self) -> Option<(SocketAddr, Vec<u8>)> {
        match self.wire.poll_sent(&Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => Some((sent.to, sent.bytes)),
            Poll::Pending => None,
        }
    }

    fn connection(&self, at: usize) -> Rc<Connection> {
        self.keeper.0.borrow()[at].clone()
    }
}

/// Serves a connection once. Returns its events, and whether it needs no more packets.
fn serve(connection: &Connection) -> (Vec<Event>, bool) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut events = Vec::new();
    connection.receive(&cx, &mut events);
    let is_over = connection.send(&mut cx).is_ready();
    (events, is_over)
}

struct Client {
    address: SocketAddr,
    endpoint: quinn_proto::Endpoint,
    handle: ConnectionHandle,
    state: quinn_proto::Connection,
    is_connected: Cell<bool>,
}

impl Client {
    fn connect(address: &str, config: &ClientConfig) -> Client {
        let mut endpoint = quinn_proto::Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let connected = endpoint.connect(now(), config.clone(), SERVER.parse().unwrap(), NAME);
        let (handle, state) = connected.unwrap();
        Client { address: address.parse().unwrap(), endpoint, handle, state, is_connected: Cell::new(false) }
    }

    /// Sends the packets that are due to the server.
    fn send(&mut self, server: &Server) {
        if self.state.poll_timeout().is_some_and(|due| due <= now()) {
            self.state.handle_timeout(now());
        }
        let mut bytes = Vec::new();
        while let Some(transmit) = self.state.poll_transmit(now(), 1, &mut bytes) {
            server.wire.deliver(self.address, &bytes[..transmit.size]);
            bytes.clear();
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let from = SERVER.parse().unwrap();
        let event = self.endpoint.handle(now(), from, None, None, bytes.into(), &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.state.handle_event(event);
        }
        while let Some(event) = self.state.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.state.handle_event(event);
            }
        }
        while let Some(event) = self.state.poll() {
            if matches!(event, quinn_proto::Event::Connected) {
                self.is_connected.set(true);
            }
        }
    }
}

/// Carries packets between a server and a client until `is_done`, which gets the events of the client's connection. That is
/// the one at this place among those of the server.
fn exchange(
    server: &mut Server,
    client: &mut Client,
    at: usize,
    mut is_done: impl FnMut(&Client, &[Event], bool) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "the packets have no effect");
        client.send(server);
        server.receive();
        let connection = server.keeper.0.borrow().get(at).cloned();
        let (events, is_over) = connection.as_deref().map_or((Vec::new(), false), serve);
        while let Some((to, bytes)) = server.sent() {
            if to == client.address {
                client.receive(&bytes);
            }
        }
        if is_done(client, &events, is_over) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Does a handshake. Returns the server's connection.
fn shake(server: &mut Server, client: &mut Client) -> Rc<Connection> {
    let (at, mut is_connected) = (server.keeper.0.borrow().len(), false);
    exchange(server, client, at, |client, events, _| {
        is_connected |= events.contains(&Event::Connected);
        is_connected && client.is_connected.get()
    });
    server.connection(at)
}

/// Runs a test where timers can be created.
fn run(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    test();
}

/// A connection that has ended, and is dropped late, does not take the packets of the one that follows it.
#[test]
fn a_connection_that_is_dropped_late_takes_no_packets_of_another() {
    run(|| {
        let (frontend, config) = sides();
        let mut server = Server::start(SERVER, &frontend);
        let mut first = Client::connect("[2001:db8::2]:1", &config);
        let ended = shake(&mut server, &mut first);
        first.state.close(now(), 0_u32.into(), Vec::new().into());
        first.send(&server);
        server.receive();
        let deadline = Instant::now() + PATIENCE;
        while !serve(&ended).1 {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.keeper.0.borrow_mut().clear();
        // It begins before the other one is dropped.
        let mut second = Client::connect("[2001:db8::2]:2", &config);
        second.send(&server);
        server.receive();
        let connection = server.connection(0);
        drop(ended);
        exchange(&mut server, &mut second, 0, |client, _, _| {
            client.is_connected.get() && !connection.is_handshaking()
        });
    });
}

/// A client whose early data was received, and that closes the connection, has not completed its handshake.
#[test]
fn a_handshake_that_ends_early_is_never_complete() {
    run(|| {
        let (frontend, config) = sides();
        let mut server = Server::start(SERVER, &frontend);
        let mut first = Client::connect("[2001:db8::2]:1", &config);
        let connection = shake(&mut server, &mut first);
        assert!(!connection.is_handshaking());
        // The session arrives with the next packets.
        let mut early = None;
        exchange(&mut server, &mut first, 0, |_, _, _| {
            let client = Client::connect("[2001:db8::2]:2", &config);
            early = client.state.has_0rtt().then_some(client);
            early.is_some()
        });
        let mut early = early.expect("there is a session");
        let id = early.state.streams().open(Dir::Bi).unwrap();
        early.state.send_stream(id).write(b"request").unwrap();
        early.send(&server);
        server.receive();
        let connection = server.connection(1);
        let (events, _) = serve(&connection);
        assert!(events.contains(&Event::Opened(Dir::Bi)) && connection.is_handshaking(), "{events:?}");
        early.state.close(now(), 0_u32.into(), Vec::new().into());
        early.send(&server);
        server.receive();
        let (events, _) = serve(&connection);
        assert!(matches!(events.last(), Some(Event::Closed(_))), "{events:?}");
        assert!(connection.is_handshaking());
    });
}

/// One network of clients cannot use all handshakes, also if its clients prove their addresses.
#[test]
fn handshakes_with_a_network_are_limited() {
    run(|| {
        let (frontend, config) = sides();
        let mut server = Server::start(SERVER, &frontend);
        // Begins a handshake, which does not go on. Returns whether the server has begun it, too.
        let open = |server: &mut Server, address: &str| {
            let before = server.keeper.0.borrow().len();
            let mut client = Client::connect(address, &config);
            client.send(server);
            server.receive();
            while let Some((_, bytes)) = server.sent() {
                if bytes[0] & RETRY == RETRY {
                    client.receive(&bytes);
                }
            }
            client.send(server);
            server.receive();
            while server.sent().is_some() {}
            server.keeper.0.borrow().len() > before
        };
        let begun = (0..200).filter(|at| open(&mut server, &format!("[2001:db8:0:7::{at}]:1"))).count();
        assert_eq!(begun, 128);
        assert!(open(&mut server, "[2001:db8:0:8::1]:1"), "another network");
        let validated = server.keeper.0.borrow().iter().filter(|it| it.is_validated()).count();
        assert_eq!(validated, 129 - 32);
        // The end of a handshake makes room.
        server.connection(0).close(0, "");
        assert!(open(&mut server, "[2001:db8:0:7::1:1]:1"));
        assert!(!open(&mut server, "[2001:db8:0:7::1:2]:1"));
    });
}

/// A packet with an id of another group gets no answer: the answer would be the token that resets the connection.
#[test]
fn ids_of_another_group_get_no_answer() {
    run(|| {
        let (frontend, config) = sides();
        let mut server = Server::start(SERVER, &frontend);
        let mut same = Server::start(SERVER, &frontend);
        let mut other = Server::start("[2001:db8::9]:443", &frontend);
        let mut client = Client::connect("[2001:db8::2]:1", &config);
        shake(&mut server, &mut client);
        client.state.ping();
        let mut sent = Vec::new();
        let _ = client.state.poll_transmit(now(), 1, &mut sent).unwrap();
        // Long enough for an answer, which is shorter than the packet.
        let packet = [&[0x40][..], ids::destination(&sent).unwrap(), &[7; 100]].concat();
        for (server, is_answered) in [(&mut same, true), (&mut other, false)] {
            server.wire.deliver(client.address, &packet);
            server.receive();
            assert_eq!(server.sent().is_some(), is_answered);
        }
    });
}
