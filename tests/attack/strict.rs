//! Requests and ranges that RFC 9110 and 9112 forbid or leave to the server. Each has one outcome, and the client
//! receives it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, MAX_WAIT, vcl};
use lacquer_testing::effort;
use lacquer_testing::h2::{self, H2Client, kind, put};
use lacquer_testing::machine::ticks;
use lacquer_testing::raw::exchange;
use lacquer_testing::recorder::{Gate, Recorder, ok};
use lacquer_testing::slots::shared_slot;

/// A head, and the first line that the origin receives or the status of the refusal.
const TARGETS: [(&str, Result<&str, u16>); 48] = [
    ("GET / HTTP/1.1\r\nHost: a\r\n", Ok("GET / HTTP/1.1")),
    ("GET /?q HTTP/1.1\r\nHost: a.example.:8080\r\n", Ok("GET /?q HTTP/1.1")),
    ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n", Ok("GET / HTTP/1.1")),
    ("GET / HTTP/1.1\r\nHost: under_score\r\n", Ok("GET / HTTP/1.1")),
    ("GET / HTTP/1.1\r\nHost:\r\n", Ok("GET / HTTP/1.1")),
    ("GET http://b/x HTTP/1.1\r\nHost: a\r\n", Ok("GET /x HTTP/1.1")),
    ("GET HTTP://b:80/x?y HTTP/1.1\r\nHost: a\r\n", Ok("GET /x?y HTTP/1.1")),
    ("OPTIONS * HTTP/1.1\r\nHost: a\r\n", Ok("OPTIONS * HTTP/1.1")),
    ("GET / HTTP/1.1\r\nHost: a b\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a/b\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: user@a\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: user:secret@a:80\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: http://a\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a?b\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a#b\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a\\b\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a:x\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a:80:80\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a:99999\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: :80\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: [::1\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: ::1\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: a%zz\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: <a>\r\n", Err(400)),
    ("GET / HTTP/1.1\r\nHost: b\u{fc}cher\r\n", Err(400)),
    ("GET http://b HTTP/1.1\r\nHost: a\r\n", Ok("GET / HTTP/1.1")),
    ("GET http://b?q HTTP/1.1\r\nHost: a\r\n", Ok("GET /?q HTTP/1.1")),
    ("GET https://b HTTP/1.1\r\nHost: a\r\n", Ok("GET / HTTP/1.1")),
    ("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n", Ok("OPTIONS * HTTP/1.1")),
    ("GET http:// HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET http://?q HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET http://b#f HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET http://user@b HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET http:///x HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET http://user@b/x HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET http://b:x/ HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET https://user@b/x HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET ftp://b/x HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET ?q HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET @b/x HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET :80/x HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET b:80 HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("GET * HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("CONNECT / HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n", Err(405)),
    ("G(T / HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("\"GET\" / HTTP/1.1\r\nHost: a\r\n", Err(400)),
    ("G\u{e9}T / HTTP/1.1\r\nHost: a\r\n", Err(400)),
];

/// A malformed host, method or target is refused and never reaches the origin.
#[test]
fn hosts_methods_and_targets_are_validated() {
    let _slot = shared_slot();
    let origin = Recorder::start(|_| ok("fine"));
    let daemon = Daemon::start(
        &vcl(origin.address, "sub vcl_recv { if (req.method == \"OPTIONS\") { return (pass); } }"),
        &[],
    );
    let mut faults = Vec::new();
    for (head, expected) in TARGETS {
        let request = format!("{head}Connection: close\r\nCache-Control: no-cache\r\nCookie: a=b\r\n\r\n");
        let answer = exchange(daemon.address, request.as_bytes(), false).expect("connections are accepted");
        let seen = origin.take();
        let good = match expected {
            Ok(line) => answer.status() == 200 && seen.len() == 1 && seen[0].lines().next() == Some(line),
            Err(status) => answer.status() == status && seen.is_empty(),
        };
        if !good || !answer.closed {
            faults.push(format!(
                "{head:?}: {} (closed {}), the origin saw {seen:?}",
                answer.status(),
                answer.closed
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// HTTP/2 requests follow the same rules: `:authority` is a host, `Host` agrees with it, and no field hides another.
#[test]
fn http2_requests_are_validated() {
    let _slot = shared_slot();
    let origin = Recorder::start(|_| ok("fine"));
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "feature=+http2"]);
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
    let accepted: [&[(&str, &str)]; 3] =
        [&[(":authority", "a:80")], &[(":authority", "a"), ("host", "A")], &[("host", "[::1]")]];
    for fields in accepted {
        let answer = h2::ask(daemon.address, &[&get[..], fields].concat()).expect("a response arrives");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"fine"[..]), "{fields:?}");
    }
    assert!(origin.take().iter().all(|request| request.matches("host:").count() == 1));
    let refused: [&[(&str, &str)]; 18] = [
        &[(":authority", "a b")],
        &[(":authority", "user@a")],
        &[(":authority", "a/b")],
        &[(":authority", "a"), ("host", "b")],
        &[("host", "a"), ("host", "a")],
        &[(":authority", "a"), (":authority", "a")],
        &[(":authority", "a\r\nX-Smuggled: 1")],
        &[(":authority", "a"), ("x", "b\r\nX-Smuggled: 1")],
        &[(":authority", "a"), ("x", "b\nX-Smuggled: 1")],
        &[(":authority", "a"), ("x", "b\0c")],
        &[(":authority", "a"), ("x-smuggled: 1\r\nx", "b")],
        &[(":authority", "a"), ("x:y", "b")],
        &[(":authority", "a"), ("X-Upper", "b")],
        &[(":authority", "a"), ("", "b")],
        &[(":authority", "a"), ("transfer-encoding", "chunked")],
        &[(":authority", "a"), ("connection", "x")],
        &[(":authority", "a"), (":protocol", "websocket")],
        &[(":authority", "a"), ("content-length", "1")],
    ];
    for fields in refused {
        let answer = h2::ask(daemon.address, &[&get[..], fields].concat());
        let good = answer.as_ref().is_ok_and(|a| a.status == 400 || a.reset.is_some_and(|error| error != 0));
        assert!(good && origin.take().is_empty(), "{fields:?}: {answer:?}");
    }
    for path in ["/\r\nX-Smuggled: 1", "/ HTTP/1.1\r\nHost: b", "/a b", "a", "", "http://b/", "?q", "*"] {
        let fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "a")];
        let answer = h2::ask(daemon.address, &fields);
        let good = answer.as_ref().is_ok_and(|a| a.status == 400 || a.reset.is_some_and(|error| error != 0));
        assert!(good && origin.take().is_empty(), "{path:?}: {answer:?}");
    }
    for method in ["G T", "GET / HTTP/1.1\r\nX: y", "", "G(T", "CONNECT"] {
        let fields = [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "a")];
        let answer = h2::ask(daemon.address, &fields);
        let good =
            answer.as_ref().is_ok_and(|a| matches!(a.status, 400 | 405) || a.reset.is_some_and(|e| e != 0));
        assert!(good && origin.take().is_empty(), "{method:?}: {answer:?}");
    }
    // An origin that ignores the body of a HEAD request would read it as the next request.
    let mut client = h2::H2Client::connect(daemon.address, &[]).expect("connections are accepted");
    let stream = client.new_stream();
    let head = h2::block("HEAD", "/", &[("content-length", "3")]);
    let sent = client.send(1, 4, stream, &head).and_then(|()| client.send(0, 1, stream, b"abc"));
    sent.expect("requests can be sent");
    let (status, _) = client.response(stream).expect("a response arrives");
    assert!(status == Some(400) && origin.take().is_empty(), "{status:?}");
    // The length is unknown until the stream ends.
    for (body, status, requests) in [("", 200, 1), ("a", 400, 0)] {
        let stream = client.new_stream();
        let head = h2::block("HEAD", "/head", &[]);
        client.send(kind::HEADERS, h2::END_HEADERS, stream, &head).expect("requests can be sent");
        thread::sleep(Duration::from_millis(20));
        client.send(kind::DATA, h2::END_STREAM, stream, body.as_bytes()).expect("requests can be sent");
        let answer = client.response(stream).expect("a response arrives").0;
        assert_eq!((answer, origin.take().len()), (Some(status), requests), "{body:?}");
    }
}

