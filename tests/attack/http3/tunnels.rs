//! WebSocket over HTTP/3 (RFC 9220): a stream becomes a tunnel only if the origin agrees, and no stream harms another.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lacquer_h3::{Reason, frame};
use lacquer_testing::daemon::Daemon;
use lacquer_testing::effort;
use lacquer_testing::slots::shared_slot;
use quinn::{ReadError, RecvStream, SendStream, VarInt};

use super::client::{Client, lines, response, run};
use super::load_certificate;
use super::malformed::{End, Raw, To, Write, control, frame as bytes_of_frame, headers, settings};
use crate::upgrades::{ON, Origin};

/// The time within which each event must occur.
const PATIENCE: Duration = Duration::from_secs(30);
const CANCELLED: VarInt = VarInt::from_u32(0x10c);
const ENABLE_CONNECT_PROTOCOL: [u8; 2] = [8, 1];
const WEBSOCKET: &[(&str, &str)] = &[(":protocol", "websocket"), ("sec-websocket-version", "13")];
/// The fields of a request for a tunnel.
const ASK: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":authority", "example.test"),
    (":path", "/echo"),
    ("sec-websocket-version", "13"),
];

struct Served {
    daemon: Daemon,
    address: SocketAddr,
    origin: Origin,
}

fn start(options: &[&str]) -> Served {
    let origin = Origin::start();
    let given = ["-a", "secure=127.0.0.1:0,https,h3", "-p", "reactors=2"];
    let mut daemon = origin.daemon(&[&given[..], options].concat());
    let address = SocketAddr::from(([127, 0, 0, 1], daemon.port_of("secure")));
    load_certificate(&mut daemon);
    Served { daemon, address, origin }
}

/// Requires that the connection serves a page.
async fn serves(client: &Client) {
    let page = client.get("/page").await;
    assert_eq!((page.status(), &page.body[..]), ("200", &b"page"[..]));
}

/// A part of a response.
#[derive(Debug, PartialEq)]
enum Event {
    Head(Vec<String>),
    Bytes(Vec<u8>),
    End,
    Reset(u64),
    /// The connection has ended.
    Closed,
}

/// A stream on which a tunnel was asked for.
struct Tunnel {
    send: SendStream,
    receive: RecvStream,
    reader: frame::Reader,
    kind: frame::Kind,
    section: Vec<u8>,
    input: Vec<u8>,
}

impl Tunnel {
    async fn ask(client: &Client, path: &str, more: &[(&str, &str)]) -> Tunnel {
        let (send, receive) = client.open("CONNECT", path, &[WEBSOCKET, more].concat()).await;
        Tunnel {
            send,
            receive,
            reader: frame::Reader::default(),
            kind: frame::Kind::Unknown,
            section: Vec::new(),
            input: Vec::new(),
        }
    }

    /// Asks for a tunnel, which begins.
    async fn open(client: &Client, path: &str) -> Tunnel {
        let mut tunnel = Tunnel::ask(client, path, &[]).await;
        assert_eq!(tunnel.status().await, "200", "{path}");
        tunnel
    }

    async fn status(&mut self) -> String {
        match self.next().await {
            Event::Head(lines) => {
                assert!(!lines.iter().any(|line| line.starts_with("sec-websocket-accept")), "{lines:?}");
                lines[0].trim_start_matches(":status: ").to_owned()
            }
            other => panic!("no head: {other:?}"),
        }
    }

