//! Clients that break the rules of HTTP/3: each gets the error that RFC 9114 or RFC 9204 names, and no other client
//! notices. Input that looks strange but is valid gets its response.

use std::net::SocketAddr;
use std::time::Duration;

use lacquer_h3::qpack;
use lacquer_h3::{Reason, frame, varint};
use lacquer_testing::slots::shared_slot;
use quinn::{ConnectionError, Endpoint, ReadToEndError, RecvStream, SendStream, VarInt};

use super::client::{config, run};
use super::start;

const PATIENCE: Duration = Duration::from_secs(20);
const BEFORE_RESET: Duration = Duration::from_millis(100);
const CANCELLED: VarInt = VarInt::from_u32(0x10c);

const SETTINGS: u64 = 4;
const GREASE: u64 = 0x21;
const INDEX: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "example.test"), (":path", "/1000")];
const UPLOAD: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "https"), (":authority", "example.test"), (":path", "/upload")];

const CONNECT: &[(&str, &str)] = &[(":method", "CONNECT"), (":authority", "b:80")];

/// The number of a unidirectional or a request stream of the client.
#[derive(Clone, Copy, PartialEq)]
pub enum To {
    Uni(usize),
    Request(usize),
}

pub enum End {
    Open,
    Finish,
    Reset,
}

/// Bytes for a stream, which is opened if needed.
pub struct Write(pub To, pub Vec<u8>, pub End);

pub fn control(bytes: Vec<u8>) -> Write {
    Write(To::Uni(0), bytes, End::Open)
}

fn uni(number: usize, bytes: &[u8]) -> Write {
    Write(To::Uni(number), bytes.to_vec(), End::Open)
}

fn request(bytes: Vec<u8>) -> Write {
    Write(To::Request(0), bytes, End::Finish)
}

