//! Origins that are dead or slow, send wrong lengths, close early or send garbage. The client gets a 503 or a response
//! that ends early, and the next client gets the response of the recovered origin.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::{in_parallel, shared_slot};

/// The result of a broken response for the client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gets {
    /// A 503 that the cache generates.
    Error,
    /// The head, then a premature end.
    Truncated,
    /// Either, because the fault may be detected before the head is sent.
    Any,
}

const OK: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n";

/// The path, the bytes that follow the head `OK` (or replace it, with a leading `!`) before the connection is closed,
/// and the result.
const ANSWERS: [(&str, &str, Gets); 49] = [
    ("/nothing", "!", Gets::Error),
    ("/half-a-line", "!HTTP/1.1 20", Gets::Error),
    ("/half-a-head", "X-More: to", Gets::Error),
    ("/garbage", "!\u{1}\u{2}garbage\r\n\r\n", Gets::Error),
    ("/binary-status", "!HTTP/1.1 2\u{7f}0 OK\r\n\r\n", Gets::Error),
    ("/no-status", "!HTTP/1.1\r\n\r\n", Gets::Error),
    ("/short-status", "!HTTP/1.1 20 OK\r\n\r\n", Gets::Error),
    ("/status-0", "!HTTP/1.1 099 OK\r\n\r\n", Gets::Error),
    ("/another-protocol", "!ICY 200 OK\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/nul-in-head", "X-Nul: a\0b\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/two-lengths", "Content-Length: 2\r\nContent-Length: 3\r\n\r\nnot", Gets::Error),
    ("/length-no-number", "Content-Length: 2x\r\n\r\nno", Gets::Error),
    ("/negative-length", "Content-Length: -2\r\n\r\nno", Gets::Error),
    ("/huge-length", "Content-Length: 99999999999999999999\r\n\r\nno", Gets::Error),
    (
        "/length-and-chunks",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        Gets::Error,
    ),
    ("/blank-before-colon", "Content-Length : 2\r\n\r\nno", Gets::Error),
    ("/blank-in-name", "Content Length: 2\r\n\r\nno", Gets::Error),
    ("/no-colon", "Content-Length\r\n\r\nno", Gets::Error),
    ("/bare-cr", "X-Cr: a\rContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/fold-before-headers", "!HTTP/1.1 200 OK\r\n Content-Length: 2\r\n\r\nno", Gets::Error),
    ("/list-of-lengths", "Content-Length: 2, 2\r\n\r\nno", Gets::Error),
    ("/chunks-twice", "Transfer-Encoding: chunked, chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", Gets::Error),
    ("/unknown-coding", "Transfer-Encoding: rot13\r\n\r\nno", Gets::Error),
    ("/closes-early", "Content-Length: 1000\r\n\r\nno", Gets::Any),
    ("/closes-before-body", "Content-Length: 1000\r\n\r\n", Gets::Any),
    ("/chunks-end-early", "Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n", Gets::Any),
    ("/chunk-ends-early", "Transfer-Encoding: chunked\r\n\r\nff\r\nno", Gets::Any),
    ("/chunk-size-no-number", "Transfer-Encoding: chunked\r\n\r\nz\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-size-huge", "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-longer-than-size", "Transfer-Encoding: chunked\r\n\r\n1\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-extension", "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-size-with-nul", "Transfer-Encoding: chunked\r\n\r\n2\0\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-size-signed", "Transfer-Encoding: chunked\r\n\r\n-2\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-without-its-end", "Transfer-Encoding: chunked\r\n\r\n2\r\nno0\r\n\r\n", Gets::Any),
    ("/line-end-before-chunk", "Transfer-Encoding: chunked\r\n\r\n\r\n2\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/line-end-between-chunks", "Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n\r\n0\r\n\r\n", Gets::Any),
    ("/chunk-line-ends-in-cr", "Transfer-Encoding: chunked\r\n\r\n2\rno\r0\r\r", Gets::Any),
    ("/chunk-size-as-in-c", "Transfer-Encoding: chunked\r\n\r\n0x2\r\nno\r\n0\r\n\r\n", Gets::Any),
    ("/trailer", "Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nX-A: b\r\n\r\n", Gets::Any),
    ("/no-last-line-end", "Transfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n", Gets::Any),
    (
        "/chunked-and-identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\nno",
        Gets::Error,
    ),
    ("/no-name", ": no\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/control-in-value", "X-A: \u{1}\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/bracket-in-name", "X(: a\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/status-1000", "!HTTP/1.1 1000 OK\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/status-signed", "!HTTP/1.1 +20 OK\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/cr-in-reason", "!HTTP/1.1 200 O\rK\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/version-0.9", "!HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\nno", Gets::Error),
    ("/no-version", "!<html>no</html>\r\n", Gets::Error),
];

