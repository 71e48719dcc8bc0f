//! Origins that respond before they have read the whole request. The client gets the response, and origins that read on
//! get the whole body.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, MAX_WAIT, until, vcl};
use lacquer_testing::h2::{END_HEADERS, END_STREAM, H2Client, block, kind};
use lacquer_testing::slots::shared_slot;

/// The size of a body that the buffers of two sockets cannot hold.
const BODY: usize = 12 << 20;
const REFUSAL: &[u8] = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\n\r\ntoo large";
/// The origin serves one request per connection. If it did not tell so, the next upload could be sent on a connection that is
/// about to be closed, and an upload cannot be repeated.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nearly";

/// An origin that writes before it reads the body of a request. The path selects what.
struct Origin {
    address: SocketAddr,
    /// The number of bytes that were read after the heads.
    read: Arc<AtomicUsize>,
}

impl Origin {
    fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let read = Arc::new(AtomicUsize::new(0));
        let count = read.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = count.clone();
                thread::spawn(move || serve(stream, &count));
            }
        });
        Origin { address, read }
    }
}

/// Serves one request.
fn serve(mut stream: TcpStream, count: &AtomicUsize) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).and_then(|path| path.split('/').nth(1)).unwrap_or_default();
    let _ = match path {
        "refuse" | "hold" => stream.write_all(REFUSAL),
        "half" => stream.write_all(&REFUSAL[..40]),
        "interim" => {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        }
        "early" => stream.write_all(OK),
        "garbage" => stream.write_all(b"what?\r\n\r\n"),
        "endless" => stream.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)),
        "silent" => Ok(()),
        "cut" => stream.read_exact(&mut vec![0; 64 << 10]),
        _ => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    };
    match path {
        "cut" => {
            count.fetch_add(1, Ordering::SeqCst);
        }
        // Closing the socket while bytes of the body are unread resets the connection.
        "refuse" | "half" | "silent" => thread::sleep(Duration::from_millis(100)),
        "hold" => {
            while matches!(stream.take_error(), Ok(None)) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        "" => {}
        _ => {
            let _ = stream.set_read_timeout(Some(MAX_WAIT));
            read_body(&mut stream, count);
            if path == "interim" {
                let _ = stream.write_all(OK);
            }
        }
    }
}

/// Reads the body: BODY bytes, or chunks.
fn read_body(stream: &mut TcpStream, count: &AtomicUsize) {
    let (mut piece, mut tail) = (vec![0; 64 << 10], Vec::new());
    let mut left = BODY;
    while left > 0 && !tail.ends_with(b"\r\n0\r\n\r\n") {
        let Ok(n @ 1..) = stream.read(&mut piece) else { return };
        count.fetch_add(n, Ordering::SeqCst);
        tail.extend_from_slice(&piece[..n]);
        tail.drain(..tail.len().saturating_sub(7));
        left = left.saturating_sub(n);
    }
}

