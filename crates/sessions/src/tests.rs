//! Tests sessions over connections in memory: the stages of a connection's arrival, the protocol that its transport has
//! negotiated, and its end. There is no VCL, so only HTTP/2 sends bytes: its SETTINGS show that it was begun.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::Hooks;
use lacquer_engine::{MAKERS, Names, OpenDisks, Services, Setup, Shared};
use lacquer_h2::frame::{FrameHeader, Kind};
use lacquer_http::{SessClose, h1};
use lacquer_net::memory::{Ends, Limits, connection};
use lacquer_net::{HttpVersion, Listener, Negotiated, Stage, Stream};
use lacquer_params::{FeatureBits, Params};
use lacquer_shm::VsmDir;
use lacquer_shm::vsm::{self, Owner};
use lacquer_storage::{Arena, Kind as Storage, Stevedore};
use tokio::runtime::LocalOptions;

const PROXY_HEADER: &[u8] = b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

struct World {
    services: Rc<Services>,
    place: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        vsm::remove_dir(&self.place).expect("the directory is ours");
    }
}

/// A client's connection: the stages of its listener, and the properties of its transport.
#[derive(Clone, Copy, Default)]
struct Client {
    stages: &'static [Stage],
    protocol: Option<HttpVersion>,
    /// The size of the transport's write buffer.
    buffer: usize,
}

/// The bytes that the client received, and the end of its connection.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    begins_http2: bool,
    has_farewell: bool,
    was_cut: bool,
    was_forgotten: bool,
}

const CLOSED: Outcome =
    Outcome { begins_http2: false, has_farewell: false, was_cut: false, was_forgotten: false };
const HTTP2: Outcome = Outcome { begins_http2: true, ..CLOSED };

impl World {
    fn new(name: &str, feature: FeatureBits) -> World {
        let place = std::env::temp_dir().join(format!("lacquer-sessions-{name}-{}", std::process::id()));
        let vsm = VsmDir::create(&place, 0o700, Owner { pid: std::process::id(), birth: 0 });
        let arena = Arena::anonymous(Some(1 << 20)).expect("memory");
        let setup = Setup {
            names: Names { host: "here".into(), identity: "sessions".into() },
            params: Params { vsl_space: 1 << 20, thread_pools: 1, feature, ..Params::default() },
            stevedores: vec![Stevedore::new("Transient", Storage::Malloc, 0, arena)],
            hooks: Hooks::default(),
            disks: OpenDisks::default(),
            descriptors: 100,
            invalidation_listeners: Vec::new(),
        };
        let shared = Arc::new(Shared::create(&vsm.expect("a directory"), setup).expect("memory"));
        World { services: Services::new(shared, 0, Arc::default(), MAKERS), place }
    }

    /// Serves a client that sends these bytes and ends its direction. Returns what the client has seen.
    fn serve(&self, client: Client, bytes: &[u8]) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(LocalOptions::default())
            .expect("a runtime");
        let ends = Ends { engine: ([127, 0, 0, 1], 80).into(), peer: ([127, 0, 0, 1], 1024).into() };
        let (near, peer) =
            connection(Limits { window: 4096, step: 7, buffer: client.buffer, sends_files: false }, ends);
        let near = near.with_negotiated(Negotiated { protocol: client.protocol, tls: None });
        let listener = Listener::new("a0".into(), ":80".into(), None, client.stages);
        let session = crate::run(self.services.clone(), Stream::Memory(near), Arc::new(listener));
        let received = runtime.block_on(async {
            let script = async {
                peer.write_all(bytes).await.expect("the session reads");
                peer.shutdown();
                let (mut all, mut piece) = (Vec::new(), [0; 100]);
                while let Ok(n) = peer.read(&mut piece).await
                    && n > 0
                {
                    all.extend_from_slice(&piece[..n]);
                }
                all
            };
            tokio::join!(session, script).1
        });
        let begins_http2 =
            FrameHeader::read(&received).is_some_and(|header| header.kind() == Some(Kind::Settings));
        assert!(begins_http2 || received.is_empty(), "{}", received.escape_ascii());
        Outcome {
            begins_http2,
            has_farewell: peer.has_farewell(),
            was_cut: peer.is_cut(),
            was_forgotten: peer.was_forgotten(),
        }
    }

    fn closed(&self, reason: SessClose) -> u64 {
        let counters = self.services.shared().counters();
        match reason {
            SessClose::RxJunk => counters.sc_rx_junk.get(),
            SessClose::RemClose => counters.sc_rem_close.get(),
            _ => counters.sc_overload.get(),
        }
    }
}

#[test]
fn a_negotiated_protocol_is_spoken_at_once_and_no_other() {
    // The transport decides, whatever the parameter allows for connections that begin with HTTP/1.
    for (name, feature) in [("negotiated", FeatureBits::HTTP2), ("negotiated-off", FeatureBits(0))] {
        let world = World::new(name, feature);
        let with = |protocol| Client { protocol, ..Client::default() };
        assert_eq!(world.serve(with(Some(HttpVersion::Http2)), h1::H2_PREFACE), HTTP2);
        let closed = [SessClose::RxJunk, SessClose::RemClose].map(|reason| world.closed(reason));
        assert_eq!(closed, [0, 1], "the client has closed the connection");
        assert_eq!(world.serve(with(Some(HttpVersion::Http2)), REQUEST), CLOSED);
        assert_eq!(world.closed(SessClose::RxJunk), 1);
        assert_eq!(world.closed(SessClose::Overload), 0, "it is not parsed as HTTP/1");
        assert_eq!(world.serve(with(Some(HttpVersion::Http2)), &h1::H2_PREFACE[..9]), CLOSED);
        assert_eq!(world.closed(SessClose::RemClose), 2, "the preface is incomplete");
    }
}

#[test]
fn the_preface_of_http2_is_an_error_if_http1_was_negotiated() {
    for (protocol, expected) in [(None, HTTP2), (Some(HttpVersion::Http1), CLOSED)] {
        let world = World::new(&format!("preface-{protocol:?}"), FeatureBits::HTTP2);
        assert_eq!(world.serve(Client { protocol, ..Client::default() }, h1::H2_PREFACE), expected);
        assert_eq!(world.closed(SessClose::RxJunk), u64::from(protocol.is_some()));
    }
}

#[test]
fn stages_pass_on_the_bytes_behind_them() {
    let world = World::new("stages", FeatureBits(0));
    let proxied =
        Client { stages: &[Stage::ProxyHeader], protocol: Some(HttpVersion::Http2), ..Client::default() };
    assert_eq!(world.serve(proxied, &[PROXY_HEADER, h1::H2_PREFACE].concat()), HTTP2);
    assert_eq!(world.serve(proxied, h1::H2_PREFACE), CLOSED, "the header is missing");
    assert_eq!(world.closed(SessClose::RxJunk), 1);
    let direct = Client { stages: &[], ..proxied };
    assert_eq!(world.serve(direct, &[PROXY_HEADER, h1::H2_PREFACE].concat()), CLOSED, "it has no such stage");
    assert_eq!(world.closed(SessClose::RxJunk), 2);
}

#[test]
fn a_buffered_transport_is_flushed_and_ends_in_order() {
    let world = World::new("buffered", FeatureBits(0));
    for buffer in [1, 5, 1000] {
        let client = Client { protocol: Some(HttpVersion::Http2), buffer, ..Client::default() };
        let in_order = |begins_http2| Outcome { begins_http2, has_farewell: true, ..CLOSED };
        assert_eq!(world.serve(client, h1::H2_PREFACE), in_order(true));
        assert_eq!(world.serve(client, REQUEST), in_order(false));
    }
}