/// Responses that violate the standard but have only one possible meaning; the body of each is "odd".
const ODD: [(&str, &str); 12] = [
    (
        "/coding-twice",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nodd\r\n0\r\n\r\n",
    ),
    ("/coding-in-capitals", "Transfer-Encoding: CHUNKED\r\n\r\n3\r\nodd\r\n0\r\n\r\n"),
    ("/blanks-around-size", "Transfer-Encoding: chunked\r\n\r\n 3   \r\nodd\r\n0\r\n\r\n"),
    ("/zeros-before-size", "Transfer-Encoding: chunked\r\n\r\n0000000000000003\r\nodd\r\n000\r\n\r\n"),
    ("/lf-after-chunks", "Transfer-Encoding: chunked\r\n\r\n3\nodd\n0\n\n"),
    ("/chunks-in-1.0", "!HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nodd\r\n0\r\n\r\n"),
    ("/length-twice", "Content-Length: 3\r\nContent-Length: 3\r\n\r\nodd"),
    ("/lf-in-head", "!HTTP/1.1 200 OK\nContent-Length: 3\n\nodd"),
    ("/no-reason", "!HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nodd"),
    ("/later-version", "!HTTP/1.9 200 OK\r\nContent-Length: 3\r\n\r\nodd"),
    ("/folded", "X-A: b\r\n c\r\nContent-Length: 3\r\n\r\nodd"),
    ("/until-the-end", "\r\nodd"),
];

/// Responses that are slow or never end.
const ENDLESS: [(&str, Gets); 6] = [
    ("/silent", Gets::Error),
    ("/pause-in-body", Gets::Truncated),
    ("/endless-headers", Gets::Error),
    ("/endless-header", Gets::Error),
    ("/endless-status", Gets::Error),
    ("/endless-chunk-size", Gets::Any),
];

fn fine(stream: &mut TcpStream) -> bool {
    let _ = stream.write_all(format!("{OK}Connection: close\r\nContent-Length: 4\r\n\r\nfine").as_bytes());
    false
}

fn repeat(stream: &mut TcpStream, first: &str, then: &str) {
    let mut result = stream.write_all(first.as_bytes());
    // Bounded, because a cache that continues to read is detected by the client's result.
    for _ in 0..100_000 {
        if result.is_err() {
            return;
        }
        result = stream.write_all(then.as_bytes());
    }
}

fn broken(path: &str, stream: &mut TcpStream) {
    match path {
        "/silent" => std::thread::sleep(Duration::from_secs(3)),
        "/pause-in-body" => {
            let _ = stream.write_all(format!("{OK}Content-Length: 8\r\n\r\nhalf").as_bytes());
            std::thread::sleep(Duration::from_secs(3));
            let _ = stream.write_all(b"rest");
        }
        "/endless-headers" => repeat(stream, OK, "X-More: and more\r\n"),
        "/endless-header" => repeat(stream, &format!("{OK}X-Long: "), "more and more and more and more"),
        "/endless-status" => repeat(stream, "HTTP/1.1 200 ", "more and more and more and more"),
        "/endless-chunk-size" => {
            repeat(stream, &format!("{OK}Transfer-Encoding: chunked\r\n\r\n"), "00000000");
        }
        _ => {
            let all = ANSWERS.iter().map(|(of, text, _)| (*of, *text)).chain(ODD);
            let text = all.into_iter().find(|(of, _)| *of == path).map_or("!", |(_, text)| text);
            let text = text.strip_prefix('!').map_or(format!("{OK}{text}"), str::to_owned);
            let _ = stream.write_all(text.as_bytes());
        }
    }
}