pub fn frame(number: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_header(&mut out, number, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

/// Returns a section whose names keep their case.
fn section(fields: &[&[(&str, &str)]]) -> Vec<u8> {
    let mut out = Vec::new();
    qpack::begin(&mut out);
    for (name, value) in fields.concat() {
        let start = out.len();
        qpack::literal(&mut out, name.as_bytes(), value.as_bytes());
        let at = (start..out.len()).find(|&at| out[at..].starts_with(name.to_lowercase().as_bytes()));
        out[at.expect("the name is there")..][..name.len()].copy_from_slice(name.as_bytes());
    }
    out
}

pub fn headers(fields: &[&[(&str, &str)]]) -> Vec<u8> {
    frame(1, &section(fields))
}

/// Returns the beginning of a control stream, and these frames.
pub fn settings(more: &[(u64, &[u8])]) -> Vec<u8> {
    let frames = more.iter().flat_map(|(number, payload)| frame(*number, payload));
    [0, SETTINGS as u8, 0].into_iter().chain(frames).collect()
}

/// A client without rules.
pub struct Raw {
    pub connection: quinn::Connection,
    endpoint: Endpoint,
    streams: Vec<(To, SendStream)>,
    responses: Vec<RecvStream>,
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Raw {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
        let connecting = endpoint.connect_with(config(), address, "example.test").expect("a name");
        let connection = connecting.await.expect("a connection");
        Raw { connection, endpoint, streams: Vec::new(), responses: Vec::new() }
    }

    /// Writes as far as the daemon permits. It may have closed the connection.
    pub async fn write(&mut self, Write(to, bytes, end): &Write) {
        if !self.streams.iter().any(|(known, _)| known == to) {
            let opened = match to {
                To::Uni(_) => self.connection.open_uni().await.ok(),
                To::Request(_) => self.connection.open_bi().await.ok().map(|(send, receive)| {
                    self.responses.push(receive);
                    send
                }),
            };
            let Some(send) = opened else { return };
            self.streams.push((*to, send));
        }
        let Some((_, send)) = self.streams.iter_mut().find(|(known, _)| known == to) else { return };
        let _ = send.write_all(bytes).await;
        // Each write is a packet of its own.
        tokio::time::sleep(Duration::from_millis(3)).await;
        let _ = match end {
            End::Open => return,
            End::Finish => send.finish(),
            End::Reset => {
                // A reset may overtake bytes that were not sent yet.
                tokio::time::sleep(BEFORE_RESET).await;
                send.reset(CANCELLED)
            }
        };
        // A stream that the daemon has stopped is over when it is dropped.
        self.streams.retain(|(known, _)| known != to);
    }

    /// Returns the code with which the daemon closes the connection.
    pub async fn closed(&self) -> u64 {
        let closed = tokio::time::timeout(PATIENCE, self.connection.closed()).await;
        match closed.expect("the daemon closes the connection in time") {
            ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("not closed by the daemon: {other:?}"),
        }
    }

    /// Returns the code with which the daemon resets the first request stream, or `None` if it sends a response.
    pub async fn reset(&mut self) -> Option<u64> {
        let read = self.responses[0].read_to_end(64 << 20);
        match tokio::time::timeout(PATIENCE, read).await.expect("the stream ends in time") {
            Ok(bytes) => {
                assert!(bytes.len() > 10, "a response");
                None
            }
            Err(ReadToEndError::Read(quinn::ReadError::Reset(code))) => Some(code.into_inner()),
            Err(other) => panic!("neither a response nor a reset: {other:?}"),
        }
    }
}

/// Connects and writes. Returns the client.
async fn attack(address: SocketAddr, writes: &[Write]) -> Raw {
    let mut client = Raw::connect(address).await;
    for write in writes {
        client.write(write).await;
    }
    client
}

/// Violations on unidirectional streams.
fn violations_of_control() -> Vec<(&'static str, Reason, Vec<Write>)> {
    use Reason::{
        ClosedCriticalStream, DecoderStreamError, EncoderStreamError, FrameError, FrameUnexpected, IdError,
        MissingSettings, SettingsError, StreamCreationError,
    };
    let begun = || control(settings(&[]));
    let after = |number, payload: &[u8]| vec![control(settings(&[(number, payload)]))];
    let alone = |number, payload: &[u8]| vec![control([&[0], &frame(number, payload)[..]].concat())];
    vec![
        ("GOAWAY before SETTINGS", MissingSettings, alone(7, &[0])),
        ("a reserved frame before SETTINGS", MissingSettings, alone(GREASE, b"")),
        ("SETTINGS twice", FrameUnexpected, after(SETTINGS, b"")),
        ("DATA on the control stream", FrameUnexpected, after(0, b"x")),
        ("HEADERS on the control stream", FrameUnexpected, after(1, b"x")),
        ("PUSH_PROMISE on the control stream", FrameUnexpected, after(5, b"\0")),
        ("PRIORITY of HTTP/2", FrameUnexpected, after(2, b"")),
        ("PING of HTTP/2", FrameUnexpected, after(6, b"12345678")),
        ("WINDOW_UPDATE of HTTP/2", FrameUnexpected, after(8, b"\0\0\0\x01")),
        ("CONTINUATION of HTTP/2", FrameUnexpected, after(9, b"")),
        ("a setting of HTTP/2", SettingsError, alone(SETTINGS, &[3, 1])),
        ("a setting twice", SettingsError, alone(SETTINGS, &[6, 1, 6, 1])),
        ("extended CONNECT is neither on nor off", SettingsError, alone(SETTINGS, &[8, 2])),
        ("SETTINGS that end within an entry", FrameError, alone(SETTINGS, &[6])),
        ("GOAWAY with two ids", FrameError, after(7, &[0, 0])),
        ("GOAWAY with a higher id", IdError, vec![control(settings(&[(7, &[1]), (7, &[2])]))]),
        ("MAX_PUSH_ID with a lower id", IdError, vec![control(settings(&[(0xd, &[2]), (0xd, &[1])]))]),
        ("CANCEL_PUSH without a push", IdError, after(3, &[0])),
        ("a push stream", StreamCreationError, vec![begun(), uni(1, &[1, 0])]),
        ("a second control stream", StreamCreationError, vec![begun(), uni(1, &[0, 4, 0])]),
        ("a second encoder stream", StreamCreationError, vec![begun(), uni(1, &[2]), uni(2, &[2])]),
        ("a second decoder stream", StreamCreationError, vec![begun(), uni(1, &[3]), uni(2, &[3])]),
        (
            "the end of the control stream",
            ClosedCriticalStream,
            vec![Write(To::Uni(0), settings(&[]), End::Finish)],
        ),
        (
            "a reset of the control stream",
            ClosedCriticalStream,
            vec![Write(To::Uni(0), settings(&[]), End::Reset)],
        ),
        (
            "the end of the encoder stream",
            ClosedCriticalStream,
            vec![Write(To::Uni(0), vec![2], End::Finish)],
        ),
        (
            "the end of the decoder stream",
            ClosedCriticalStream,
            vec![Write(To::Uni(0), vec![3], End::Finish)],
        ),
        ("a table that is too large", EncoderStreamError, vec![uni(0, b"\x02\x3f\xe2\x1f")]),
        ("a reference to a missing field", EncoderStreamError, vec![uni(0, b"\x02\x3f\xe1\x1f\x80\x00")]),
        ("a field beyond the table", EncoderStreamError, vec![uni(0, b"\x02\x20\x41a\x01b")]),
        ("an acknowledgment", DecoderStreamError, vec![uni(0, b"\x03\x80")]),
        ("an increment", DecoderStreamError, vec![uni(0, b"\x03\x01")]),
    ]
}

/// Violations on request streams that end the connection.
fn violations_of_requests() -> Vec<(&'static str, Reason, Vec<Write>)> {
    use Reason::{DecompressionFailed, FrameError, FrameUnexpected};
    let after = |number, payload: &[u8]| {
        vec![control(settings(&[])), request([headers(&[UPLOAD]), frame(number, payload)].concat())]
    };
    let alone = |bytes: Vec<u8>| vec![control(settings(&[])), request(bytes)];
    let coded = |bytes: &[u8]| alone(frame(1, bytes));
    let trailers = headers(&[&[("x", "y")]]);
    let blocked = (0..17).map(|i| Write(To::Request(i), frame(1, b"\x02\x00\x80"), End::Open));
    vec![
        ("DATA before HEADERS", FrameUnexpected, alone(frame(0, b"x"))),
        ("SETTINGS on a request stream", FrameUnexpected, after(SETTINGS, b"")),
        ("PUSH_PROMISE of a client", FrameUnexpected, after(5, b"\0")),
        ("GOAWAY on a request stream", FrameUnexpected, after(7, b"\0")),
        ("CONTINUATION on a request stream", FrameUnexpected, alone(frame(9, b""))),
        (
            "DATA after trailers",
            FrameUnexpected,
            alone([headers(&[UPLOAD]), trailers.clone(), frame(0, b"x")].concat()),
        ),
        (
            "trailers twice",
            FrameUnexpected,
            alone([headers(&[UPLOAD]), trailers.clone(), trailers.clone()].concat()),
        ),
        ("HEADERS that are cut", FrameError, alone(headers(&[INDEX])[..20].to_vec())),
        ("DATA that are cut", FrameError, alone([headers(&[UPLOAD]), vec![0, 5, b'x']].concat())),
        ("a frame without its length", FrameError, alone([headers(&[UPLOAD]), vec![0]].concat())),
        ("a field of the empty table", DecompressionFailed, coded(b"\x00\x00\x80")),
        ("a field beyond the static table", DecompressionFailed, coded(b"\x00\x00\xff\x24")),
        ("a section that is cut", DecompressionFailed, coded(b"\x00\x00\x51\x05/")),
        ("an empty section", DecompressionFailed, coded(b"")),
        ("an impossible insert count", DecompressionFailed, coded(b"\xff\x80\x80\x02\x00")),
        ("an invalid Huffman code", DecompressionFailed, coded(b"\x00\x00\x51\x84\xff\xff\xff\xff")),
        ("trailers that cannot be decoded", DecompressionFailed, after(1, b"\x00\x00\x80")),
        (
            "more blocked streams than announced",
            DecompressionFailed,
            std::iter::once(control(settings(&[]))).chain(blocked).collect(),
        ),
    ]
}

#[test]
fn violations_end_the_connection_with_their_error() {
    let _slot = shared_slot();
    let served = start(&[]);
    run(async {
        let violations = violations_of_control().into_iter().chain(violations_of_requests());
        for (name, reason, writes) in violations {
            let client = attack(served.address, &writes).await;
            assert_eq!(client.closed().await, reason.code(), "{name}");
        }
    });
    served.serves();
}

/// The client stops a stream that the daemon needs.
#[test]
fn stopped_streams_of_the_daemon_end_the_connection() {
    let _slot = shared_slot();
    let served = start(&[]);
    run(async {
        for which in 0..2 {
            let client = attack(served.address, &[control(settings(&[]))]).await;
            for number in 0..2 {
                let mut stream = client.connection.accept_uni().await.expect("a stream of the daemon");
                if number == which {
                    stream.stop(CANCELLED).expect("it is open");
                }
            }
            assert_eq!(client.closed().await, Reason::ClosedCriticalStream.code());
        }
    });
    served.serves();
}

/// A malformed request ends its stream. Others on the connection are served.
#[test]
fn malformed_requests_end_their_stream_with_their_error() {
    use Reason::{ExcessiveLoad, MessageError, RequestIncomplete};
    let _slot = shared_slot();
    let served = start(&[]);
    let long = "x".repeat(9000);
    let with = |field| headers(&[INDEX, &[field]]);
    let without = |name| {
        let fields: Vec<_> = INDEX.iter().copied().filter(|field| field.0 != name).collect();
        headers(&[&fields])
    };
    let upload =
        |length, bytes: &[u8]| [headers(&[UPLOAD, &[("content-length", length)]]), frame(0, bytes)].concat();
    let cases = [
        ("no method", MessageError, without(":method")),
        ("no scheme", MessageError, without(":scheme")),
        ("no authority", MessageError, without(":authority")),
        ("no path", MessageError, without(":path")),
        ("two paths", MessageError, with((":path", "/other"))),
        ("a status", MessageError, with((":status", "200"))),
        ("extended CONNECT, which is not announced", MessageError, with((":protocol", "websocket"))),
        ("a pseudo-header after others", MessageError, headers(&[&[("a", "b")], INDEX])),
        ("CONNECT with a path", MessageError, headers(&[CONNECT, &[(":path", "/")]])),
        ("CONNECT without a port", MessageError, headers(&[&CONNECT[..1], &[(":authority", "b")]])),
        ("upper case", MessageError, with(("Accept", "x"))),
        ("a line in a value", MessageError, with(("a", "x\r\nhost: evil"))),
        ("a NUL in a value", MessageError, with(("a", "x\0y"))),
        ("a connection-specific field", MessageError, with(("connection", "close"))),
        ("chunks", MessageError, with(("transfer-encoding", "chunked"))),
        ("a coding of the connection", MessageError, with(("te", "gzip"))),
        ("a length without a body", MessageError, with(("content-length", "5"))),
        ("a length that is no number", MessageError, with(("content-length", "+5"))),
        ("a body that is too short", MessageError, upload("5", b"1234")),
        ("a body that is too long", MessageError, upload("5", b"123456")),
        (
            "a pseudo-header in trailers",
            MessageError,
            [headers(&[UPLOAD]), headers(&[&[(":path", "/")]])].concat(),
        ),
        ("many fields", ExcessiveLoad, headers(&[INDEX, &[("a", "b"); 100]])),
        ("a long field", ExcessiveLoad, with(("a", &long))),
        (
            "large trailers",
            ExcessiveLoad,
            [headers(&[UPLOAD]), headers(&[&[("a", &long[..8000]); 8]])].concat(),
        ),
        ("a section that is announced as long", ExcessiveLoad, vec![1, 0x80, 0x10, 0, 0]),
        ("nothing", RequestIncomplete, vec![]),
        ("a reserved frame only", RequestIncomplete, frame(GREASE, b"x")),
    ];
    run(async {
        for (name, reason, bytes) in cases {
            let mut client = attack(served.address, &[control(settings(&[])), request(bytes)]).await;
            assert_eq!(client.reset().await, Some(reason.code()), "{name}");
            client.responses.clear();
            client.write(&Write(To::Request(1), headers(&[INDEX]), End::Finish)).await;
            assert_eq!(client.reset().await, None, "after {name}");
        }
    });
    served.serves();
}

/// Valid input that few clients send.
#[test]
fn unusual_requests_are_answered() {
    let _slot = shared_slot();
    let served = start(&[]);
    let begun = || control(settings(&[]));
    let index = || headers(&[INDEX]);
    let insert = b"\x02\x3f\xe1\x1f\x43x-y\x011";
    let blocked = frame(1, &[&[2, 0], &section(&[INDEX])[2..], &[0x80]].concat());
    let pieces = |bytes: Vec<u8>| {
        let last = bytes.len() - 1;
        let end = move |at| if at == last { End::Finish } else { End::Open };
        bytes.into_iter().enumerate().map(move |(at, byte)| Write(To::Request(0), vec![byte], end(at)))
    };
    let mut unknown = Vec::new();
    varint::write(&mut unknown, varint::MAX - 5);
    let cases: Vec<(&str, Vec<Write>)> = vec![
        ("no control stream", vec![request(index())]),
        ("a control stream that is late", vec![request(index()), begun()]),
        ("byte by byte", std::iter::once(begun()).chain(pieces(index())).collect()),
        ("CONNECT", vec![begun(), Write(To::Request(0), headers(&[CONNECT]), End::Open)]),
        ("the end alone", vec![Write(To::Request(0), index(), End::Open), request(vec![])]),
        (
            "reserved frames",
            vec![begun(), request([frame(GREASE, b"x"), index(), frame(0xf0700, b"")].concat())],
        ),
        ("an unknown stream", vec![begun(), uni(1, &unknown), request(index())]),
        (
            "an unknown stream that ends",
            vec![begun(), Write(To::Uni(1), unknown, End::Reset), request(index())],
        ),
        (
            "a stream without a type",
            vec![begun(), Write(To::Uni(1), vec![0x40], End::Finish), request(index())],
        ),
        (
            "an unknown setting",
            vec![control([&[0], &frame(SETTINGS, &[0x21, 7])[..]].concat()), request(index())],
        ),
        ("push ids", vec![control(settings(&[(0xd, &[7]), (0xd, &[8])])), request(index())]),
        ("GOAWAY of the client", vec![control(settings(&[(7, &[0])])), request(index())]),
        ("fields of the table", vec![begun(), uni(1, insert), request(blocked.clone())]),
        (
            "fields that arrive later",
            vec![begun(), request(blocked), uni(1, &insert[..5]), uni(1, &insert[5..])],
        ),
        (
            "trailers",
            vec![begun(), request([headers(&[UPLOAD]), frame(0, b"x"), headers(&[&[("a", "b")]])].concat())],
        ),
        (
            "trailers that arrive later",
            vec![
                begun(),
                request([headers(&[UPLOAD]), frame(0, b"x"), frame(1, b"\x02\x00\x80")].concat()),
                uni(1, insert),
            ],
        ),
    ];
    run(async {
        for (name, writes) in cases {
            let mut client = attack(served.address, &writes).await;
            assert_eq!(client.reset().await, None, "{name}");
            assert!(client.connection.close_reason().is_none(), "{name}");
            client.endpoint.close(CANCELLED, b"");
        }
    });
    served.serves();
}

/// Frames and streams without use end the connection.
#[test]
fn floods_without_use_end_the_connection() {
    let _slot = shared_slot();
    let served = start(&[]);
    let begun = || control(settings(&[]));
    let empty = frame(0, b"").repeat(1100);
    let cases = [
        vec![control([settings(&[]), frame(GREASE, b"").repeat(10_100)].concat())],
        vec![control([settings(&[]), frame(7, &[0]).repeat(10_100)].concat())],
        vec![begun(), Write(To::Request(0), [headers(&[UPLOAD]), empty].concat(), End::Open)],
        vec![begun(), Write(To::Request(0), frame(GREASE, b"").repeat(1100), End::Open)],
    ];
    run(async {
        for writes in cases {
            let client = attack(served.address, &writes).await;
            assert_eq!(client.closed().await, Reason::ExcessiveLoad.code());
        }
        let client = attack(served.address, &[begun()]).await;
        for _ in 0..20_000 {
            let Ok(mut stream) = client.connection.open_uni().await else { break };
            let _ = stream.write_all(&[0x21]).await;
            let _ = stream.finish();
        }
        assert_eq!(client.closed().await, Reason::ExcessiveLoad.code());
    });
    served.serves();
}

/// A field of 4 kB in the table, to which sections refer 30,000 times, is not unpacked.
#[test]
fn compressed_bombs_are_not_unpacked() {
    let mut served = start(&["-p", "h2_rapid_reset_limit=0"]);
    served.serves();
    let mut insert = b"\x02\x3f\xe1\x1f\x41a\x7f\xe0\x1e".to_vec();
    insert.extend(vec![b'x'; 0x7f + 0x60 + (0x1e << 7)]);
    let mut bomb = section(&[INDEX]);
    bomb[0] = 2;
    bomb.extend(vec![0x80; 30_000]);
    let bomb = frame(1, &bomb);
    let before = served.daemon.resident().memory;
    run(async {
        let mut client = attack(served.address, &[control(settings(&[])), uni(1, &insert)]).await;
        let mut refused = 0;
        for number in 0..200 {
            client.responses.clear();
            client.write(&Write(To::Request(number), bomb.clone(), End::Finish)).await;
            refused += usize::from(client.reset().await == Some(Reason::ExcessiveLoad.code()));
        }
        assert_eq!(refused, 200);
    });
    let grown = served.daemon.resident().memory.saturating_sub(before);
    assert!(grown < 20 << 20, "{} kB", grown >> 10);
    served.serves();
}

/// Requests that never become complete hold little memory, and end after a time.
#[test]
fn incomplete_requests_are_bounded_and_end() {
    let mut served = start(&["-p", "timeout_idle=3"]);
    served.serves();
    let before = served.daemon.resident().memory;
    // Section of 30 kB, the last byte of which is missing; and blocked ones.
    let mut part = Vec::new();
    frame::write_header(&mut part, 1, 30_001);
    part.extend(vec![0; 30_000]);
    let blocked = frame(1, &[&[2, 0][..], &vec![0x80; 30_000]].concat());
    run(async {
        let mut clients = Vec::new();
        for i in 0..20 {
            let mut client = attack(served.address, &[control(settings(&[]))]).await;
            for number in 0..16 {
                let bytes = if i % 2 == 0 { &part } else { &blocked };
                client.write(&Write(To::Request(number), bytes.clone(), End::Open)).await;
            }
            clients.push(client);
        }
        let grown = served.daemon.resident().memory.saturating_sub(before);
        assert!(grown < 60 << 20, "{} kB for 10 MB of sections", grown >> 10);
        for client in &clients {
            assert_eq!(client.closed().await, Reason::ExcessiveLoad.code());
        }
    });
    served.serves();
    // A request in progress goes on when the field section of another one is late.
    run(async {
        let mut client = attack(served.address, &[control(settings(&[]))]).await;
        client.write(&Write(To::Request(0), part[..40].to_vec(), End::Open)).await;
        let upload = |bytes: Vec<u8>, end| Write(To::Request(1), bytes, end);
        client.write(&upload(headers(&[UPLOAD, &[("content-length", "10")]]), End::Open)).await;
        for _ in 0..9 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            client.write(&upload(frame(0, b"x"), End::Open)).await;
        }
        assert_eq!(client.reset().await, Some(Reason::ExcessiveLoad.code()));
        client.write(&upload(frame(0, b"x"), End::Finish)).await;
        client.responses.remove(0);
        assert_eq!(client.reset().await, None, "the request in progress is answered");
    });
    // A client that trickles has the same time.
    run(async {
        let mut client = attack(served.address, &[control(settings(&[]))]).await;
        for byte in &part[..40] {
            client.write(&Write(To::Request(0), vec![*byte], End::Open)).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(client.closed().await, Reason::ExcessiveLoad.code());
    });
}
