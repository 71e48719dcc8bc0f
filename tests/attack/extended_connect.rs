//! WebSocket over HTTP/2 (RFC 8441): a stream becomes a tunnel only if the origin agrees, and no stream harms another.

use std::time::Duration;

use lacquer_testing::daemon::Daemon;
use lacquer_testing::h2::{END_HEADERS, END_STREAM, H2Client, block, kind};
use lacquer_testing::until;

use crate::upgrades::{ON, Origin};

const ENABLE_CONNECT_PROTOCOL: [u8; 6] = [0, 8, 0, 0, 0, 1];
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

fn start(origin: &Origin, more: &[&str]) -> Daemon {
    origin.daemon(&[&["-p", "feature=+http2"], more].concat())
}

fn connect(daemon: &Daemon) -> H2Client {
    H2Client::connect(daemon.address, &[]).expect("the daemon accepts")
}

/// Asks for a tunnel on a new stream.
fn ask(client: &mut H2Client, path: &str, more: &[(&str, &str)]) -> u32 {
    let stream = client.new_stream();
    let fields = [&[(":protocol", "websocket"), ("sec-websocket-version", "13")], more].concat();
    let sent = client.send(kind::HEADERS, END_HEADERS, stream, &block("CONNECT", path, &fields));
    sent.expect("requests can be sent");
    stream
}

/// Asks for a tunnel, which begins.
fn open(client: &mut H2Client, path: &str) -> u32 {
    let stream = ask(client, path, &[]);
    let frame = next(client, stream);
    // The status is 200, the first field.
    assert_eq!(
        (frame.kind, frame.flags & END_STREAM, frame.payload[0]),
        (kind::HEADERS, 0, 0x88),
        "{frame:?}"
    );
    assert!(!frame.payload.windows(6).any(|part| part.eq_ignore_ascii_case(b"accept")), "{frame:?}");
    stream
}

/// Returns the next frame of a stream, except for credit.
fn next(client: &mut H2Client, stream: u32) -> lacquer_testing::h2::Frame {
    loop {
        let frame = client.frame().expect("the connection stays open");
        assert_ne!(frame.kind, kind::GOAWAY, "{frame:?}");
        if frame.stream == stream && frame.kind != kind::WINDOW_UPDATE {
            return frame;
        }
    }
}

/// Reads this many bytes of a stream.
fn read(client: &mut H2Client, stream: u32, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let frame = next(client, stream);
        assert_eq!(frame.kind, kind::DATA, "{frame:?}");
        bytes.extend_from_slice(&frame.payload);
    }
    bytes
}

fn send(client: &mut H2Client, stream: u32, flags: u8, bytes: &[u8]) {
    client.send(kind::DATA, flags, stream, bytes).expect("the connection is open");
}

/// Bytes pass in both directions, beside other requests, and both sides may end.
#[test]
fn a_stream_is_a_tunnel_in_both_directions() {
    let origin = Origin::start();
    let daemon = start(&origin, ON);
    let mut client = connect(&daemon);
    let early = open(&mut client, "/early");
    assert_eq!(read(&mut client, early, 5), b"early");
    let echo = open(&mut client, "/echo");
    for (stream, text) in [(early, "one"), (echo, "two"), (early, "GET / HTTP/1.1\r\n\r\n")] {
        send(&mut client, stream, 0, text.as_bytes());
        assert_eq!(read(&mut client, stream, text.len()), text.as_bytes());
    }
    let page = client.get("/page").expect("the connection is open");
    assert_eq!(client.response(page).expect("there is a response"), (Some(200), b"page".to_vec()));
    send(&mut client, early, END_STREAM, b"last");
    assert_eq!(client.response(early).expect("the stream ends"), (None, b"last".to_vec()));
    send(&mut client, echo, 0, b"!");
    let frame = next(&mut client, echo);
    assert_eq!((frame.kind, frame.flags & END_STREAM, frame.payload.len()), (kind::DATA, END_STREAM, 0));
    let seen = origin.take();
    for head in seen.iter().filter(|head| !head.contains("/page")) {
        assert!(head.starts_with("GET /e"), "{head}");
        for field in ["Upgrade: websocket\r\n", "Connection: Upgrade\r\n", "Sec-WebSocket-Key: "] {
            assert_eq!(head.matches(&format!("\r\n{field}")).count(), 1, "{head}");
        }
    }
}

