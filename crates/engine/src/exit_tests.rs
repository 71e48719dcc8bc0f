//! The sinks of all protocols on real connections: whatever the order of their calls, a client gets the bytes in this
//! order, and one end.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_cache::{ChunkSizes, Object};
use lacquer_deliver::{Behind, Head, MessageHead, ResponseSink, SendError, Sink};
use lacquer_flow::delivery::End as BodyEnd;
use lacquer_h2::flow::SendWindow;
use lacquer_h2::frame::{self, Kind, flag};
use lacquer_h2::settings::Settings;
use lacquer_http::h1::ChunkedDecoder;
use lacquer_http::{Message, Workspace};
use lacquer_net::patience::Patience;
use lacquer_net::{ClientSocket, Listener, Stream as Connection};
use lacquer_params::Params;
use lacquer_shm::VsmDir;
use lacquer_shm::vsm::{self, Owner};
use lacquer_sources::clock;
use lacquer_storage::{Arena, Kind as Storage, Stevedore};
use lacquer_testing::Random;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use crate::client_transport::ClientTransport;
use crate::exit::Exit;
use crate::h2::{Conn, Stream};
use crate::makers::MAKERS;
use crate::req_body::Keep;
use crate::send_limits::SendLimits;
use crate::services::Services;
use crate::session::Sess;
use crate::shared::{Names, Setup, Shared};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const WINDOW: u32 = i32::MAX as u32;

struct World {
    services: Rc<Services>,
    place: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        vsm::remove_dir(&self.place).expect("the directory is ours");
    }
}

impl World {
    fn new(name: &str) -> World {
        let place = std::env::temp_dir().join(format!("lacquer-sinks-{name}-{}", std::process::id()));
        let owner = Owner { pid: std::process::id(), birth: 0 };
        let vsm = VsmDir::create(&place, 0o700, owner).expect("a directory");
        let params = Params { vsl_space: 1 << 20, thread_pools: 1, ..Params::default() };
        let arena = Arena::anonymous(Some(64 << 20)).expect("memory");
        let setup = Setup {
            names: Names { host: "here".into(), identity: "sinks".into() },
            params,
            stevedores: vec![Stevedore::new("Transient", Storage::Malloc, 0, arena)],
            hooks: Default::default(),
            descriptors: 100,
        };
        let shared = Arc::new(Shared::create(&vsm, setup).expect("memory"));
        World { services: Services::new(shared, 0, Arc::default(), MAKERS), place }
    }

    fn complete(&self, body: &[u8], sizes: ChunkSizes) -> Arc<Object> {
        let shared = self.services.shared();
        let stevedore = &shared.stevedores().all()[0];
        let keep = Keep { shared, stevedore, nuke_limit: 0, evicted: |_, _| {} };
        let (object, mut writer) = keep.begin(None, sizes).expect("room");
        keep.append(&mut writer, body).expect("room");
        writer.finish();
        object
    }

