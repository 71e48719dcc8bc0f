//! Requests with bodies and trailers to origins that speak HTTP/2, by clients of HTTP/2: trailers pass, unless they must
//! not, and an upload that goes on during its response ends with either side.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use lacquer_testing::daemon::{Daemon, until};
use lacquer_testing::h2::{END_HEADERS, END_STREAM, H2Client, block, kind};
use lacquer_testing::slots::shared_slot;

use super::origin::{Origin, fields};
use super::{PASS, start};

/// The code of a stream that breaks a rule.
const PROTOCOL_ERROR: u32 = 1;

/// Starts a daemon that passes all requests, with these parameters.
fn serve_with(origin: &Origin, params: &[&str]) -> (Daemon, H2Client) {
    let mut options = vec!["-p", "feature=+http2"];
    options.extend(params.iter().flat_map(|&param| ["-p", param]));
    let daemon = start(origin, PASS, &options);
    let client = H2Client::connect(daemon.address, &[]).expect("it serves");
    (daemon, client)
}

fn serve(origin: &Origin, subs: &str) -> (Daemon, H2Client) {
    let daemon = start(origin, subs, &["-p", "feature=+http2"]);
    let client = H2Client::connect(daemon.address, &[]).expect("it serves");
    (daemon, client)
}

/// Sends a request with a body of three bytes and these trailers. Returns the status and the body of the response.
fn ask(client: &mut H2Client, path: &str, trailers: &[(&str, &str)]) -> (Option<u16>, String) {
    let stream = client.new_stream();
    client.send(kind::HEADERS, END_HEADERS, stream, &block("POST", path, &[])).expect("it can be sent");
    client.send(kind::DATA, 0, stream, b"abc").expect("it can be sent");
    let last = END_HEADERS | END_STREAM;
    client.send(kind::HEADERS, last, stream, &fields("", trailers)).expect("it can be sent");
    let (status, body) = client.response(stream).expect("a response");
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// The trailers of a request reach the origin, without those that it would need before the body.
#[test]
fn trailers_of_requests_pass() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let (daemon, mut client) = serve(&origin, PASS);
    let trailers = [
        ("x-checksum", "seven"),
        ("content-length", "99"),
        ("host", "elsewhere"),
        ("authorization", "forged"),
        ("cookie", "forged"),
        ("x-forwarded-for", "forged"),
        ("grpc-trace", "eight"),
    ];
    let echo = ask(&mut client, "/echo", &trailers).1;
    let echo = echo.strip_prefix("abc").expect("the body precedes the trailers");
    for back in [&ask(&mut client, "/trailed", &trailers).1[..], echo] {
        for word in ["x-checksum", "seven", "grpc-trace", "eight"] {
            assert!(back.contains(word), "{word}: {back:?}");
        }
        for word in ["99", "elsewhere", "forged"] {
            assert!(!back.contains(word), "{word}: {back:?}");
        }
    }
    assert!(daemon.logs("x-checksum: seven") && daemon.logs("trailers: 5 forbidden fields were dropped"));
    // Without a field that may pass, the body ends as usual.
    assert_eq!(ask(&mut client, "/count", &[("host", "a")]), (Some(200), "3".to_owned()));
}

const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Trailers do not pass if they are too many, if the origin limits them, or if the body no longer has them.
#[test]
fn other_trailers_are_dropped_with_a_reason() {
    let _slot = shared_slot();
    let many = vec![("x-a", "y"); 65];
    let large = "y".repeat(120);
    let long = vec![("x-a", &large[..]); 70];
    for (settings, subs, trailers, reason) in [
        (&[][..], PASS, &many, "they are too many or too large"),
        (&[], PASS, &long, "they are too many or too large"),
        (&[(MAX_HEADER_LIST_SIZE, 1000)], PASS, &vec![("x-a", &large[..]); 20], "the origin limits them"),
        (
            &[],
            "import std; sub vcl_recv { if (!std.cache_req_body(1MB)) { return (fail); } return (pass); }",
            &vec![("x-a", "y")],
            "",
        ),
    ] {
        let origin = Origin::start(settings);
        let (daemon, mut client) = serve(&origin, subs);
        // The settings of the origin are known after the first response.
        let first = client.get("/ok").expect("it can be sent");
        assert_eq!(client.response(first).expect("a response").0, Some(200));
        let back = ask(&mut client, "/count", trailers);
        assert_eq!(back, (Some(200), "3".to_owned()), "{reason}");
        assert!(reason.is_empty() || daemon.logs(&format!("trailers were dropped: {reason}")), "{reason}");
    }
}

/// Trailers that break a rule end the request, also to the origin.
#[test]
fn broken_trailers_end_the_request() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let (_daemon, mut client) = serve(&origin, PASS);
    let all: [&[(&str, &str)]; 5] = [
        &[("transfer-encoding", "chunked")],
        &[("connection", "close")],
        &[(":path", "/other")],
        &[("X-Upper", "a")],
        &[("x-split", "a\r\nhost: b")],
    ];
    for (n, trailers) in all.into_iter().enumerate() {
        assert_eq!(ask(&mut client, "/echo", trailers).0, None, "{trailers:?}");
        assert!(until(|| origin.counts.resets.load(Ordering::SeqCst) == n + 1));
    }
    assert_eq!(ask(&mut client, "/count", &[]).0, Some(200));
}