/// A request whose stream ends later than its head, without a body, reaches an origin of HTTP/1.1 without one.
#[test]
fn late_ends_of_streams_are_no_bodies() {
    let _slot = shared_slot();
    let gate = Gate::default();
    let origin = gate.origin();
    // The built-in VCL removes the body of a GET.
    let subs = "sub vcl_backend_fetch { return (fetch); } sub vcl_backend_response { return (pass(10s)); }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &["-p", "feature=+http2"]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("connections are accepted");
    // The second request waits for the response to the first, and is passed then.
    let first = client.get("/late").expect("it is sent");
    thread::sleep(Duration::from_millis(100));
    let second = client.new_stream();
    let head = h2::block("GET", "/late", &[]);
    client.send(kind::HEADERS, h2::END_HEADERS, second, &head).expect("it is sent");
    thread::sleep(Duration::from_millis(20));
    client.send(kind::DATA, h2::END_STREAM, second, b"").expect("it is sent");
    thread::sleep(Duration::from_millis(100));
    gate.open();
    for stream in [first, second] {
        assert_eq!(client.response(stream).expect("a response").0, Some(200));
    }
    let seen = origin.take();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|request| !request.contains("Transfer-Encoding")), "{seen:?}");
}

/// CONNECT opens a tunnel only if VCL pipes it, and is never handled like another request.
#[test]
fn connect_is_refused_unless_vcl_pipes_it() {
    let _slot = shared_slot();
    let request = b"CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\nConnection: close\r\n\r\n";
    for (action, status, reaches) in [("", 405, 0), ("pass", 405, 0), ("hash", 405, 0), ("pipe", 200, 1)] {
        let origin = Recorder::start(|_| {
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec()
        });
        let subs = match action {
            "" => String::new(),
            _ => format!("sub vcl_recv {{ return ({action}); }}"),
        };
        let daemon = Daemon::start(&vcl(origin.address, &subs), &[]);
        let answer = exchange(daemon.address, request, action == "pipe").expect("connections are accepted");
        assert_eq!((answer.status(), origin.take().len()), (status, reaches), "{action}: {}", answer.text());
    }
}

