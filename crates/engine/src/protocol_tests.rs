//! Tests the sinks and the body readers of all protocols on real connections. Whatever the order of a sink's calls, a
//! client receives the bytes in this order, and one end. However a client sends a body, the reader receives all of it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use lacquer_cache::disk::OpenDisks;
use lacquer_cache::{ChunkSizes, Hooks, Object};
use lacquer_deliver::{Behind, Head, MessageHead, ResponseSink, SendError, Sink};
use lacquer_flow::delivery::End as BodyEnd;
use lacquer_h2::flow::INITIAL_WINDOW;
use lacquer_h2::frame::{self, Kind, flag};
use lacquer_h2::settings::Settings;
use lacquer_http::h1::{ChunkHeader, ChunkedDecoder, Framing, LAST_CHUNK};
use lacquer_http::{BodyStatus, Message, Workspace};
use lacquer_net::disconnect::DisconnectPolicy;
use lacquer_net::{ClientSocket, Listener, Rx, Stream as Connection};
use lacquer_params::Params;
use lacquer_shm::VsmDir;
use lacquer_shm::vsm::{self, Owner};
use lacquer_sources::clock;
use lacquer_storage::{Arena, Kind as Storage, Stevedore};
use lacquer_testing::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::{LocalOptions, LocalRuntime};

use crate::client_sink::ClientSink;
use crate::client_transport::ClientTransport;
use crate::h2::{Conn, Stream};
use crate::makers::MAKERS;
use crate::req_body::{BodyInput, Keep, ReqBody};
use crate::send_limits::SendLimits;
use crate::services::Services;
use crate::session::Sess;
use crate::shared::{Names, Setup, Shared};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const WINDOW: u32 = i32::MAX as u32;

pub(crate) struct World {
    pub services: Rc<Services>,
    place: PathBuf,
}

impl Drop for World {
    fn drop(&mut self) {
        vsm::remove_dir(&self.place).expect("the directory is ours");
    }
}

impl World {
    pub fn new(name: &str) -> World {
        let arena = Arena::anonymous(Some(64 << 20)).expect("memory");
        World::over(name, Stevedore::new("Transient", Storage::Malloc, 0, arena))
    }

    pub fn over(name: &str, stevedore: Stevedore) -> World {
        let place = std::env::temp_dir().join(format!("lacquer-sinks-{name}-{}", std::process::id()));
        let owner = Owner { pid: std::process::id(), birth: 0 };
        let vsm = VsmDir::create(&place, 0o700, owner).expect("a directory");
        let params = Params { vsl_space: 1 << 20, thread_pools: 1, ..Params::default() };
        let setup = Setup {
            names: Names { host: "here".into(), identity: "sinks".into() },
            params,
            stevedores: vec![stevedore],
            hooks: Hooks::default(),
            disks: OpenDisks::default(),
            descriptors: 100,
            invalidation_listeners: Vec::new(),
        };
        let shared = Arc::new(Shared::create(&vsm, setup).expect("memory"));
        World { services: Services::new(shared, 0, Arc::default(), MAKERS), place }
    }

    pub fn complete(&self, body: &[u8], sizes: ChunkSizes) -> Arc<Object> {
        let shared = self.services.shared();
        let stevedore = &shared.stevedores().all()[0];
        let keep = Keep { shared, stevedore, nuke_limit: 0, evicted: |_, _| {} };
        let (object, mut writer) = keep.begin(None, sizes).expect("room");
        keep.append(&mut writer, body).expect("room");
        writer.finish();
        object
    }

    /// Returns the transport of a client that uses this protocol.
    pub fn open(&self, protocol: Protocol) -> Opened {
        let (ours, client) = UnixStream::pair().expect("sockets");
        let listener = Listener::new("a0".into(), ":80".into(), None, []);
        let stream = Connection::Unix(ours);
        let sess = Rc::new(Sess::new(1, Arc::new(listener), &stream, 0.0));
        let (rx, tx) = stream.split();
        let tx = Rc::new(ClientSocket::new(tx));
        let params = self.services.params();
        let (transport, conn) = if protocol == Protocol::Http2 {
            let conn = Rc::new(Conn::new(self.services.clone(), sess, tx, &params));
            conn.set_client_settings(Settings { initial_window_size: WINDOW, ..Settings::DEFAULT });
            conn.add_credit(WINDOW - INITIAL_WINDOW).expect("the window stays below its limit");
            conn.conduct().open_upgraded();
            (ClientTransport::Http2(Stream::open(&conn, 1, 0.0)), Some(conn))
        } else {
            (ClientTransport::Http1(tx), None)
        };
        Opened { transport, rx: Rx::new(rx), client, conn }
    }
}

