//! Floods of HTTP/2 frames. Each ends, or costs no more than the bytes that the client sends.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::{self, Client};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::h2::{
    ACK, END_HEADERS, END_STREAM, End, H2Client, INITIAL_WINDOW_SIZE, block, kind, put, settings,
};
use lacquer_testing::origin::{Origin, sized};

const WITHIN: Duration = Duration::from_secs(5);
/// ENHANCE_YOUR_CALM
const CALM: End = End::GoAway(11);

fn start(subs: &str) -> (Origin, Daemon) {
    let origin = Origin::start(sized);
    let options = ["-p", "feature=+http2", "-p", "workspace_client=64k"];
    let daemon = Daemon::start(&vcl(origin.address, subs), &options);
    client::get(daemon.address, "/100").unwrap();
    (origin, daemon)
}

/// Sends `bytes` a number of `times`, or until the connection ends, while another client is served. Returns how the
/// connection ended.
fn flood(daemon: &Daemon, client: H2Client, bytes: &[u8], times: usize) -> End {
    let mut client = client;
    let mut socket = client.socket().unwrap();
    socket.set_write_timeout(Some(WITHIN)).unwrap();
    let bytes = bytes.to_vec();
    let sender = thread::spawn(move || (0..times).all(|_| socket.write_all(&bytes).is_ok()));
    let mut other = Client::connect(daemon.address).unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let begun = Instant::now();
        assert_eq!(other.get("/100").unwrap().status, 200);
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < Duration::from_millis(500), "another client waited {slowest:?}");
    let end = client.end(WITHIN);
    client.close();
    sender.join().unwrap();
    end
}

fn connect(daemon: &Daemon) -> H2Client {
    H2Client::connect(daemon.address, &[]).unwrap()
}

fn frames(count: usize, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    (0..count).for_each(|_| put(&mut out, kind, flags, stream, payload));
    out
}

/// Frames without use are counted, whatever their kind. 10,000 more than the allowance from useful frames end the
/// connection with ENHANCE_YOUR_CALM, and other clients are served meanwhile.
#[test]
fn frames_without_use_end_the_connection() {
    let (_origin, daemon) = start("");
    let floods: [(&str, Vec<u8>); 5] = [
        ("PING", frames(1000, kind::PING, 0, 0, &[1; 8])),
        ("SETTINGS", frames(1000, kind::SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW_SIZE, 70_000)]))),
        ("PRIORITY", frames(1000, kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 9])),
        ("WINDOW_UPDATE", frames(1000, kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())),
        ("unknown", frames(1000, 0x77, 0, 0, b"x")),
    ];
    for (name, bytes) in floods {
        let end = flood(&daemon, connect(&daemon), &bytes, 1000);
        assert!(matches!(end, CALM | End::Closed), "{name}: {end:?}");
    }
    assert!(daemon.logs("H2: Too many frames without use"));
}

/// A download does not compensate for a flood: a response that is read byte by byte allows only few useless frames.
#[test]
fn a_trickling_download_does_not_compensate_for_a_flood() {
    let (_origin, daemon) = start("");
    let mut client = H2Client::connect(daemon.address, &[(INITIAL_WINDOW_SIZE, 1)]).unwrap();
    let stream = client.get("/100000").unwrap();
    let mut bytes = frames(1000, kind::PING, 0, 0, &[1; 8]);
    put(&mut bytes, kind::WINDOW_UPDATE, 0, stream, &1u32.to_be_bytes());
    let mut socket = client.socket().unwrap();
    let sender = thread::spawn(move || {
        for _ in 0..500 {
            if socket.write_all(&bytes).is_err() {
                return;
            }
            // The byte is sent before the next frames arrive.
            thread::sleep(Duration::from_millis(2));
        }
    });
    let end = client.end(WITHIN);
    client.close();
    sender.join().unwrap();
    assert!(matches!(end, CALM | End::Closed), "{end:?}");
}