/// Over HTTP/2, where a pipe becomes a pass, CONNECT gets the same response, and other streams go on.
#[test]
fn connect_over_http2_is_refused_by_a_response() {
    let _slot = shared_slot();
    for action in ["hash", "pass", "pipe"] {
        let origin = Recorder::start(|_| ok("text"));
        let subs = format!(
            "sub vcl_recv {{ if (req.method == \"CONNECT\" && req.url == \"b:80\" && req.http.host == \"b:80\") {{ return ({action}); }} }}"
        );
        let daemon = Daemon::start(&vcl(origin.address, &subs), &["-p", "feature=+http2"]);
        let mut client = H2Client::connect(daemon.address, &[]).expect("connections are accepted");
        for (authority, flags, status) in [
            ("b:80", h2::END_HEADERS, Some(405)),
            ("b:80", h2::END_HEADERS | h2::END_STREAM, Some(405)),
            ("b", h2::END_HEADERS, None),
        ] {
            let stream = client.new_stream();
            client.send(kind::HEADERS, flags, stream, &h2::connect_block(authority)).expect("it is sent");
            assert_eq!(
                client.response(stream).expect("a response or a reset").0,
                status,
                "{action} {authority}"
            );
        }
        assert!(origin.take().is_empty(), "{action}");
        let stream = client.new_stream();
        client
            .send(kind::HEADERS, h2::END_HEADERS | h2::END_STREAM, stream, &h2::block("GET", "/", &[]))
            .expect("it is sent");
        assert_eq!(client.response(stream).expect("a response").0, Some(200), "{action}");
    }
}

