//! Origins that speak HTTP/2: whatever they send, clients get whole responses or errors, and other requests are served.

pub mod origin;
mod probes;
mod sharing;
mod uploads;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::thread;

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::Daemon;
use lacquer_testing::h2::{END_HEADERS, END_STREAM, H2Client, block, kind};
use lacquer_testing::slots::shared_slot;

use origin::Origin;

fn start(origin: &Origin, subs: &str, options: &[&str]) -> Daemon {
    let (ip, port) = (origin.address.ip(), origin.address.port());
    let vcl = format!(
        "vcl 4.1;\nbackend default {{ .host = \"{ip}\"; .port = \"{port}\"; .proto = \"h2\"; }}\n\
         sub vcl_backend_response {{ set beresp.http.Proto = beresp.proto; }}\n{subs}\n"
    );
    let always = ["-s", "malloc,32M", "-p", "first_byte_timeout=3", "-p", "between_bytes_timeout=3"];
    Daemon::start(&vcl, &[&always[..], options].concat())
}

const PASS: &str = "sub vcl_recv { return (pass); }";

/// Responses of all forms arrive whole, whether they are cached or passed.
#[test]
fn responses_arrive_whole() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    for subs in ["", PASS] {
        let daemon = start(&origin, subs, &[]);
        for path in ["/ok", "/", "/length", "/interim", "/padded", "/parts", "/trailers", "/ok?again"] {
            let response = get(daemon.address, path).expect(path);
            assert_eq!((response.status, &response.body[..]), (200, &b"hello"[..]), "{path}");
            assert_eq!(response.header("Proto"), Some("HTTP/2.0"), "{path}");
            assert!(response.head.starts_with("HTTP/1.1 200 OK"), "{path}: {}", response.head);
        }
        assert_eq!(get(daemon.address, "/empty").expect("a response").status, 204);
        let nothing = get(daemon.address, "/nothing").expect("a response");
        assert_eq!((nothing.status, nothing.body.len(), nothing.header("x")), (200, 0, Some("y")));
        let large = get(daemon.address, "/large").expect("a response");
        assert_eq!(large.body, vec![b'x'; 200_000]);
        assert!(daemon.log_has("reuse"));
    }
    assert_eq!(origin.counts.streams.load(Ordering::SeqCst), 1);
}

/// A response that breaks a rule is an error, of which nothing is cached, and the next request is served.
#[test]
fn broken_responses_are_errors() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, "", &["-p", "max_retries=0"]);
    for path in [
        "/bomb",
        "/many",
        "/continuations",
        "/longer",
        "/later",
        "/shorter",
        "/overflow",
        "/window",
        "/push",
        "/pseudo",
        "/uppercase",
        "/chunked",
        "/connection",
        "/split",
        "/nostatus",
        "/status",
        "/switch",
        "/first",
        "/interims",
        "/pings",
        "/settings",
        "/frames",
        "/reset",
        "/garbage",
        "/http1",
        "/other",
        "/hpack",
        "/drop",
    ] {
        for _ in 0..2 {
            match get(daemon.address, path) {
                // The head may have been delivered before the fault.
                Ok(response) if response.status == 200 => {
                    panic!("{path}: a whole response of {} bytes", response.body.len())
                }
                Ok(response) => assert_eq!(response.status, 503, "{path}"),
                Err(_) => {}
            }
        }
        let next = get(daemon.address, &format!("/ok?{path}")).expect(path);
        assert_eq!((next.status, &next.body[..]), (200, &b"hello"[..]), "after {path}");
    }
    assert!(!daemon.stderr().contains("died"), "{}", daemon.stderr());
}

/// Requests at the same time share one connection.
#[test]
fn requests_share_a_connection() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &["-p", "thread_pools=1"]);
    let bodies = at_once(&daemon, 30);
    assert!(bodies.iter().enumerate().all(|(n, body)| *body == format!("/slow{n}")), "{bodies:?}");
    let (connections, streams) =
        (origin.counts.connections.load(Ordering::SeqCst), origin.counts.streams.load(Ordering::SeqCst));
    assert!(connections <= 2 && streams >= 10, "{connections} connections, {streams} streams");
}

/// Sends requests at the same time, and returns the bodies of the responses.
fn at_once(daemon: &Daemon, count: usize) -> Vec<String> {
    let address = daemon.address;
    let clients: Vec<_> = (0..count)
        .map(|n| thread::spawn(move || get(address, &format!("/slow{n}")).expect("a response")))
        .collect();
    let responses = clients.into_iter().map(|client| client.join().expect("it does not panic"));
    responses.map(|response| String::from_utf8_lossy(&response.body).into_owned()).collect()
}