/// An origin that resets the stream in the middle of its response ends the upload, and the connections go on.
#[test]
fn a_reset_of_the_origin_ends_the_upload() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let (_daemon, mut client) = serve(&origin, PASS);
    for declared in [&[][..], &[("content-length", "1000000")]] {
        let stream = client.new_stream();
        let request = block("POST", "/cut", declared);
        client.send(kind::HEADERS, END_HEADERS, stream, &request).expect("it can be sent");
        client.send(kind::DATA, 0, stream, &[b'x'; 1000]).expect("it can be sent");
        let (mut body, mut is_reset) = (Vec::new(), false);
        while !is_reset {
            let frame = client.frame().expect("a frame");
            assert!(frame.kind != kind::GOAWAY, "the connection goes on");
            if frame.stream == stream {
                assert!(
                    frame.kind != kind::DATA || frame.flags & END_STREAM == 0,
                    "the response is not whole"
                );
                match frame.kind {
                    // The upload goes on meanwhile.
                    kind::HEADERS => client.send(kind::DATA, 0, stream, &[b'x'; 1000]).expect("it reads"),
                    kind::DATA => body.extend_from_slice(&frame.payload),
                    kind::RST_STREAM => is_reset = true,
                    _ => {}
                }
            }
        }
        assert!(b"hello".starts_with(&body[..]), "{body:?}");
        assert_eq!(ask(&mut client, "/count", &[]), (Some(200), "3".to_owned()));
    }
    assert_eq!(origin.counts.connections.load(Ordering::SeqCst), 1);
}

/// A client that is silent for longer than `timeout_idle` goes on, whether it waits for the response or for its next part.
#[test]
fn a_client_that_waits_for_the_response_goes_on() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let options = ["timeout_idle=1", "first_byte_timeout=30", "between_bytes_timeout=30"];
    let (_daemon, mut client) = serve_with(&origin, &options);
    let streams = ["/echo", "/count"].map(|path| {
        let stream = client.new_stream();
        client.send(kind::HEADERS, END_HEADERS, stream, &block("POST", path, &[])).expect("it can be sent");
        client.send(kind::DATA, 0, stream, b"hello ").expect("it can be sent");
        stream
    });
    thread::sleep(Duration::from_millis(2500));
    for (stream, expected) in streams.into_iter().zip(["hello again", "11"]) {
        client.send(kind::DATA, END_STREAM, stream, b"again").expect("it can be sent");
        let (mut body, mut heads) = (Vec::new(), 0);
        loop {
            let frame = client.frame().expect("a frame");
            assert!(!matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY), "{expected}: it goes on");
            if frame.stream != stream {
                continue;
            }
            match frame.kind {
                kind::HEADERS => heads += 1,
                kind::DATA => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & END_STREAM != 0 {
                break;
            }
        }
        assert_eq!((String::from_utf8_lossy(&body), heads > 0), (expected.into(), true));
    }
}

/// If neither side sends, the limits of the origin end the exchange, and `timeout_idle` that of a client which owes a rest of
/// known length before the response begins.
#[test]
fn silence_of_both_sides_ends() {
    let _slot = shared_slot();
    let cases: [(&str, &[(&str, &str)], &str); 3] = [
        ("/echo", &[], "between_bytes_timeout=2"),
        ("/count", &[], "first_byte_timeout=2"),
        ("/count", &[("content-length", "10")], "timeout_idle=1"),
    ];
    for (path, declared, limit) in cases {
        let origin = Origin::start(&[]);
        let options = ["timeout_idle=1", "first_byte_timeout=600", "between_bytes_timeout=600", limit];
        let (_daemon, mut client) = serve_with(&origin, &options);
        let stream = client.new_stream();
        client.send(kind::HEADERS, END_HEADERS, stream, &block("POST", path, declared)).expect("it reads");
        client.send(kind::DATA, 0, stream, b"abc").expect("it can be sent");
        assert_eq!(client.response(stream).expect("the connection goes on").0, None, "{path} {limit}");
        assert!(until(|| origin.counts.resets.load(Ordering::SeqCst) == 1), "{path} {limit}");
        assert_eq!(ask(&mut client, "/count", &[]).0, Some(200), "{path} {limit}");
    }
}

/// A client that breaks its `Content-Length` while the response arrives has its stream reset, and so has the origin.
#[test]
fn a_broken_length_ends_an_overlapped_upload() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let (_daemon, mut client) = serve(&origin, PASS);
    for (n, (first, second, flags)) in
        [(5, 6, 0), (5, 4, END_STREAM), (10, 1, END_STREAM)].into_iter().enumerate()
    {
        let stream = client.new_stream();
        let request = block("POST", "/echo", &[("content-length", "10")]);
        client.send(kind::HEADERS, END_HEADERS, stream, &request).expect("it can be sent");
        client.send(kind::DATA, 0, stream, &vec![b'x'; first]).expect("it can be sent");
        while client.frame().expect("a frame").kind != kind::DATA {}
        client.send(kind::DATA, flags, stream, &vec![b'x'; second]).expect("it can be sent");
        let code = loop {
            let frame = client.frame().expect("a frame");
            assert!(frame.kind != kind::GOAWAY, "the connection goes on");
            if frame.stream == stream && frame.kind == kind::RST_STREAM {
                break u32::from_be_bytes(frame.payload[..4].try_into().expect("four bytes"));
            }
        };
        assert_eq!(code, PROTOCOL_ERROR, "{first} and {second}");
        assert!(until(|| origin.counts.resets.load(Ordering::SeqCst) == n + 1));
    }
    assert_eq!(ask(&mut client, "/count", &[]), (Some(200), "3".to_owned()));
}