/// A length is forwarded in canonical form, whether a client or an origin sent it.
#[test]
fn lengths_are_forwarded_in_canonical_form() {
    let _slot = shared_slot();
    let origin = Recorder::start(|request| {
        let length = if request.contains("/two") { "05\r\nContent-Length: 5" } else { "0005" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello").into_bytes()
    });
    let daemon =
        Daemon::start(&vcl(origin.address, "sub vcl_recv { return (pass); }"), &["-p", "feature=+http2"]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for path in ["/one", "/two"] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nworld");
        let answer = client.ask(&request).expect("a response arrives");
        let lengths: Vec<_> = answer.head.lines().filter(|line| line.starts_with("Content-Length")).collect();
        assert_eq!((lengths, &answer.body[..]), (vec!["Content-Length: 5"], &b"hello"[..]));
        let seen = origin.take();
        assert!(
            seen[0].contains("\r\nContent-Length: 5\r\n") && seen[0].ends_with("\r\n\r\nworld"),
            "{seen:?}"
        );
    }
}

fn letters(length: usize) -> String {
    (0..length).map(|i| char::from(b'a' + (i % 26) as u8)).collect()
}

/// Returns the parts of a multipart body: the range of each, and its bytes.
fn parts(head: &str, body: &[u8]) -> Vec<(String, String)> {
    let boundary = head.lines().find_map(|line| line.split_once("boundary=")).expect("there is a boundary").1;
    let text = String::from_utf8_lossy(body).into_owned();
    let delimiter = format!("--{}", boundary.trim());
    let mut pieces = text.split(&delimiter);
    assert_eq!(pieces.next(), Some(""));
    let mut found: Vec<_> = pieces.map(str::to_owned).collect();
    assert_eq!(found.pop().as_deref(), Some("--\r\n"));
    let part = |piece: String| {
        let (head, data) = piece.split_once("\r\n\r\n").expect("a part has a head");
        let range =
            head.lines().find_map(|line| line.strip_prefix("Content-Range: ")).expect("a part has a range");
        (range.to_owned(), data.strip_suffix("\r\n").expect("a part has an end").to_owned())
    };
    found.into_iter().map(part).collect()
}

/// Several ranges of a stored body are sent as multipart/byteranges. Too many are ignored and near ones are joined, so
/// that no request costs more than the whole body.
#[test]
fn several_ranges_are_bounded() {
    let _slot = shared_slot();
    let body = letters(100_000);
    let stored = body.clone();
    let origin = Recorder::start(move |_| {
        let head =
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nETag: \"e\"\r\nContent-Type: text/plain\r\n";
        format!("{head}Content-Length: {}\r\n\r\n{stored}", stored.len()).into_bytes()
    });
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "feature=+http2"]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    assert_eq!(client.get("/").expect("a response arrives").body, body.as_bytes());
    let mut ask = |range: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: robust\r\nRange: {range}\r\n\r\n");
        client.ask(&request).expect("every request gets a response")
    };
    for ranges in [&[(0, 9), (50_000, 99_999)][..], &[(90_000, 90_000), (0, 0), (300, 70_000)]] {
        let list: Vec<_> = ranges.iter().map(|(low, high)| format!("{low}-{high}")).collect();
        let answer = ask(&format!("bytes={}", list.join(", ")));
        assert_eq!((answer.status, answer.header("Content-Range")), (206, None));
        let expected = ranges
            .iter()
            .map(|&(low, high)| (format!("bytes {low}-{high}/100000"), body[low..=high].to_owned()));
        assert_eq!(parts(&answer.head, &answer.body), expected.collect::<Vec<_>>());
    }
    let joined = ask("bytes=0-10,5-20,21-30,40-50");
    assert_eq!((joined.status, joined.header("Content-Range")), (206, Some("bytes 0-50/100000")));
    let same = ask(&format!("bytes={}0-", "0-,".repeat(10)));
    assert_eq!((same.status, same.body.len()), (206, 100_000));
    let many: Vec<_> = (0..900).map(|i| format!("{0}-{0}", i * 2)).collect();
    let many = ask(&format!("bytes={}", many.join(",")));
    assert_eq!((many.status, many.body.len()), (200, 100_000));
    for (range, status) in [
        ("pages=1-2", 200),
        ("bytes=1-2,x", 416),
        ("bytes=200000-,300000-", 416),
        ("bytes=5-2", 416),
        ("bytes=99999999999999999999-", 416),
        ("bytes=-1,200000-", 206),
        ("bytes=0-1,9000-9001\r\nIf-Range: \"other\"", 200),
        ("bytes=0-1,9000-9001\r\nIf-Range: \"e\"", 206),
        ("bytes=0-1,9000-9001\r\nIf-Range: W/\"e\"", 200),
    ] {
        assert_eq!(ask(range).status, status, "{range}");
    }
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "robust"),
        ("range", "bytes=0-9,50000-50009"),
    ];
    let answer = h2::ask(daemon.address, &fields).expect("a response arrives");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 206 && text.contains(&body[50_000..=50_009]), "{answer:?}");
    assert!(text.ends_with("--\r\n"), "{text}");
    daemon.ok("param.set http_max_ranges 0");
    assert_eq!(ask("bytes=0-1,9000-9001").status, 416);
    assert_eq!(origin.take().len(), 1);
}