    /// Returns the next part of the response.
    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.parse() {
                return event;
            }
            let read = tokio::time::timeout(PATIENCE, self.receive.read_chunk(1 << 16, true));
            match read.await.expect("an event in time") {
                Ok(Some(chunk)) => self.input.extend_from_slice(&chunk.bytes),
                Ok(None) => return Event::End,
                Err(ReadError::Reset(code)) => return Event::Reset(code.into_inner()),
                Err(_) => return Event::Closed,
            }
        }
    }

    fn parse(&mut self) -> Option<Event> {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        let mut event = None;
        while event.is_none()
            && let Some(piece) = self.reader.next(&mut rest)
        {
            match piece {
                frame::Piece::Begin(header) => self.kind = header.kind(),
                frame::Piece::Payload(bytes) if self.kind == frame::Kind::Headers => {
                    self.section.extend_from_slice(bytes);
                    if self.reader.left() == 0 {
                        event = Some(Event::Head(lines(&std::mem::take(&mut self.section))));
                    }
                }
                frame::Piece::Payload(bytes) => event = Some(Event::Bytes(bytes.to_vec())),
            }
        }
        self.input = rest.to_vec();
        event
    }

    /// Reads this many bytes.
    async fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            match self.next().await {
                Event::Bytes(more) => bytes.extend(more),
                other => panic!("{other:?} after {} of {length} bytes", bytes.len()),
            }
        }
        bytes
    }

    /// Reads to the end. Returns the last event.
    async fn last(&mut self) -> Event {
        loop {
            match self.next().await {
                Event::Head(_) | Event::Bytes(_) => {}
                other => return other,
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.send.write_all(&bytes_of_frame(0, bytes)).await.expect("the daemon reads");
    }
}

/// Waits until a tunnel can be opened. Others get 503 meanwhile.
async fn reopens(client: &Client) -> Tunnel {
    let begun = Instant::now();
    loop {
        let mut tunnel = Tunnel::ask(client, "/echo", &[]).await;
        if tunnel.status().await == "200" {
            return tunnel;
        }
        assert!(begun.elapsed() < PATIENCE, "a tunnel that has ended still counts");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Bytes pass in both directions, beside other requests, and both sides may end.
#[test]
fn a_stream_is_a_tunnel_in_both_directions() {
    let _slot = shared_slot();
    let served = start(ON);
    run(async {
        let client = Client::connect(served.address).await;
        let mut early = Tunnel::open(&client, "/early").await;
        assert_eq!(early.read(5).await, b"early");
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let mut echo = Tunnel::ask(&client, "/echo", &[key]).await;
        assert_eq!(echo.status().await, "200");
        for text in ["one", "GET / HTTP/1.1\r\n\r\n"] {
            for tunnel in [&mut early, &mut echo] {
                tunnel.write(text.as_bytes()).await;
                assert_eq!(tunnel.read(text.len()).await, text.as_bytes());
            }
        }
        serves(&client).await;
        // The client ends first, then the origin of the other tunnel.
        early.write(b"last").await;
        early.send.finish().expect("it is open");
        assert_eq!((early.read(4).await, early.next().await), (b"last".to_vec(), Event::End));
        echo.write(b"!").await;
        assert_eq!(echo.next().await, Event::End);
    });
    let heads = served.origin.take();
    for head in heads.iter().filter(|head| !head.contains("/page")) {
        assert!(head.starts_with("GET /e") && !head.contains("dGhlIHNhbXBsZSBub25jZQ=="), "{head}");
        for field in ["Upgrade: websocket\r\n", "Connection: Upgrade\r\n", "Sec-WebSocket-Key: "] {
            assert_eq!(head.matches(&format!("\r\n{field}")).count(), 1, "{head}");
        }
    }
    assert_eq!(heads.len(), 3, "{heads:?}");
}

/// A client never takes an ordinary response for a tunnel, and bytes that it sent before reach no origin.
#[test]
fn a_refusal_is_no_success() {
    let _slot = shared_slot();
    let served = start(ON);
    run(async {
        let client = Client::connect(served.address).await;
        for (path, status) in [
            ("/refused", "403"),
            ("/page", "502"),
            ("/silent", "503"),
            ("/accept", "503"),
            ("/other", "503"),
            ("/length", "503"),
            ("/old", "503"),
        ] {
            let mut tunnel = Tunnel::ask(&client, path, &[]).await;
            let _ = tunnel.send.write_all(&bytes_of_frame(0, b"GET /smuggled HTTP/1.1\r\n\r\n")).await;
            assert_eq!(tunnel.status().await, status, "{path}");
            assert_eq!(tunnel.last().await, Event::End, "{path}");
        }
        serves(&client).await;
    });
    let heads = served.origin.take();
    assert!(heads.iter().all(|head| !head.contains("smuggled")), "{heads:?}");
}

/// The setting is announced if the parameter is on.
#[test]
fn extended_connect_is_off_by_default() {
    let _slot = shared_slot();
    for (more, is_on) in [(ON, true), (&[][..], false)] {
        let served = start(more);
        run(async {
            let client = Client::connect(served.address).await;
            let mut control = client.connection.accept_uni().await.expect("a stream");
            let mut bytes = vec![0; 3];
            control.read_exact(&mut bytes).await.expect("the settings");
            assert_eq!(bytes[..2], [0, 4], "SETTINGS come first");
            let mut payload = vec![0; bytes[2].into()];
            control.read_exact(&mut payload).await.expect("the settings");
            let announced = payload.windows(2).any(|entry| entry == ENABLE_CONNECT_PROTOCOL);
            assert_eq!(announced, is_on, "{payload:?}");
            if !is_on {
                let mut tunnel = Tunnel::ask(&client, "/echo", &[]).await;
                assert_eq!(tunnel.next().await, Event::Reset(Reason::MessageError.code()));
                serves(&client).await;
            }
        });
    }
}

/// A protocol that the parameter does not list is not asked for, and an ordinary response to it is no success.
#[test]
fn other_protocols_are_refused() {
    let _slot = shared_slot();
    let served = start(ON);
    run(async {
        let client = Client::connect(served.address).await;
        for protocol in ["connect-udp", "h2c", "webtransport"] {
            let (mut send, mut receive) = client.open("CONNECT", "/page", &[(":protocol", protocol)]).await;
            let _ = send.finish();
            assert_eq!(response(&mut receive).await.status(), "502", "{protocol}");
        }
    });
    let heads = served.origin.take();
    assert!(heads.iter().all(|head| !head.contains("\r\nUpgrade:")), "{heads:?}");
}

/// A request without the fields of RFC 9220, or with others that have no place in it, ends its stream alone.
#[test]
fn malformed_requests_for_a_tunnel_end_their_stream() {
    let _slot = shared_slot();
    let served = start(ON);
    let without = |name| {
        let fields: Vec<_> = ASK.iter().copied().filter(|field| field.0 != name).collect();
        headers(&[&fields])
    };
    let with = |field| headers(&[ASK, &[field]]);
    let method = |name| headers(&[&[(":method", name)], &ASK[1..]]);
    let cases = [
        ("no :scheme", without(":scheme")),
        ("no :path", without(":path")),
        ("no :authority", without(":authority")),
        ("no :method", without(":method")),
        ("GET", method("GET")),
        ("POST", method("POST")),
        (":protocol twice", headers(&[&[(":protocol", "websocket")], ASK])),
        (":protocol after others", headers(&[&ASK[..1], &ASK[2..], &ASK[1..2]])),
        ("an empty :protocol", headers(&[&ASK[..1], &[(":protocol", "")], &ASK[2..]])),
        ("two protocols", headers(&[&ASK[..1], &[(":protocol", "websocket, h2c")], &ASK[2..]])),
        ("a length", with(("content-length", "0"))),
        ("a field of the connection", with(("connection", "upgrade"))),
        ("an upgrade", with(("upgrade", "websocket"))),
        ("chunks", with(("transfer-encoding", "chunked"))),
        ("a line in :protocol", headers(&[&ASK[..1], &[(":protocol", "websocket\r\nx: y")], &ASK[2..]])),
    ];
    run(async {
        for (name, bytes) in cases {
            let mut client = Raw::connect(served.address).await;
            client.write(&control(settings(&[]))).await;
            client.write(&Write(To::Request(0), bytes, End::Open)).await;
            assert_eq!(client.reset().await, Some(Reason::MessageError.code()), "{name}");
            assert!(client.connection.close_reason().is_none(), "{name}");
        }
    });
    assert_eq!(served.origin.take(), [""; 0]);
}

/// Only bytes follow in a tunnel (RFC 9114 section 4.4).
#[test]
fn other_frames_in_a_tunnel_end_the_connection() {
    let _slot = shared_slot();
    let served = start(ON);
    run(async {
        let data = bytes_of_frame(0, b"x");
        for (name, bytes, end, reason) in [
            ("trailers", headers(&[&[("a", "b")]]), End::Open, Reason::FrameUnexpected),
            ("SETTINGS", bytes_of_frame(4, b""), End::Open, Reason::FrameUnexpected),
            ("PUSH_PROMISE", bytes_of_frame(5, b"\0"), End::Open, Reason::FrameUnexpected),
            ("DATA that are cut", data[..2].to_vec(), End::Finish, Reason::FrameError),
        ] {
            let mut client = Raw::connect(served.address).await;
            client.write(&control(settings(&[]))).await;
            let begin = [headers(&[ASK]), data.clone()].concat();
            client.write(&Write(To::Request(0), begin, End::Open)).await;
            client.write(&Write(To::Request(0), bytes, end)).await;
            assert_eq!(client.closed().await, reason.code(), "{name}");
        }
        serves(&Client::connect(served.address).await).await;
    });
}

/// A client whose direction ends with its request gets the end of the tunnel, and not an error.
#[test]
fn a_tunnel_that_is_closed_by_half_ends() {
    let _slot = shared_slot();
    let served = start(&[ON, &["-p", "pipe_sess_max=1"]].concat());
    run(async {
        let client = Client::connect(served.address).await;
        for _ in 0..3 {
            let mut tunnel = Tunnel::ask(&client, "/early", &[]).await;
            tunnel.send.finish().expect("it is open");
            match tunnel.status().await.as_str() {
                "200" => {
                    assert_eq!((tunnel.read(5).await, tunnel.next().await), (b"early".to_vec(), Event::End));
                }
                // The slot of the tunnel before is not free yet.
                status => assert_eq!(status, "503"),
            }
            reopens(&client).await.write(b"!").await;
        }
        serves(&client).await;
    });
}

/// A reset of either direction, the end of the connection, or a client that vanishes ends the tunnel, which then does
/// not count any more.
#[test]
fn a_reset_ends_the_tunnel() {
    let _slot = shared_slot();
    let served = start(&[ON, &["-p", "pipe_sess_max=1"]].concat());
    run(async {
        let client = Client::connect(served.address).await;
        let mut tunnel = Tunnel::open(&client, "/echo").await;
        assert_eq!(Tunnel::ask(&client, "/echo", &[]).await.status().await, "503");
        tunnel.send.reset(CANCELLED).expect("it is open");
        assert_eq!(tunnel.last().await, Event::Reset(Reason::RequestCancelled.code()));
        let mut tunnel = reopens(&client).await;
        tunnel.receive.stop(CANCELLED).expect("it is open");
        let mut tunnel = reopens(&client).await;
        // Both directions at once, with bytes in flight.
        tunnel.write(&vec![b'x'; 100_000]).await;
        let _ = tunnel.send.reset(CANCELLED);
        let _ = tunnel.receive.stop(CANCELLED);
        let tunnel = reopens(&client).await;
        client.connection.close(CANCELLED, b"");
        drop(tunnel);
        let client = Client::connect(served.address).await;
        drop(reopens(&client).await);
        serves(&client).await;
    });
}

/// An origin that breaks its connection ends the stream with an error, and no other stream.
#[test]
fn a_broken_origin_resets_its_stream() {
    let _slot = shared_slot();
    let served = start(ON);
    run(async {
        let client = Client::connect(served.address).await;
        let mut other = Tunnel::open(&client, "/echo").await;
        let mut tunnel = Tunnel::open(&client, "/echo").await;
        tunnel.write(b"#").await;
        let _ = tunnel.send.write_all(&bytes_of_frame(0, &vec![b'x'; 100_000])).await;
        assert_eq!(tunnel.last().await, Event::Reset(Reason::RequestCancelled.code()));
        other.write(b"on").await;
        assert_eq!(other.read(2).await, b"on");
    });
}

/// An idle tunnel is reset after `pipe_timeout`, and so is one whose client or whose origin does not read. The connection
/// stays open.
#[test]
fn idle_and_stuck_tunnels_are_reset() {
    let _slot = shared_slot();
    let served = start(&[ON, &["-p", "pipe_timeout=0.5", "-p", "pipe_sess_max=3"]].concat());
    run(async {
        let client = Client::connect(served.address).await;
        let mut idle = Tunnel::open(&client, "/echo").await;
        let (mut unread, mut deaf) =
            (Tunnel::open(&client, "/flood").await, Tunnel::open(&client, "/deaf").await);
        let piece = bytes_of_frame(0, &[b'x'; 16 * 1024]);
        let flood = async { while deaf.send.write_all(&piece).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, flood)
            .await
            .expect("the daemon ends a tunnel whose origin does not read");
        let stopped = tokio::time::timeout(PATIENCE, unread.send.stopped()).await;
        let stopped = stopped.expect("the daemon ends a tunnel whose client does not read");
        assert_eq!(stopped.expect("the connection stays open"), Some(CANCELLED));
        for tunnel in [&mut idle, &mut unread, &mut deaf] {
            assert_eq!(tunnel.last().await, Event::Reset(Reason::RequestCancelled.code()));
        }
        drop(reopens(&client).await);
        serves(&client).await;
    });
}

/// Clients that do not read stop their own tunnels only, in bounded memory.
#[test]
fn clients_that_do_not_read_stop_only_their_tunnels() {
    const TUNNELS: usize = 40;
    let mut served = start(ON);
    run(async {
        let client = Client::connect(served.address).await;
        serves(&client).await;
        let before = served.daemon.resident().memory;
        let mut tunnels = Vec::new();
        for _ in 0..TUNNELS {
            let mut tunnel = Tunnel::open(&client, "/echo").await;
            let piece = bytes_of_frame(0, &[b'x'; 16 * 1024]);
            let flood = async { while tunnel.send.write_all(&piece).await.is_ok() {} };
            let _ = tokio::time::timeout(Duration::from_millis(50), flood).await;
            tunnels.push(tunnel);
        }
        let grown = served.daemon.resident().memory.saturating_sub(before);
        assert!(grown < 24 << 20, "{} kB for {TUNNELS} tunnels", grown >> 10);
        let other = Client::connect(served.address).await;
        serves(&other).await;
        let mut tunnel = Tunnel::open(&other, "/echo").await;
        tunnel.write(b"on").await;
        assert_eq!(tunnel.read(2).await, b"on");
    });
}

/// A client that opens and resets tunnels all the time is one that cancels requests all the time.
#[test]
fn floods_of_tunnels_are_bounded() {
    let mut served = start(&[ON, &["-p", "pipe_sess_max=20", "-p", "h2_rapid_reset_limit=50"]].concat());
    run(async {
        // At most so many tunnels as permitted are open, and each further request gets its answer.
        let client = Client::connect(served.address).await;
        let (mut open, mut refused) = (Vec::new(), 0);
        for _ in 0..60 {
            let mut tunnel = Tunnel::ask(&client, "/echo", &[]).await;
            match tunnel.status().await.as_str() {
                "200" => open.push(tunnel),
                "503" => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert_eq!((open.len(), refused), (20, 40));
        client.connection.close(CANCELLED, b"");
        let before = served.daemon.resident().memory;
        for _ in 0..effort(3, 30) {
            let client = Client::connect(served.address).await;
            for _ in 0..200 {
                let opened = tokio::time::timeout(PATIENCE, client.connection.open_bi()).await;
                let Ok((mut send, mut receive)) = opened.expect("streams end") else { break };
                if send.write_all(&headers(&[ASK])).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                let _ = send.reset(CANCELLED);
                let _ = receive.stop(CANCELLED);
            }
            let closed = tokio::time::timeout(PATIENCE, client.connection.closed()).await;
            let text = format!("{:?}", closed.expect("the connection ends"));
            assert!(text.contains("ApplicationClosed") && text.contains("263"), "{text}");
        }
        let client = Client::connect(served.address).await;
        drop(reopens(&client).await);
        let grown = served.daemon.resident().memory.saturating_sub(before);
        assert!(grown < 16 << 20, "{} kB", grown >> 10);
    });
}