/// The origin's limit of streams holds; further requests get connections of their own.
#[test]
fn the_limit_of_streams_is_kept() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let _slot = shared_slot();
    let origin = Origin::start(&[(MAX_CONCURRENT_STREAMS, 2)]);
    let daemon = start(&origin, PASS, &[]);
    // The settings are known after the first response, on one of the reactors.
    assert_eq!(get(daemon.address, "/ok").expect("a response").status, 200);
    let bodies = at_once(&daemon, 8);
    assert!(bodies.iter().enumerate().all(|(n, body)| *body == format!("/slow{n}")), "{bodies:?}");
    assert!(origin.counts.connections.load(Ordering::SeqCst) >= 2);
}

/// Requests that the origin has not processed are sent again.
#[test]
fn unprocessed_requests_are_repeated() {
    let _slot = shared_slot();
    for path in ["/goaway-once", "/refuse-once"] {
        let origin = Origin::start(&[]);
        let daemon = start(&origin, PASS, &["-p", "max_retries=0"]);
        let mut client = Client::connect(daemon.address).expect("it serves");
        let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let response = client.ask(&request).expect("a response");
        assert_eq!(response.status, 404, "{path}: the second attempt is answered");
        assert_eq!(origin.counts.connections.load(Ordering::SeqCst), 2, "{path}");
    }
}

/// A connection that the origin closes is replaced.
#[test]
fn closed_connections_are_replaced() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &[]);
    for _ in 0..5 {
        assert_eq!(get(daemon.address, "/close").expect("a response").body, b"bye");
    }
    assert_eq!(get(daemon.address, "/ok").expect("a response").status, 200);
}

/// Bodies of requests are sent within the windows of the origin, with and without a length.
#[test]
fn bodies_of_requests_arrive() {
    const SIZE: usize = 3_000_000;
    let _slot = shared_slot();
    let origin = Origin::start(&[(4, 10_000)]);
    let daemon = start(&origin, PASS, &[]);
    for (coding, begin, end) in [
        (format!("Content-Length: {SIZE}"), String::new(), ""),
        ("Transfer-Encoding: chunked".to_owned(), format!("{SIZE:x}\r\n"), "\r\n0\r\n\r\n"),
    ] {
        let mut client = Client::connect(daemon.address).expect("it serves");
        let body = "x".repeat(SIZE);
        let request = format!("POST /count HTTP/1.1\r\nHost: a\r\n{coding}\r\n\r\n{begin}{body}{end}");
        let response = client.ask(&request).expect("a response");
        assert_eq!((response.status, response.body), (200, SIZE.to_string().into_bytes()), "{coding}");
    }
}

/// A refusal before the end of the upload reaches the client.
#[test]
fn early_responses_reach_the_client() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &[]);
    let mut plain = Client::connect(daemon.address).expect("it serves");
    plain
        .send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nbegin")
        .expect("it can be sent");
    let response = plain.response().expect("a response");
    assert_eq!((response.status, &response.body[..]), (413, &b"too large"[..]));
}

/// The same for clients of HTTP/2, whose uploads may go on during the response: the refusal ends the origin's stream while
/// the upload waits for its window.
#[test]
fn early_responses_reach_streams() {
    let _slot = shared_slot();
    let origin = Origin::start(&[(4, 10)]);
    let daemon = start(&origin, PASS, &["-p", "feature=+http2"]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("it serves");
    for path in ["/early", "/early-late"] {
        for is_whole in [false, true] {
            let stream = client.new_stream();
            let request = block("POST", path, &[]);
            client.send(kind::HEADERS, END_HEADERS, stream, &request).expect("it can be sent");
            let flags = if is_whole { END_STREAM } else { 0 };
            client.send(kind::DATA, flags, stream, &[b'x'; 1000]).expect("it can be sent");
            let (status, body) = client.response(stream).expect("a response");
            assert_eq!((status, &body[..]), (Some(413), &b"too large"[..]), "{path} {is_whole}");
        }
    }
}

/// A pipe and an upgrade, which need HTTP/1.1, fail with a reason.
#[test]
fn pipes_are_refused_with_a_reason() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, "sub vcl_recv { return (pipe); }", &[]);
    assert!(get(daemon.address, "/ok").is_err(), "a pipe that fails has no response");
    assert!(daemon.logs("a pipe or an upgrade needs HTTP/1.1"));
    assert_eq!(origin.counts.connections.load(Ordering::SeqCst), 0);
}

/// Responses with trailers: their paths and their bodies.
pub const TRAILED: [(&str, &str); 5] =
    [("/trailers", "hello"), ("/bare", ""), ("/zero", ""), ("/trailers-late", "hello"), ("/zero-late", "")];

/// The trailers of a response, such as those of gRPC, pass to clients of HTTP/2, also behind an empty body.
#[test]
fn trailers_pass_to_clients() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &["-p", "feature=+http2"]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("it serves");
    for (path, body) in [TRAILED; 5].concat() {
        receive_trailers(&mut client, path, body);
    }
}