/// A refusal reaches a client that is still sending; the connection of one that never stops is closed soon.
#[test]
fn errors_reach_clients_that_are_still_sending() {
    let _slot = shared_slot();
    let origin = Recorder::start(|_| ok("fine"));
    let subs = "sub vcl_recv { return (synth(413)); }
        sub vcl_synth { set resp.http.Connection = \"close\"; }";
    let options = ["-p", "feature=+http2", "-p", "http_req_overflow_status=431"];
    let daemon = Daemon::start(&vcl(origin.address, subs), &options);
    let body = "x".repeat(effort(4_000_000, 12_000_000));
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {body}\r\n\r\n");
    let table = [
        ("a bad head", format!("GET / HTTP/1.1\r\nHost : a\r\n\r\n{body}"), 400),
        ("a bad host", format!("POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: 9\r\n\r\n{body}"), 400),
        ("an expectation", format!("POST / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n{body}"), 417),
        ("a large head", long, 431),
        (
            "a large body",
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            413,
        ),
    ];
    for _ in 0..effort(3, 100) {
        for (name, request, status) in &table {
            let answer =
                exchange(daemon.address, request.as_bytes(), false).expect("connections are accepted");
            assert_eq!((answer.status(), answer.closed), (*status, true), "{name}");
        }
    }
    // A malformed SETTINGS frame ends an HTTP/2 connection, whatever else is in progress.
    for _ in 0..effort(3, 100) {
        let mut client = H2Client::connect(daemon.address, &[]).expect("connections are accepted");
        let mut bytes = Vec::new();
        put(&mut bytes, kind::SETTINGS, 0, 0, b"odd");
        for _ in 0..200 {
            put(&mut bytes, kind::DATA, 0, 1, &[0; 16_000]);
        }
        let _ = client.send_bytes(&bytes);
        let answer = client.outcome().expect("GOAWAY arrives");
        assert!(answer.reset.is_some_and(|error| error != 0), "{answer:?}");
    }
    let begun = Instant::now();
    let mut stream = daemon.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n").expect("requests can be sent");
    while stream.write_all(b"more").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "the daemon still reads from the client");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// If a head exceeds a limit, the error page names the parameter that sets it.
#[test]
fn limits_are_named() {
    let _slot = shared_slot();
    let origin = Recorder::start(|request| {
        let line = if request.contains("/line") { 10_000 } else { 4_000 };
        let lines = if request.contains("/line") { 1 } else { 20 };
        let fields: Vec<_> = (0..lines).map(|i| format!("X-{i}: {}\r\n", "y".repeat(line))).collect();
        let head = fields.concat();
        format!("HTTP/1.1 200 OK\r\n{head}Content-Length: 0\r\n\r\n").into_bytes()
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &[]);
    for (path, parameter) in [("/line", "http_resp_hdr_len"), ("/head", "http_resp_size")] {
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        let answer = client.get(path).expect("a response arrives");
        let page = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 503 && page.contains(parameter), "{path}: {page}");
    }
}

/// Chunks of one byte cost at most half a microsecond each, in requests and in responses.
#[test]
fn tiny_chunks_are_cheap() {
    let count = effort(400_000, 2_000_000);
    let chunks = "1\r\nx\r\n".repeat(count) + "0\r\n\r\n";
    let response = chunks.clone();
    let origin = Recorder::start(move |request| {
        if request.starts_with("POST") {
            return ok("fine");
        }
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{response}").into_bytes()
    });
    let subs = "sub vcl_recv { return (pass); }";
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &["-s", "malloc,64M"]);
    let worker = daemon.worker();
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for request in [
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ] {
        let before = ticks(worker);
        let answer = client.ask(&request).expect("a response arrives");
        let spent = Duration::from_millis(10 * (ticks(worker) - before));
        assert!(answer.status == 200 && (answer.body == b"fine" || answer.body.len() == count));
        eprintln!("{count} chunks of one byte took {spent:?}");
        assert!(spent <= Duration::from_nanos(500) * count as u32 + Duration::from_millis(20), "{spent:?}");
    }
}

/// A head and a body that arrive a byte at a time are read as if they arrived at once.
#[test]
fn messages_in_single_bytes_are_read() {
    let _slot = shared_slot();
    let origin = Recorder::start(|_| ok("fine"));
    let daemon = Daemon::start(&vcl(origin.address, ""), &[]);
    let mut stream: TcpStream = daemon.connect();
    stream.set_nodelay(true).expect("sockets have options");
    stream.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
    let request = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
    for byte in request.as_bytes() {
        stream.write_all(&[*byte]).expect("requests can be sent");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a response arrives");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nfine"), "{answer}");
    let seen = origin.take().concat();
    let data: String = seen.split_once("\r\n\r\n").expect("a head").1.lines().skip(1).step_by(2).collect();
    assert!(data == "abc0123456789abcdef" || data.len() == 19, "{seen}");
}