fn start(origin: &Origin, options: &[&str]) -> Daemon {
    let subs = "import std;
        sub vcl_recv {
            if (req.url ~ \"cached\" && !std.cache_req_body(64MB)) { return (synth(400)); }
        }
        sub vcl_deliver {
            if (req.url ~ \"cut\" && resp.status == 503 && req.restarts == 0) { return (restart); }
        }";
    let always =
        ["-s", "malloc,32M", "-p", "max_retries=0", "-p", "first_byte_timeout=3", "-p", "lingering_close=30"];
    Daemon::start(&vcl(origin.address, subs), &[&always[..], options].concat())
}

/// Posts a body. A client that `waits` reads only after it has sent all. Returns all that it receives.
fn post(daemon: &Daemon, path: &str, coding: &str, waits: bool) -> String {
    let mut client = daemon.connect();
    client.set_read_timeout(Some(2 * MAX_WAIT)).expect("sockets have time-outs");
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{coding}\r\n\r\n");
    let is_chunked = coding.contains("chunked");
    let mut sender = client.try_clone().expect("a descriptor");
    let sending = thread::spawn(move || {
        sender.write_all(head.as_bytes())?;
        let frame = |text: String| if is_chunked { text } else { String::new() };
        sender.write_all(frame(format!("{BODY:x}\r\n")).as_bytes())?;
        sender.write_all(&vec![b'x'; BODY])?;
        sender.write_all(frame("\r\n0\r\n\r\n".to_owned()).as_bytes())
    });
    let mut response = Vec::new();
    if waits {
        let sent = sending.join().expect("it does not panic");
        sent.expect("the daemon reads on while it waits for the end of the connection");
        let _ = client.read_to_end(&mut response);
    } else {
        let _ = client.read_to_end(&mut response);
        let _ = client.shutdown(Shutdown::Both);
        let _ = sending.join();
    }
    String::from_utf8_lossy(&response).into_owned()
}

fn codings() -> [String; 2] {
    [format!("Content-Length: {BODY}"), "Transfer-Encoding: chunked".to_owned()]
}

/// A refusal reaches the client, whether the origin closes its connection or stops reading.
#[test]
fn refusals_during_an_upload_reach_the_client() {
    let _slot = shared_slot();
    let origin = Origin::start();
    let daemon = start(&origin, &[]);
    for path in ["/refuse/streamed", "/hold/streamed", "/refuse/cached", "/hold/cached"] {
        for coding in codings() {
            for waits in [false, true] {
                let begun = Instant::now();
                let response = post(&daemon, path, &coding, waits);
                let what = format!("{path} {coding} {waits}");
                assert!(response.starts_with("HTTP/1.1 413 "), "{what}: {response:?}");
                assert!(response.ends_with("\r\n\r\ntoo large"), "{what}: {response:?}");
                assert!(begun.elapsed() < MAX_WAIT, "{what}: {:?}", begun.elapsed());
            }
        }
    }
    assert!(daemon.logs("early response"));
    assert_eq!(get(daemon.address, "/").expect("it serves").status, 200);
}

/// A client that sends nothing more before it has a response gets it too.
#[test]
fn refusals_reach_clients_that_wait_for_them() {
    let _slot = shared_slot();
    let origin = Origin::start();
    let daemon = start(&origin, &["-p", "feature=+http2"]);
    for path in ["/refuse", "/hold"] {
        let mut client = daemon.connect();
        client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have time-outs");
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nbegin");
        client.write_all(head.as_bytes()).expect("it can be sent");
        let mut response = String::new();
        if let Err(e) = client.read_to_string(&mut response) {
            assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{path}: {response:?}");
        }
        assert!(response.starts_with("HTTP/1.1 413 "), "{path}: {response:?}");
        assert!(response.contains("\r\nConnection: close\r\n"), "{path}: {response:?}");

        let mut client = H2Client::connect(daemon.address, &[]).expect("it serves");
        let stream = client.new_stream();
        client.send(kind::HEADERS, END_HEADERS, stream, &block("POST", path, &[])).expect("it can be sent");
        client.send(kind::DATA, 0, stream, b"begin").expect("it can be sent");
        assert_eq!(
            client.response(stream).expect("a response"),
            (Some(413), b"too large".to_vec()),
            "{path}"
        );
        // The connection goes on.
        let next = client.get("/").expect("it can be sent");
        assert_eq!(client.response(next).expect("a response").0, Some(200));
    }
}

/// Other early bytes do not end an upload: the origin gets the whole body.
#[test]
fn uploads_go_on_after_interim_and_early_responses() {
    let _slot = shared_slot();
    let origin = Origin::start();
    let daemon = start(&origin, &[]);
    for (path, status) in [
        ("/interim/streamed", "200"),
        ("/interim/cached", "200"),
        ("/early/streamed", "200"),
        ("/early/cached", "200"),
        ("/garbage/streamed", "503"),
        ("/endless/streamed", "503"),
    ] {
        for coding in codings() {
            let before = origin.read.load(Ordering::SeqCst);
            let response = post(&daemon, path, &coding, false);
            let what = format!("{path} {coding}");
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {response:?}");
            assert!(status != "200" || response.ends_with("\r\n\r\nearly"), "{what}: {response:?}");
            // A connection with unread bytes is reset at its end, which discards the part of the body on its way.
            let read = || origin.read.load(Ordering::SeqCst) - before;
            assert!(path.starts_with("/endless") || until(|| read() >= BODY), "{what}: {} bytes", read());
        }
    }
    assert_eq!(get(daemon.address, "/").expect("it serves").status, 200);
}

/// An origin that closes its connection without a response, or with a part of one, is an error.
#[test]
fn broken_refusals_are_errors() {
    let _slot = shared_slot();
    let origin = Origin::start();
    let daemon = start(&origin, &[]);
    for path in ["/half/streamed", "/half/cached", "/silent/streamed", "/silent/cached"] {
        for coding in codings() {
            let response = post(&daemon, path, &coding, false);
            assert!(response.starts_with("HTTP/1.1 503 "), "{path} {coding}: {response:?}");
        }
    }
    assert_eq!(get(daemon.address, "/").expect("it serves").status, 200);
}

/// A request whose body was sent in part cannot be restarted: the origin would take the rest of the body for the whole, or the
/// next request for the rest.
#[test]
fn the_rest_of_a_body_is_not_sent_after_a_restart() {
    let _slot = shared_slot();
    let origin = Origin::start();
    let daemon = start(&origin, &[]);
    for coding in codings() {
        let before = origin.read.load(Ordering::SeqCst);
        assert_eq!(post(&daemon, "/cut/streamed", &coding, false), "", "{coding}");
        assert_eq!(origin.read.load(Ordering::SeqCst) - before, 1, "{coding}: the number of requests");
        // A cached body is sent anew.
        assert!(post(&daemon, "/cut/cached", &coding, false).starts_with("HTTP/1.1 503 "), "{coding}");
        assert_eq!(origin.read.load(Ordering::SeqCst) - before, 3, "{coding}: the number of requests");
    }
    assert_eq!(get(daemon.address, "/").expect("it serves").status, 200);
}

/// A client of HTTP/2 that got a whole response before the end of its upload is told that the rest is not needed. The rest,
/// and trailers, may be on their way for several streams: they are ignored.
#[test]
fn the_rest_of_an_upload_on_a_stream_is_refused_without_an_error() {
    let _slot = shared_slot();
    let origin = Origin::start();
    let daemon = start(&origin, &["-p", "feature=+http2"]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("it serves");
    let mut streams = Vec::new();
    for _ in 0..3 {
        let stream = client.new_stream();
        let request = block("POST", "/refuse", &[]);
        client.send(kind::HEADERS, END_HEADERS, stream, &request).expect("it can be sent");
        client.send(kind::DATA, 0, stream, b"begin").expect("it can be sent");
        let response = client.response(stream).expect("a response");
        assert_eq!(response, (Some(413), b"too large".to_vec()));
        let reset = loop {
            let frame = client.frame().expect("the connection is open");
            if frame.stream == stream {
                break frame;
            }
        };
        // NO_ERROR
        assert_eq!((reset.kind, &reset.payload[..]), (kind::RST_STREAM, &[0; 4][..]), "{reset:?}");
        streams.push(stream);
    }
    for stream in &streams {
        client.send(kind::DATA, 0, *stream, b"rest").expect("it can be sent");
        // `a: b` without an index.
        let trailers = [0, 1, b'a', 1, b'b'];
        client.send(kind::HEADERS, END_HEADERS | END_STREAM, *stream, &trailers).expect("it can be sent");
    }
    let next = client.get("/").expect("it can be sent");
    loop {
        let frame = client.frame().expect("the connection is open");
        assert!(!matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY), "{frame:?}");
        if frame.stream == next && frame.flags & END_STREAM != 0 {
            break;
        }
    }
}