/// Starts an origin whose first response for a path is broken; all later ones are correct.
fn recovering() -> Origin {
    let seen = Mutex::new(HashSet::new());
    Origin::start(move |path, stream| {
        if !seen.lock().expect("no thread panics while it holds the lock").insert(path.to_owned()) {
            return fine(stream);
        }
        broken(path, stream);
        false
    })
}

#[test]
fn broken_responses_are_reported_and_not_cached() {
    let _slot = shared_slot();
    let origin = recovering();
    let options = ["-s", "malloc,32M", "-p", "first_byte_timeout=1", "-p", "between_bytes_timeout=1"];
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let worker = daemon.worker();
    let mut faults = Vec::new();
    for (path, may) in ANSWERS.iter().map(|(path, _, may)| (*path, *may)).chain(ENDLESS) {
        let got = match get(daemon.address, path) {
            Ok(answer) if answer.status == 503 => Gets::Error,
            Ok(answer) => {
                faults.push(format!("{path}: {} {:?}", answer.status, String::from_utf8_lossy(&answer.body)));
                continue;
            }
            Err(_) => Gets::Truncated,
        };
        if may != got && may != Gets::Any {
            faults.push(format!("{path}: {got:?} instead of {may:?}"));
        }
        match get(daemon.address, path) {
            Ok(answer) if answer.status == 200 && answer.body == b"fine" => {}
            other => faults.push(format!("{path}, again: {other:?}")),
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert_eq!(daemon.worker(), worker);
}

/// Promise: a client detects that a response is incomplete, even if the end of the connection is that of the response.
#[test]
fn an_incomplete_response_to_http10_ends_with_a_reset() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";
        let sent = stream.write_all(head.as_bytes());
        std::thread::sleep(Duration::from_millis(300));
        if path == "/whole" {
            return sent.and_then(|()| stream.write_all(b"0\r\n\r\n")).is_ok();
        }
        false
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M"]);
    for path in ["/whole", "/incomplete"] {
        let mut client = daemon.connect();
        client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
        let request = format!("GET {path} HTTP/1.0\r\nHost: robust\r\n\r\n");
        client.write_all(request.as_bytes()).expect("requests can be sent");
        let mut response = Vec::new();
        let end = client.read_to_end(&mut response).map_err(|error| error.kind());
        assert!(response.ends_with(b"one"), "{path}: {}", String::from_utf8_lossy(&response));
        assert_eq!(end.err(), (path == "/incomplete").then_some(ErrorKind::ConnectionReset), "{path}");
    }
}

#[test]
fn odd_responses_with_one_meaning_are_served() {
    let _slot = shared_slot();
    let origin = recovering();
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M"]);
    let mut faults = Vec::new();
    for (path, _) in ODD {
        match get(daemon.address, path) {
            Ok(answer) if answer.status == 200 && answer.body == b"odd" => {}
            other => faults.push(format!("{path}: {other:?}")),
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_dead_origin_is_a_503() {
    let _slot = shared_slot();
    let reserved = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = reserved.local_addr().expect("it is bound");
    drop(reserved);
    let daemon = Daemon::start(&vcl(address, ""), &["-s", "malloc,32M"]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for _ in 0..20 {
        assert_eq!(client.get("/").expect("a response arrives").status, 503);
    }
}

#[test]
fn surplus_bytes_are_not_a_response_to_another_request() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let surplus = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}{surplus}", path.len());
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let daemon =
        Daemon::start(&vcl(origin.address, "sub vcl_recv { return (pass); }"), &["-s", "malloc,32M"]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for number in 0..50 {
        let path = format!("/{number}");
        let answer = client.get(&path).expect("a response arrives");
        assert!(answer.status == 503 || answer.body == path.as_bytes(), "{path}: {answer:?}");
    }
}

/// Interim responses, and whether the final one after them is delivered.
const INTERIM: [(&str, &str, bool); 8] = [
    ("/continue", "HTTP/1.1 100 Continue\r\n\r\n", true),
    ("/processing", "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102\r\n\r\n", true),
    ("/hints", "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n", true),
    ("/unknown", "HTTP/1.1 199 Unknown\r\nContent-Length: 100\r\n\r\n", true),
    ("/line-ends", "\r\nHTTP/1.1 100 Continue\n\n\r\n", true),
    ("/switching", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n", false),
    ("/many", "many", false),
    ("/long", "long", false),
];

/// Interim responses are skipped, up to a limit; a 101 is not a response to a fetch.
#[test]
fn interim_responses_are_skipped() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let path = path.trim_end_matches("-apart");
        let interim = INTERIM.iter().find(|(of, ..)| *of == path).map_or("", |(_, text, _)| *text);
        let interim = match interim {
            "many" => "HTTP/1.1 100 Continue\r\n\r\n".repeat(100),
            "long" => format!("HTTP/1.1 100 Continue\r\nX-Long: {}\r\n\r\n", "x".repeat(7000)).repeat(6),
            text => text.to_owned(),
        };
        let answer = format!("{OK}Content-Length: {}\r\n\r\n{path}", path.len());
        for piece in [interim, answer] {
            if stream.write_all(piece.as_bytes()).is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        path != "/switching"
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M"]);
    for (path, _, is_delivered) in INTERIM {
        for _ in 0..2 {
            let answer = get(daemon.address, path).expect("a response arrives");
            let wanted: (u16, &[u8]) = if is_delivered { (200, path.as_bytes()) } else { (503, &[]) };
            assert_eq!(answer.status, wanted.0, "{path}: {answer:?}");
            assert!(!is_delivered || answer.body == wanted.1, "{path}: {answer:?}");
        }
    }
}

/// A response head that trickles has a time limit as a whole, however short its pauses are.
#[test]
fn a_trickling_head_ends() {
    let slot = shared_slot();
    let origin = Origin::start(|_, stream| {
        let pieces = OK.bytes().chain(b"X-Long: ".iter().copied()).chain(std::iter::repeat_n(b'x', 200));
        for byte in pieces {
            if stream.write_all(&[byte]).is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    });
    let limits = [
        ["-p", "first_byte_timeout=1", "-p", "between_bytes_timeout=1"],
        ["-p", "backend_head_timeout=2", "-p", "between_bytes_timeout=60"],
    ];
    in_parallel(&slot, limits, |limit| {
        let daemon = Daemon::start(&vcl(origin.address, ""), &[&["-s", "malloc,32M"], &limit[..]].concat());
        let asked = Instant::now();
        let answer = get(daemon.address, "/").expect("a response arrives");
        assert_eq!(answer.status, 503, "{limit:?}");
        let took = asked.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(5), "{limit:?}: {took:?}");
    });
}

/// Serves connections with a number of threads, each of which serves one connection until it is closed.
fn threads_per_connection(threads: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    for _ in 0..threads {
        let listener = listener.try_clone().expect("sockets can be cloned");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|n| n > 0) {
                    std::thread::sleep(Duration::from_millis(3));
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            }
        });
    }
    address
}

/// Returns VCL that passes all requests to a backend with these attributes.
pub fn passes_to(origin: SocketAddr, attributes: &str) -> String {
    format!(
        "backend other {{ .host = \"{}\"; .port = \"{}\"; {attributes} }}
        sub vcl_recv {{ set req.backend_hint = other; return (pass); }}",
        origin.ip(),
        origin.port()
    )
}

/// An origin with as many threads as there are clients serves all of them: connections that rest do not cause
/// additional connections, for which the origin has no thread.
#[test]
fn origins_with_few_threads_are_not_overrun() {
    let _slot = shared_slot();
    for declared in ["", ".max_connections = 4;"] {
        let origin = threads_per_connection(4);
        let daemon = Daemon::start(&vcl(origin, &passes_to(origin, declared)), &[]);
        let end = Instant::now() + Duration::from_secs(effort(4, 20));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let address = daemon.address;
                std::thread::spawn(move || {
                    let mut client = Client::connect(address).expect("connections are accepted");
                    let mut longest = Duration::ZERO;
                    while Instant::now() < end {
                        let asked = Instant::now();
                        assert_eq!(client.get("/").expect("a response arrives").status, 200);
                        longest = longest.max(asked.elapsed());
                    }
                    longest
                })
            })
            .collect();
        for client in clients {
            let longest = client.join().expect("every request gets a response");
            assert!(longest < Duration::from_secs(1), "{declared}: {longest:?}");
        }
    }
}