/// Empty frames of a body and of a header block end the connection.
#[test]
fn empty_frames_end_the_connection() {
    let (_origin, daemon) = start("sub vcl_recv { return (pass); }");
    let open = |flags| {
        let mut client = connect(&daemon);
        client.send(kind::HEADERS, flags, 1, &block("POST", "/100", &[])).unwrap();
        client
    };
    let data = frames(1000, kind::DATA, 0, 1, &[]);
    let end = flood(&daemon, open(END_HEADERS), &data, 1000);
    assert!(matches!(end, CALM | End::Closed), "DATA: {end:?}");
    let padding = frames(100, kind::DATA, 8, 1, &[9; 10]);
    let end = flood(&daemon, open(END_HEADERS), &padding, 10_000);
    assert!(matches!(end, CALM | End::Closed), "padding: {end:?}");
    let pieces = frames(1000, kind::CONTINUATION, 0, 1, &[]);
    let end = flood(&daemon, open(0), &pieces, 1000);
    assert!(matches!(end, CALM | End::Closed), "CONTINUATION: {end:?}");
    let pieces = frames(100, kind::CONTINUATION, 0, 1, &[0x82; 100]);
    let end = flood(&daemon, open(0), &pieces, 1000);
    assert!(matches!(end, CALM | End::Closed), "long block: {end:?}");
}

/// A SETTINGS frame has at most 64 entries, because each may require an update of every stream.
#[test]
fn settings_with_many_entries_are_refused() {
    let (_origin, daemon) = start("");
    let entries: Vec<(u16, u32)> = (0..2730).map(|n| (INITIAL_WINDOW_SIZE, 1000 + n)).collect();
    let bytes = frames(1, kind::SETTINGS, 0, 0, &settings(&entries));
    let end = flood(&daemon, connect(&daemon), &bytes, 1000);
    assert!(matches!(end, CALM | End::Closed), "{end:?}");
    let mut client = H2Client::connect(daemon.address, &entries[..60]).unwrap();
    let stream = client.get("/100").unwrap();
    assert_eq!(client.response(stream).unwrap().0, Some(200));
}

/// A header block that decompresses to more than the limit ends the connection, and costs no memory.
#[test]
fn decompressed_header_blocks_are_bounded() {
    let (_origin, mut daemon) = start("");
    let before = daemon.resident().memory;
    for _ in 0..effort(50, 1000) {
        let mut client = connect(&daemon);
        // One field of 3,900 bytes in the table, and then references to it of one byte each.
        let mut first = block("GET", "/100", &[]);
        first.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xbd, 0x1d]);
        first.extend_from_slice(&[b'y'; 3900]);
        client.send(kind::HEADERS, END_HEADERS | END_STREAM, 1, &first).unwrap();
        let mut bomb = block("GET", "/100", &[]);
        bomb.extend_from_slice(&[0xbe; 12_000]);
        client.send(kind::HEADERS, END_HEADERS | END_STREAM, 3, &bomb).unwrap();
        let end = client.end(WITHIN);
        assert!(matches!(end, CALM | End::Closed), "{end:?}");
    }
    let after = daemon.resident().memory;
    assert!(after < before + (16 << 20), "{before} before, {after} after");
}

/// If a client has used up the stream identifiers, its connection ends with a GOAWAY.
#[test]
fn stream_identifiers_run_out() {
    let (_origin, daemon) = start("");
    let mut client = connect(&daemon);
    let last = 0x7fff_ffff;
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, last, &block("GET", "/100", &[])).unwrap();
    assert_eq!(client.response(last).unwrap().0, Some(200));
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block("GET", "/100", &[])).unwrap();
    assert_eq!(client.end(WITHIN), End::GoAway(1));
}