/// The two ends of a connection: the request's and the client's.
pub(crate) struct Opened {
    pub transport: ClientTransport,
    pub rx: Rx,
    pub client: UnixStream,
    pub conn: Option<Rc<Conn>>,
}

fn sink(transport: &ClientTransport) -> ClientSink {
    limited_sink(transport, 60.0, 60.0)
}

pub(crate) fn limited_sink(transport: &ClientTransport, total: f64, idle: f64) -> ClientSink {
    let disconnect = DisconnectPolicy::of(&Params::default());
    transport.open(Vec::new(), SendLimits { total, since: clock::real(), idle, disconnect })
}

pub(crate) fn ok_head(exit: &mut ClientSink, end: BodyEnd) -> usize {
    let (mut ws, mut message) = (Workspace::new(1024), Message::new(8));
    message.set_response(&mut ws, 200).expect("room");
    exit.head(Head::Message(MessageHead { message: &message, ws: &ws, end, notes: None }))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Protocol {
    Length,
    Chunked,
    Http2,
}

impl Protocol {
    pub fn end(self) -> BodyEnd {
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

/// The calls that end a response.
#[derive(Debug)]
enum End {
    Bare,
    With(Vec<u8>),
    Stored(u64, u64),
}

pub(crate) struct Response {
    calls: Vec<Call>,
    end: End,
}

impl Response {
    pub(crate) fn random(random: &mut Random, stored: usize) -> Response {
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

    /// Returns the bytes that the client must receive.
    pub(crate) fn body(&self, stored: &[u8]) -> Vec<u8> {
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

    pub(crate) async fn send(&self, sink: &mut impl Sink, object: &Object) -> Result<(), SendError> {
        for call in &self.calls {
            match call {
                Call::Write(piece) => sink.write(piece).await?,
                Call::Stored(from, to) => write_stored(sink, object, *from, *to, Behind::More).await?,
                Call::Flush => sink.flush().await?,
            }
        }
        match &self.end {
            End::Bare => sink.end().await,
            End::With(piece) => sink.end_with(piece).await,
            End::Stored(from, to) => {
                write_stored(sink, object, *from, *to, Behind::End).await?;
                sink.end().await
            }
        }
    }
}

async fn write_stored(
    sink: &mut impl Sink,
    object: &Object,
    mut from: u64,
    to: u64,
    behind: Behind,
) -> Result<(), SendError> {
    while from < to {
        from = sink.write_stored(object, from, to, behind).await?;
    }
    Ok(())
}

/// Returns the bytes after the head.
fn body_of(mut bytes: Vec<u8>) -> Vec<u8> {
    assert!(bytes.starts_with(HEAD), "the head comes first");
    bytes.split_off(HEAD.len())
}

/// Returns the body that a client received, and the number of its ends.
pub(crate) fn decoded(protocol: Protocol, bytes: Vec<u8>) -> (Vec<u8>, usize) {
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

/// Returns all bytes that a client receives from `work` until its connection ends.
async fn received(world: &World, protocol: Protocol, work: impl AsyncFnOnce(&ClientTransport)) -> Vec<u8> {
    let Opened { transport, rx, mut client, conn } = world.open(protocol);
    let send = async {
        work(&transport).await;
        if let Some(conn) = conn {
            std::future::poll_fn(|cx| {
                let _ = conn.poll_flush(cx);
                if conn.gathered() > 0 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            conn.release_streams();
        }
        drop((transport, rx));
    };
    let receive = async {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.expect("no error");
        bytes
    };
    tokio::join!(send, receive).1
}

pub(crate) fn runtime() -> LocalRuntime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build_local(LocalOptions::default()).expect("a runtime")
}

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Length, Protocol::Chunked, Protocol::Http2];

#[test]
fn any_order_of_calls_gives_the_bytes_in_this_order() {
    let (runtime, world, mut random) = (runtime(), World::new("order"), Random(11));
    for round in 0..200 {
        let stored = random.bytes(1 + (round * 997) % 200_000);
        let sizes = [1 << 10, 8 << 10, 256 << 10][round % 3];
        let object = world.complete(&stored, ChunkSizes { first: sizes, max: sizes });
        let response = Response::random(&mut random, stored.len());
        let wanted = response.body(&stored);
        for protocol in PROTOCOLS {
            let bytes = runtime.block_on(received(&world, protocol, async |transport| {
                let mut exit = sink(transport);
                ok_head(&mut exit, protocol.end());
                response.send(&mut exit, &object).await.expect("the client reads");
                assert_eq!(exit.sent().body, wanted.len() as u64);
            }));
            let (body, ends) = decoded(protocol, bytes);
            assert!(body == wanted, "{protocol:?}, {} of {} bytes", body.len(), wanted.len());
            assert_eq!(ends, 1, "{protocol:?}");
        }
    }
}

/// Returns the bytes that a client received: for HTTP/2 one line for each frame, for HTTP/1 the text itself.
fn shown(protocol: Protocol, bytes: &[u8]) -> String {
    if protocol != Protocol::Http2 {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let line = |(header, payload): (frame::FrameHeader, &[u8])| {
        let kind = header.kind().expect("a known kind");
        let end = if kind == Kind::RstStream { 0 } else { header.flags & flag::END_STREAM };
        format!("{kind:?} {} {end}\n", payload.escape_ascii())
    };
    frame::split(bytes).map(line).collect()
}

#[test]
fn heads_leave_with_what_follows_and_are_replaced_until_then() {
    let (runtime, world) = (runtime(), World::new("heads"));
    let show = |protocol, work: &dyn Fn(&mut ClientSink) -> Option<u16>| {
        shown(
            protocol,
            &runtime.block_on(received(&world, protocol, async |transport| {
                let mut exit = sink(transport);
                match work(&mut exit) {
                    Some(status) if status < 200 => exit.flush().await,
                    _ => exit.end().await,
                }
                .expect("the client reads");
                assert!(exit.sent().head > 0 && exit.sent().body == 0);
            })),
        )
    };
    let status = |status| {
        move |exit: &mut ClientSink| {
            exit.head(Head::Status(status));
            Some(status)
        }
    };
    let no_body = |exit: &mut ClientSink| {
        ok_head(exit, BodyEnd::Head);
        None
    };
    let replaced = |exit: &mut ClientSink| {
        ok_head(exit, BodyEnd::Chunked);
        exit.head(Head::OutOfWorkspace);
        None
    };
    let (h1, h2) = (Protocol::Chunked, Protocol::Http2);
    assert_eq!(show(h1, &status(100)), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(show(h1, &status(417)), "HTTP/1.1 417 Expectation Failed\r\n\r\n");
    assert_eq!(show(h1, &no_body), "HTTP/1.1 200 OK\r\n\r\n");
    let text = "HTTP/1.1 500 Internal Server Error\r\nServer: Varnish\r\nConnection: close\r\n\r\n";
    assert_eq!(show(h1, &replaced), text);
    assert_eq!(show(h2, &status(100)), "Headers \\x18\\x03100 0\n");
    assert_eq!(show(h2, &status(417)), "Headers \\x18\\x03417 1\n");
    assert_eq!(show(h2, &no_body), "Headers \\x88 1\n");
    let block = lacquer_h2::response::OUT_OF_WORKSPACE.escape_ascii();
    assert_eq!(show(h2, &replaced), format!("Headers {block} 1\n"));
}

#[test]
fn a_response_that_failed_has_no_end() {
    let (runtime, world) = (runtime(), World::new("abort"));
    for (protocol, wanted) in [
        (Protocol::Length, "HTTP/1.1 200 OK\r\n\r\nhalf"),
        (Protocol::Chunked, "HTTP/1.1 200 OK\r\n\r\n4\r\nhalf\r\n"),
        (Protocol::Http2, "Headers \\x88 0\nData half 0\nRstStream \\x00\\x00\\x00\\x02 0\n"),
    ] {
        let bytes = runtime.block_on(received(&world, protocol, async |transport| {
            let mut exit = sink(transport);
            ok_head(&mut exit, protocol.end());
            exit.write(b"half").await.expect("the client reads");
            exit.flush().await.expect("the client reads");
            exit.abort();
            assert_eq!(transport.is_reset(), protocol == Protocol::Http2);
        }));
        assert_eq!(shown(protocol, &bytes), wanted);
    }
}

/// Sends a request body with the protocol's framing, in pieces of random sizes, and ends it.
async fn upload(protocol: Protocol, body: &[u8], random: &mut Random, opened: &mut Client) {
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(1 + random.below(9000) as usize));
        rest = behind;
        match (protocol, &opened.stream) {
            (Protocol::Http2, Some(stream)) => assert!(stream.buffer_body(piece, false), "there is room"),
            (Protocol::Length, _) => opened.socket.write_all(piece).await.expect("it is read"),
            _ => {
                let header = ChunkHeader::new(piece.len());
                let chunk = [header.as_bytes(), piece, b"\r\n"].concat();
                opened.socket.write_all(&chunk).await.expect("it is read");
            }
        }
        tokio::task::yield_now().await;
    }
    match (protocol, &opened.stream) {
        (Protocol::Http2, Some(stream)) => {
            stream.receive_trailers(Box::default()).expect("it is open");
            stream.end();
        }
        (Protocol::Length, _) => {}
        _ => opened.socket.write_all(LAST_CHUNK).await.expect("it is read"),
    }
    if protocol != Protocol::Http2 {
        opened.socket.write_all(b"NEXT").await.expect("it is read");
    }
}

struct Client {
    socket: UnixStream,
    stream: Option<Rc<Stream>>,
}

#[test]
fn readers_give_the_body_and_leave_what_follows() {
    let (runtime, world, mut random) = (runtime(), World::new("bodies"), Random(5));
    let params = Params::default();
    for round in 0..90 {
        let protocol = PROTOCOLS[round % 3];
        let body = random.bytes(1 + (round * 577) % 50_000);
        let Opened { transport, rx, client, conn } = runtime.block_on(async { world.open(protocol) });
        let stream = conn.as_ref().and_then(|conn| Stream::find(conn, 1));
        let length = body.len() as u64;
        let (input, status, receiver) = match (protocol, &stream) {
            (Protocol::Http2, Some(stream)) => {
                (BodyInput::of_stream(stream.clone()), BodyStatus::Eof, "H2_BODY")
            }
            (Protocol::Length, _) => {
                let framing = Framing { status: BodyStatus::Length, content_length: length };
                (BodyInput::of_connection(Some(rx), framing), BodyStatus::Length, "V1F_STRAIGHT")
            }
            _ => (BodyInput::of_connection(Some(rx), Framing::CHUNKED), BodyStatus::Chunked, "V1F_CHUNKED"),
        };
        let mut whole = ReqBody::new(input, Framing { status, content_length: length });
        let mut client = Client { socket: client, stream };
        let got = runtime.block_on(async {
            let read = async {
                let (mut got, mut lent) = (Vec::new(), whole.take());
                assert!(whole.take_rx().is_none(), "the reader has the connection");
                loop {
                    let piece = lent.next(&params).await.expect("a sound body");
                    if piece.is_empty() {
                        break;
                    }
                    got.extend_from_slice(piece);
                    // The reader returns the body before its end, and another reader continues.
                    whole.give_back(lent);
                    lent = whole.take();
                }
                whole.give_back(lent);
                got
            };
            tokio::join!(read, upload(protocol, &body, &mut random, &mut client)).0
        });
        assert!(got == body, "{protocol:?}: {} of {} bytes", got.len(), body.len());
        assert!(whole.is_done() && whole.is_settled() && whole.receiver() == receiver);
        let rest = whole.take_rx().map(|mut rx| {
            let mut rest = [0; 9];
            let n = runtime.block_on(rx.read(&mut rest)).expect("it is there");
            rest[..n].to_vec()
        });
        assert_eq!(rest, (protocol != Protocol::Http2).then(|| b"NEXT".to_vec()));
        if let Some(conn) = conn {
            conn.release_streams();
        }
        drop(transport);
    }
}