    /// Opens a sink of this protocol to a client.
    fn open(&self, protocol: Protocol) -> (Exit, UnixStream, Option<Rc<Conn>>) {
        let (ours, client) = UnixStream::pair().expect("sockets");
        let (rx, tx) = Connection::Unix(ours).split();
        let tx = Rc::new(ClientSocket::new(tx));
        let params = self.services.params();
        let limits =
            SendLimits { total: 60.0, since: clock::real(), idle: 60.0, patience: Patience::of(&params) };
        let (transport, conn) = if protocol == Protocol::Http2 {
            let listener = Listener { name: "a0".into(), endpoint: ":80".into(), proxy: false, path: None };
            let sess = Rc::new(Sess::new(1, Arc::new(listener), &rx, 0.0));
            let conn = Rc::new(Conn::new(self.services.clone(), sess, tx, &params));
            conn.settings.remote.set(Settings { initial_window_size: WINDOW, ..Settings::DEFAULT });
            conn.windows.send.set(SendWindow::new(WINDOW));
            conn.conduct.rules.borrow_mut().open_upgraded();
            (ClientTransport::Http2(Stream::open(&conn, 1, 0.0)), Some(conn))
        } else {
            (ClientTransport::Http1(tx), None)
        };
        (transport.open(Vec::new(), limits), client, conn)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Protocol {
    Length,
    Chunked,
    Http2,
}

impl Protocol {
    fn end(self) -> BodyEnd {
        match self {
            Protocol::Length => BodyEnd::Length,
            Protocol::Chunked => BodyEnd::Chunked,
            Protocol::Http2 => BodyEnd::Stream,
        }
    }
}

#[derive(Debug)]
enum Call {
    Write(Vec<u8>),
    Stored(u64, u64),
    Flush,
}

/// The last calls.
#[derive(Debug)]
enum End {
    Bare,
    With(Vec<u8>),
    Stored(u64, u64),
}

struct Response {
    calls: Vec<Call>,
    end: End,
}

impl Response {
    fn random(random: &mut Random, stored: usize) -> Response {
        let stretch = |random: &mut Random| {
            let from = random.below(stored as u64);
            (from, from + random.below(stored as u64 - from) + 1)
        };
        let calls = (0..random.below(6)).map(|_| match random.below(5) {
            0 => Call::Flush,
            1 => Call::Write(random.bytes(40_000)),
            2 => Call::Write(random.bytes(300)),
            _ => {
                let (from, to) = stretch(random);
                Call::Stored(from, to)
            }
        });
        let calls = calls.collect();
        let end = match random.below(3) {
            0 => End::Bare,
            1 => {
                let length = random.below(20_000) as usize;
                End::With(random.bytes(length))
            }
            _ => {
                let (from, to) = stretch(random);
                End::Stored(from, to)
            }
        };
        Response { calls, end }
    }

    /// The bytes that the client is to get.
    fn body(&self, stored: &[u8]) -> Vec<u8> {
        let part = |&(from, to): &(u64, u64)| &stored[from as usize..to as usize];
        let mut body = Vec::new();
        for call in &self.calls {
            match call {
                Call::Write(piece) => body.extend_from_slice(piece),
                Call::Stored(from, to) => body.extend_from_slice(part(&(*from, *to))),
                Call::Flush => {}
            }
        }
        match &self.end {
            End::Bare => {}
            End::With(piece) => body.extend_from_slice(piece),
            End::Stored(from, to) => body.extend_from_slice(part(&(*from, *to))),
        }
        body
    }

    async fn send(&self, sink: &mut impl Sink, object: &Object) -> Result<(), SendError> {
        for call in &self.calls {
            match call {
                Call::Write(piece) => sink.write(piece).await?,
                Call::Stored(from, to) => stored(sink, object, *from, *to, Behind::More).await?,
                Call::Flush => sink.flush().await?,
            }
        }
        match &self.end {
            End::Bare => sink.end().await,
            End::With(piece) => sink.end_with(piece).await,
            End::Stored(from, to) => {
                stored(sink, object, *from, *to, Behind::End).await?;
                sink.end().await
            }
        }
    }
}

async fn stored(
    sink: &mut impl Sink,
    object: &Object,
    mut from: u64,
    to: u64,
    behind: Behind,
) -> Result<(), SendError> {
    while from < to {
        from = sink.stored(object, from, to, behind).await?;
    }
    Ok(())
}

/// Returns the bytes behind the head.
fn body_of(mut bytes: Vec<u8>) -> Vec<u8> {
    assert!(bytes.starts_with(HEAD), "the head comes first");
    bytes.split_off(HEAD.len())
}

/// Returns the body of what a client received, and how often it ended.
fn decoded(protocol: Protocol, bytes: Vec<u8>) -> (Vec<u8>, usize) {
    match protocol {
        Protocol::Length => (body_of(bytes), 1),
        Protocol::Chunked => {
            let mut rest = body_of(bytes);
            let (mut decoder, mut body) = (ChunkedDecoder::new(), Vec::new());
            while !decoder.is_done() && !rest.is_empty() {
                let run = decoder.decode_run(&mut rest).expect("chunks");
                body.extend_from_slice(&rest[run.start..run.end]);
                rest.drain(..run.consumed);
            }
            assert!(rest.is_empty(), "nothing follows the last chunk");
            (body, usize::from(decoder.is_done()))
        }
        Protocol::Http2 => {
            let (mut body, mut ends) = (Vec::new(), 0);
            let first = frame::split(&bytes).next().expect("a frame").0;
            assert!(first.kind() == Some(Kind::Headers), "the head comes first");
            for (header, payload) in frame::split(&bytes).filter(|(h, _)| h.kind() == Some(Kind::Data)) {
                assert_eq!(ends, 0, "nothing follows the end");
                body.extend_from_slice(payload);
                ends += usize::from(header.flags & flag::END_STREAM != 0);
            }
            (body, ends)
        }
    }
}

async fn exchange(world: &World, protocol: Protocol, response: &Response, object: &Object) -> Vec<u8> {
    let (mut exit, mut client, conn) = world.open(protocol);
    let (mut ws, mut message) = (Workspace::new(1024), Message::new(8));
    message.set_response(&mut ws, 200).expect("room");
    exit.head(Head::Message(MessageHead { message: &message, ws: &ws, end: protocol.end(), notes: None }));
    let send = async {
        response.send(&mut exit, object).await.expect("the client reads");
        if let Some(conn) = conn {
            std::future::poll_fn(|cx| {
                let _ = conn.poll_flush(cx);
                if conn.gathered() > 0 { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
            })
            .await;
            conn.release_streams();
        }
        drop(exit);
    };
    let receive = async {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.expect("no error");
        bytes
    };
    tokio::join!(send, receive).1
}

#[test]
fn any_order_of_calls_gives_the_bytes_in_this_order() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default()).expect("a runtime");
    let world = World::new("order");
    let mut random = Random(11);
    for round in 0..200 {
        let stored = random.bytes(1 + (round * 997) % 200_000);
        let sizes = [1 << 10, 8 << 10, 256 << 10][round % 3];
        let object = world.complete(&stored, ChunkSizes { first: sizes, max: sizes });
        let response = Response::random(&mut random, stored.len());
        let wanted = response.body(&stored);
        for protocol in [Protocol::Length, Protocol::Chunked, Protocol::Http2] {
            let bytes = runtime.block_on(exchange(&world, protocol, &response, &object));
            let (body, ends) = decoded(protocol, bytes);
            assert!(body == wanted, "{protocol:?}, {} of {} bytes", body.len(), wanted.len());
            assert_eq!(ends, 1, "{protocol:?}");
        }
    }
}