/// Streams that the client resets and streams that it causes the daemon to reset count alike: 100 a minute end the
/// connection.
#[test]
fn resets_of_either_kind_are_budgeted() {
    let origin = Origin::start(|path, stream| {
        thread::sleep(Duration::from_millis(200));
        sized(path, stream)
    });
    let subs = "sub vcl_recv { return (pass); }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &["-p", "feature=+http2"]);
    // The client resets a stream, or causes the server to reset it.
    let provoke: [(&str, u8, &[u8]); 4] = [
        ("a reset", kind::RST_STREAM, &[0, 0, 0, 8]),
        ("a window increment of nothing", kind::WINDOW_UPDATE, &[0; 4]),
        ("a window that overflows", kind::WINDOW_UPDATE, &[0x7f, 0xff, 0xff, 0xff]),
        ("data after the end", kind::DATA, b"x"),
    ];
    for (name, kind_of, payload) in provoke {
        let mut bytes = Vec::new();
        for n in 0..1000u32 {
            let stream = 2 * n + 1;
            put(&mut bytes, kind::HEADERS, END_HEADERS | END_STREAM, stream, &block("GET", "/100", &[]));
            put(&mut bytes, kind_of, 0, stream, payload);
        }
        let mut client = connect(&daemon);
        let _ = client.send_bytes(&bytes);
        let end = client.end(WITHIN);
        assert!(matches!(end, CALM | End::Closed), "{name}: {end:?}");
    }
    assert!(daemon.logs("H2: Hit RST limit. Closing session."));
    assert!(origin.requests() < 4 * 250, "{}", origin.requests());
}

/// Requests beyond the stream limit and malformed requests are refused; many of them end the connection.
#[test]
fn refused_requests_are_limited_too() {
    let origin = Origin::start(|_, _| {
        thread::sleep(Duration::from_secs(30));
        false
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "feature=+http2"]);
    // Requests without a response from the origin, and some without a method and a path.
    for request in [block("GET", "/stuck", &[]), vec![0x86]] {
        let mut bytes = Vec::new();
        for n in 0..30_000u32 {
            put(&mut bytes, kind::HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &request);
        }
        let mut client = connect(&daemon);
        let mut socket = client.socket().unwrap();
        let sender = thread::spawn(move || socket.write_all(&bytes).is_ok());
        let end = client.end(WITHIN);
        assert!(matches!(end, CALM | End::Closed), "{end:?}");
        client.close();
        sender.join().unwrap();
    }
}

const HEADER_TABLE_SIZE: u16 = 1;

/// Returns the first byte of the header block of the response to a GET.
fn first_byte(client: &mut H2Client, path: &str) -> u8 {
    let stream = client.get(path).unwrap();
    loop {
        let frame = client.frame().unwrap();
        assert_ne!(frame.kind, kind::GOAWAY);
        if frame.kind == kind::HEADERS && frame.stream == stream {
            return frame.payload[0];
        }
    }
}

/// A client that makes the header table smaller is told so at the beginning of the next header block, as it may insist
/// on (RFC 7541 section 4.2).
#[test]
fn a_smaller_header_table_is_confirmed() {
    let (_origin, daemon) = start("");
    for (entries, update) in [(&[(HEADER_TABLE_SIZE, 0)][..], 0x20), (&[(HEADER_TABLE_SIZE, 9000)], 0x88)] {
        let mut client = H2Client::connect(daemon.address, entries).unwrap();
        assert_eq!([first_byte(&mut client, "/100"), first_byte(&mut client, "/100")], [update, 0x88]);
    }
}

/// Before a client has received the settings, it may use a header table of the default size. Then, the size of the
/// settings is its limit.
#[test]
fn a_header_table_has_the_default_size_at_first() {
    let (_origin, mut daemon) = start("");
    daemon.ok("param.set h2_header_table_size 0b");
    let mut client = connect(&daemon);
    // The field `x: y` is added to the table, and then read from there.
    for field in [&[0x40, 1, b'x', 1, b'y'][..], &[0xbe]] {
        let stream = client.new_stream();
        let request = [&block("GET", "/100", &[])[..], field].concat();
        client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &request).unwrap();
        assert_eq!(client.response(stream).unwrap().0, Some(200));
    }
    client.send(kind::SETTINGS, ACK, 0, &[]).unwrap();
    let stream = client.new_stream();
    let request = [&block("GET", "/100", &[])[..], &[0xbe]].concat();
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &request).unwrap();
    // COMPRESSION_ERROR
    assert_eq!(client.end(WITHIN), End::GoAway(9));
}