fn receive_trailers(client: &mut H2Client, path: &str, expected: &str) {
    let stream = client.new_stream();
    let request = block("POST", path, &[("te", "trailers")]);
    client.send(kind::HEADERS, END_HEADERS | END_STREAM, stream, &request).expect("it can be sent");
    let (mut body, mut blocks) = (Vec::new(), Vec::new());
    loop {
        let frame = client.frame().expect("a frame");
        if frame.stream != stream {
            continue;
        }
        match frame.kind {
            kind::HEADERS => blocks.push(frame.payload.clone()),
            kind::DATA => body.extend_from_slice(&frame.payload),
            _ => {}
        }
        if frame.flags & END_STREAM != 0 && matches!(frame.kind, kind::HEADERS | kind::DATA) {
            assert_eq!(frame.kind, kind::HEADERS, "{path}: the trailers end the stream");
            break;
        }
    }
    assert_eq!((&body[..], blocks.len()), (expected.as_bytes(), 2), "{path}");
    let text = String::from_utf8_lossy(&blocks[1]).into_owned();
    assert!(text.contains("grpc-status") && !text.contains("99"), "{path}: {text:?}");
}

/// Clients of HTTP/1.1 that accept trailers get them behind the last chunk; others get the body alone.
#[test]
fn trailers_pass_to_clients_of_http1() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &[]);
    let accepting = ["TE: trailers\r\n", "TE: trailers\r\nConnection: TE\r\n", "X: y\r\n"];
    for (fields, (path, body)) in accepting.into_iter().flat_map(|fields| TRAILED.map(|to| (fields, to))) {
        let mut socket = daemon.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        socket.write_all(request.as_bytes()).expect("it reads");
        socket.shutdown(Shutdown::Write).expect("it is open");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("a response");
        assert!(text.starts_with("HTTP/1.1 200 ") && text.contains(body), "{path} {fields}: {text:?}");
        let trailers = text.split_once("\r\n0\r\n").map_or("", |(_, behind)| behind);
        let has_trailers = trailers.contains("grpc-status: 0\r\n");
        assert_eq!(has_trailers, fields.starts_with("TE"), "{path} {fields}: {text:?}");
        assert!(!trailers.contains("99"), "{text:?}");
        let has_length = text.to_ascii_lowercase().contains("content-length");
        assert!(!has_trailers || !has_length, "{path}: {text:?}");
    }
    // HEAD and HTTP/1.0 have no place for trailers.
    for path in ["/bare", "/zero", "/zero-late"] {
        for request in [
            format!("HEAD {path} HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n"),
            format!("GET {path} HTTP/1.0\r\nTE: trailers\r\n\r\n"),
        ] {
            let mut socket = daemon.connect();
            socket.write_all(request.as_bytes()).expect("it reads");
            let mut text = String::new();
            socket.read_to_string(&mut text).expect("a response");
            assert!(
                text.starts_with("HTTP/1.1 200 ") && !text.contains("grpc-status"),
                "{request}: {text:?}"
            );
        }
    }
}

/// Messages of both directions pass at once, as streams of gRPC need it. The end of the response ends the request.
#[test]
fn both_directions_are_open_at_once() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &["-p", "feature=+http2"]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("it serves");
    for (last, flags) in [(&b"end"[..], END_STREAM), (b"bye", 0)] {
        let stream = client.new_stream();
        let request = block("POST", "/echo", &[("te", "trailers")]);
        client.send(kind::HEADERS, END_HEADERS, stream, &request).expect("it can be sent");
        for n in 0..100 {
            let message = format!("message {n}");
            client.send(kind::DATA, 0, stream, message.as_bytes()).expect("it can be sent");
            let mut back = Vec::new();
            while back.len() < message.len() {
                let frame = client.frame().expect("a frame");
                if frame.kind == kind::DATA && frame.stream == stream {
                    back.extend_from_slice(&frame.payload);
                }
            }
            assert_eq!(back, message.as_bytes());
        }
        client.send(kind::DATA, flags, stream, last).expect("it can be sent");
        let (mut body, mut trailers) = (Vec::new(), None);
        while trailers.is_none() {
            let frame = client.frame().expect("a frame");
            match frame.kind {
                kind::DATA if frame.stream == stream => body.extend_from_slice(&frame.payload),
                kind::HEADERS if frame.stream == stream => trailers = Some(frame),
                _ => {}
            }
        }
        let trailers = trailers.expect("they have arrived");
        assert_eq!((&body[..], trailers.flags & END_STREAM), (last, END_STREAM));
        assert!(String::from_utf8_lossy(&trailers.payload).contains("grpc-status"));
    }
    // A client that leaves in the middle ends the request to the origin, and the connection serves on.
    let stream = client.new_stream();
    client.send(kind::HEADERS, END_HEADERS, stream, &block("POST", "/echo", &[])).expect("it can be sent");
    client.send(kind::DATA, 0, stream, b"first").expect("it can be sent");
    while client.frame().expect("a frame").kind != kind::DATA {}
    client.reset(stream).expect("it can be sent");
    let next = client.get("/ok").expect("it can be sent");
    assert_eq!(client.response(next).expect("a response").0, Some(200));
}