/// Each request has a key of its own, also if the client sends one.
#[test]
fn keys_are_not_predictable() {
    let origin = Origin::start();
    let daemon = start(&origin, ON);
    let mut client = connect(&daemon);
    for _ in 0..3 {
        let stream = ask(&mut client, "/echo", &[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")]);
        assert_eq!(next(&mut client, stream).kind, kind::HEADERS);
    }
    let heads = origin.take();
    let mut keys: Vec<_> =
        heads.iter().filter_map(|head| head.lines().find(|l| l.starts_with("Sec-WebSocket-Key:"))).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 3, "{heads:?}");
    assert!(heads.iter().all(|head| !head.contains("dGhlIHNhbXBsZSBub25jZQ==")), "{heads:?}");
}

/// A client never takes an ordinary response for a tunnel.
#[test]
fn a_refusal_is_no_success() {
    let origin = Origin::start();
    let daemon = start(&origin, ON);
    let mut client = connect(&daemon);
    for (path, status, body) in [("/refused", Some(403), "no"), ("/page", Some(502), "page")] {
        let stream = ask(&mut client, path, &[]);
        assert_eq!(
            client.response(stream).expect("there is a response"),
            (status, body.as_bytes().to_vec()),
            "{path}"
        );
    }
    for path in ["/silent", "/accept", "/other", "/length", "/old"] {
        let stream = ask(&mut client, path, &[]);
        assert_eq!(client.response(stream).expect("there is a response").0, Some(503), "{path}");
    }
    let page = client.get("/page").expect("the connection is open");
    assert_eq!(client.response(page).expect("there is a response").0, Some(200));
}

/// The setting is announced if the parameter is on, and only then are such requests valid.
#[test]
fn extended_connect_is_off_by_default() {
    let origin = Origin::start();
    for (more, is_on) in [(ON, true), (&[][..], false)] {
        let daemon = start(&origin, more);
        let mut client = connect(&daemon);
        let settings = client.frame().expect("the daemon sends its settings");
        assert_eq!(settings.kind, kind::SETTINGS);
        assert_eq!(settings.payload.chunks(6).any(|entry| entry == ENABLE_CONNECT_PROTOCOL), is_on);
        if !is_on {
            let stream = ask(&mut client, "/echo", &[]);
            let frame = next(&mut client, stream);
            assert_eq!((frame.kind, &frame.payload[..]), (kind::RST_STREAM, &PROTOCOL_ERROR[..]));
            let page = client.get("/page").expect("the connection is open");
            assert_eq!(client.response(page).expect("there is a response").0, Some(200));
        }
    }
}

/// A protocol that the parameter does not list is not asked for, and an ordinary response to it is no success.
#[test]
fn other_protocols_are_refused() {
    let origin = Origin::start();
    let daemon = start(&origin, ON);
    let mut client = connect(&daemon);
    for protocol in ["connect-udp", "h2c"] {
        let stream = client.new_stream();
        let fields = block("CONNECT", "/page", &[(":protocol", protocol)]);
        client.send(kind::HEADERS, END_HEADERS, stream, &fields).expect("requests can be sent");
        assert_eq!(client.response(stream).expect("there is a response").0, Some(502));
    }
    assert!(origin.take().iter().all(|head| !head.contains("\r\nUpgrade:")));
}

/// A reset of the stream ends the tunnel, and its number is free again.
#[test]
fn a_reset_ends_the_tunnel() {
    let origin = Origin::start();
    let mut daemon = start(&origin, ON);
    daemon.ok("param.set pipe_sess_max 1");
    let mut client = connect(&daemon);
    let first = open(&mut client, "/echo");
    let second = ask(&mut client, "/echo", &[]);
    assert_eq!(client.response(second).expect("there is a response").0, Some(503));
    client.reset(first).expect("the connection is open");
    let reopened = until(|| {
        let stream = ask(&mut client, "/echo", &[]);
        next(&mut client, stream).payload[0] == 0x88
    });
    assert!(reopened);
    drop(client);
    let mut client = connect(&daemon);
    assert!(until(|| {
        let stream = ask(&mut client, "/echo", &[]);
        next(&mut client, stream).payload[0] == 0x88
    }));
}

/// Only bytes follow in a tunnel (RFC 9113 section 8.5). A client that ends it by trailers loses the stream, not the
/// connection.
#[test]
fn trailers_do_not_end_a_tunnel_in_order() {
    let origin = Origin::start();
    let daemon = start(&origin, ON);
    let mut client = connect(&daemon);
    let stream = open(&mut client, "/echo");
    // `a: b` without an index.
    let trailers = [0, 1, b'a', 1, b'b'];
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &trailers).expect("the connection is open");
    let frame = next(&mut client, stream);
    assert_eq!((frame.kind, &frame.payload[..]), (kind::RST_STREAM, &PROTOCOL_ERROR[..]));
    let page = client.get("/page").expect("the connection is open");
    assert_eq!(client.response(page).expect("there is a response").0, Some(200));
}

/// An idle tunnel is reset after `pipe_timeout`; its connection stays open.
#[test]
fn idle_tunnels_are_reset() {
    let origin = Origin::start();
    let mut daemon = start(&origin, ON);
    daemon.ok("param.set pipe_timeout 0.5");
    let mut client = connect(&daemon);
    let stream = open(&mut client, "/echo");
    let frame = next(&mut client, stream);
    assert_eq!((frame.kind, &frame.payload[..]), (kind::RST_STREAM, &CANCEL[..]));
    let page = client.get("/page").expect("the connection is open");
    assert_eq!(client.response(page).expect("there is a response").0, Some(200));
}

/// A client that does not read stops its own tunnel only, and gets all bytes when it reads. Meanwhile, the window of the
/// stream bounds what is held.
#[test]
fn a_client_that_does_not_read_stops_only_its_tunnel() {
    const WINDOW: usize = 65_535;
    let origin = Origin::start();
    let daemon = start(&origin, ON);
    let mut client = connect(&daemon);
    let stream = open(&mut client, "/echo");
    // The connection has twice the credit of the stream, so that some is left for others.
    client.send(kind::WINDOW_UPDATE, 0, 0, &(WINDOW as u32).to_be_bytes()).expect("the connection is open");
    let bytes: Vec<u8> = (0..2 * WINDOW).map(|at| (at % 251) as u8 | 0x80).collect();
    let (first, second) = bytes.split_at(WINDOW);
    first.chunks(8192).for_each(|piece| send(&mut client, stream, 0, piece));
    let mut received = read(&mut client, stream, WINDOW);
    second.chunks(8192).for_each(|piece| send(&mut client, stream, 0, piece));
    let page = client.get("/page").expect("the connection is open");
    assert_eq!(client.response(page).expect("there is a response").1, b"page");
    for target in [0, stream] {
        let more = (2 * WINDOW as u32).to_be_bytes();
        client.send(kind::WINDOW_UPDATE, 0, target, &more).expect("the connection is open");
    }
    received.extend(read(&mut client, stream, WINDOW));
    assert!(received == bytes);
}

/// A tunnel that floods a client which does not read ends in the middle of a frame, by the client or by its limit. Once the
/// client reads, it gets whole frames, and a page on another stream.
#[test]
fn a_tunnel_that_ends_in_a_frame_harms_no_stream() {
    const PAUSE: Duration = Duration::from_millis(1500);
    let origin = Origin::start();
    for is_reset in [true, false] {
        let mut daemon = start(&origin, ON);
        if !is_reset {
            daemon.ok("param.set pipe_timeout 1");
        }
        let mut client = connect(&daemon);
        let stream = open(&mut client, "/flood");
        for target in [0, stream] {
            let more = (1u32 << 30).to_be_bytes();
            client.send(kind::WINDOW_UPDATE, 0, target, &more).expect("the connection is open");
        }
        std::thread::sleep(PAUSE);
        if is_reset {
            client.reset(stream).expect("the connection is open");
        }
        let page = client.get("/page").expect("the connection is open");
        std::thread::sleep(PAUSE);
        let mut body = Vec::new();
        loop {
            let frame = client.frame().expect("the connection stays open");
            match (frame.kind, frame.stream) {
                (kind::DATA, id) if id == stream => {
                    assert!(frame.payload.iter().all(|&byte| byte == b'x'), "frames of others: {is_reset}");
                }
                (kind::DATA, id) if id == page => body.extend_from_slice(&frame.payload),
                (kind::HEADERS, id) => assert_eq!((id, frame.payload[0]), (page, 0x88), "{is_reset}"),
                (kind::RST_STREAM, id) => assert_eq!(id, stream, "{is_reset}"),
                (kind::SETTINGS, 0) => {}
                _ => panic!("{is_reset}: kind {} of stream {}", frame.kind, frame.stream),
            }
            if frame.stream == page && frame.flags & END_STREAM != 0 {
                break;
            }
        }
        assert_eq!(body, b"page");
    }
}
