//! Requests whose end is ambiguous. Each is refused and its connection is closed; neither the request nor bytes hidden
//! after it reach the origin.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, until, vcl};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::recorder::{Recorder, ok};
use lacquer_testing::slots::shared_slot;

/// A request that is hidden after each of them. It must not reach the origin.
const HIDDEN: &str = "GET /100/private/hidden HTTP/1.1\r\nHost: robust\r\n\r\n";

const POST: &str = "POST / HTTP/1.1\r\nHost: robust\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: robust\r\nTransfer-Encoding: chunked\r\n";

/// Header lines that cause a refusal, after the first line and Host.
const HEADERS: [(&str, &str); 47] = [
    ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n"),
    ("two equal lengths", "Content-Length: 5\r\nContent-Length: 5\r\n"),
    ("a list of lengths", "Content-Length: 5, 6\r\n"),
    ("a signed length", "Content-Length: +5\r\n"),
    ("a negative length", "Content-Length: -5\r\n"),
    ("a length in hex", "Content-Length: 0x5\r\n"),
    ("a length with a blank", "Content-Length: 1 5\r\n"),
    ("a length with a letter", "Content-Length: 5a\r\n"),
    ("an empty length", "Content-Length:\r\n"),
    ("a length beyond numbers", "Content-Length: 18446744073709551621\r\n"),
    ("length and chunks", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
    ("chunks and length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
    ("chunks twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    ("chunks in chunks", "Transfer-Encoding: chunked, chunked\r\n"),
    ("chunks not last", "Transfer-Encoding: chunked, identity\r\n"),
    ("chunks after something", "Transfer-Encoding: gzip, chunked\r\n"),
    ("an unknown coding", "Transfer-Encoding: xchunked\r\n"),
    ("a quoted coding", "Transfer-Encoding: \"chunked\"\r\n"),
    ("an empty coding", "Transfer-Encoding:\r\n"),
    ("a vertical tab in the coding", "Transfer-Encoding: \x0bchunked\r\n"),
    ("a blank before the colon", "Content-Length : 5\r\n"),
    ("a tab before the colon", "Transfer-Encoding\t: chunked\r\n"),
    ("a blank within the name", "Transfer Encoding: chunked\r\n"),
    ("no colon", "Transfer-Encoding\r\n"),
    ("no name", ": chunked\r\n"),
    ("a NUL in the value", "X-Nul: a\0b\r\n"),
    ("a NUL in the name", "X-N\0l: a\r\n"),
    ("a bare CR in the value", "X-Cr: a\rTransfer-Encoding: chunked\r\n"),
    ("a bare CR before the line's end", "X-Cr: a\r\r\n"),
    ("a second Host", "Host: other\r\n"),
    ("the same Host twice", "Host: robust\r\n"),
    ("a list with an empty coding", "Transfer-Encoding: chunked,\r\n"),
    ("an empty coding first", "Transfer-Encoding: ,chunked\r\n"),
    ("a coding with a parameter", "Transfer-Encoding: chunked;q=1\r\n"),
    ("identity and chunks", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"),
    ("chunks and nonsense", "Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n"),
    ("a form feed before the coding", "Transfer-Encoding: \x0cchunked\r\n"),
    ("a vertical tab after the coding", "Transfer-Encoding: chunked\x0b\r\n"),
    ("more after a folded coding", "Transfer-Encoding: chunked\r\n identity\r\n"),
    ("a coding with a letter that only looks like k", "Transfer-Encoding: chun\u{212a}ed\r\n"),
    ("length and identity", "Content-Length: 5\r\nTransfer-Encoding: identity\r\n"),
    ("a length of zero and chunks", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n"),
    ("a quoted length", "Content-Length: \"5\"\r\n"),
    ("a length with a fraction", "Content-Length: 5.0\r\n"),
    ("a length with an underscore", "Content-Length: 1_5\r\n"),
    ("a length in two lines", "Content-Length: 1\r\n 5\r\n"),
    ("a letter beyond ASCII in the name", "X-\u{e9}: a\r\n"),
];

/// First lines that cause a refusal, before the Host line.
const FIRST_LINES: [(&str, &str); 17] = [
    ("no version", "GET /\r\n"),
    ("an unknown version", "GET / HTTP/1.2\r\n"),
    ("version 2", "GET / HTTP/2.0\r\n"),
    ("more than a version", "GET / HTTP/1.1 HTTP/1.1\r\n"),
    ("a blank in the target", "GET /a b HTTP/1.1\r\n"),
    ("a control character in the target", "GET /a\x01b HTTP/1.1\r\n"),
    ("a bare CR", "GET /\rHost: a HTTP/1.1\r\n"),
    ("nothing but a name", "GET\r\n"),
    ("version 1.10", "GET / HTTP/1.10\r\n"),
    ("version 0.9", "GET / HTTP/0.9\r\n"),
    ("a version without a number", "GET / HTTP/\r\n"),
    ("a comma in the version", "GET / HTTP/1,1\r\n"),
    ("another protocol", "GET / XTTP/1.1\r\n"),
    ("a tab after the method", "GET /\tHTTP/1.1\r\n"),
    ("a vertical tab after the method", "GET\x0b/ HTTP/1.1\r\n"),
    ("a NUL in the method", "G\0T / HTTP/1.1\r\n"),
    ("a NUL in the target", "GET /\0 HTTP/1.1\r\n"),
];

/// Malformed chunked bodies. Their heads are correct and may reach the origin; the request hidden after them may not.
const CHUNKS: [(&str, &str); 27] = [
    ("a size that is none", "z\r\nabc\r\n0\r\n\r\n"),
    ("a signed size", "+3\r\nabc\r\n0\r\n\r\n"),
    ("a negative size", "-3\r\nabc\r\n0\r\n\r\n"),
    ("a size as C writes it", "0x3\r\nabc\r\n0\r\n\r\n"),
    ("a size beyond numbers", "10000000000000003\r\nabc\r\n0\r\n\r\n"),
    ("an empty size", "\r\nabc\r\n0\r\n\r\n"),
    ("a chunk longer than its size", "3\r\nabcdef\r\n0\r\n\r\n"),
    ("a chunk without its end", "3\r\nabc0\r\n\r\n"),
    ("a bare CR after the size", "3\rabc\r\n0\r\n\r\n"),
    ("a NUL in the size", "3\0\r\nabc\r\n0\r\n\r\n"),
    ("a minus zero", "-0\r\n\r\n"),
    ("an extension", "3;name=value\r\nabc\r\n0\r\n\r\n"),
    ("an extension with a bare LF", "3;\nabc\r\n0\r\n\r\n"),
    ("a trailer", "3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n"),
    ("a blank before the size", " 3\r\nabc\r\n0\r\n\r\n"),
    ("a line end before the size", "\r\n3\r\nabc\r\n0\r\n\r\n"),
    ("a line end too many", "3\r\nabc\r\n\r\n0\r\n\r\n"),
    ("other letters as the end of a chunk", "3\r\nabcXX0\r\n\r\n"),
    ("an extension with a line in quotes", "3;a=\"\r\n\"\r\nabc\r\n0\r\n\r\n"),
    ("an extension of the last chunk", "3\r\nabc\r\n0;a\r\n\r\n"),
    ("a letter after a CR", "3\rX\nabc\r\n0\r\n\r\n"),
    ("two CR after the size", "3\r\r\nabc\r\n0\r\n\r\n"),
    ("nothing but CR", "3\rabc\r0\r\r"),
    ("a size that is negative as a word", "ffffffffffffffff\r\nabc\r\n0\r\n\r\n"),
    ("a size with an underscore", "0_3\r\nabc\r\n0\r\n\r\n"),
    ("a digit beyond ASCII", "\u{663}\r\nabc\r\n0\r\n\r\n"),
    ("no last line end", "3\r\nabc\r\n0\r\n"),
];

/// Requests that are served although other servers might read them differently: the forwarded request has one meaning.
/// Name, request, the parts that the origin must receive, and those that it must not receive.
const HARMLESS: [(&str, &str, &[&str], &[&str]); 7] = [
    (
        "folded lines",
        "GET /folded HTTP/1.1\r\nHost: a\r\nX-Fold: one\r\n two\r\n\tTransfer-Encoding: chunked\r\n\r\n",
        &["\r\nX-Fold: one   two   Transfer-Encoding: chunked\r\n"],
        &["\r\nTransfer-Encoding", "\r\n ", "\t"],
    ),
    (
        "a folded coding",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        &["\r\nTransfer-Encoding: chunked\r\n", "\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
        &["Content-Length"],
    ),
    (
        "lines that end in a bare LF",
        "GET /lines HTTP/1.1\nHost: a\nX-A: b\n\n",
        &["GET /lines HTTP/1.1\r\n", "\r\nHost: a\r\n", "\r\nX-A: b\r\n"],
        &["[^\r]\n"],
    ),
    (
        "a length that a connection header takes away",
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: Transfer-Encoding\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        &["\r\nTransfer-Encoding: chunked\r\n", "\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
        &["Connection"],
    ),
    (
        "a body that its method does not have",
        "GET /method HTTP/1.1\r\nHost: a\r\nContent-Length: 26\r\n\r\nGET /hidden HTTP/1.1\r\nA: b\r\n",
        &["GET /method HTTP/1.1\r\n"],
        &["hidden", "Content-Length"],
    ),
    (
        "a coding in other letters",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: cHuNkEd\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        &["\r\nTransfer-Encoding: chunked\r\n"],
        &["cHuNkEd"],
    ),
    (
        "another host in the target",
        "GET http://a/target HTTP/1.1\r\nHost: b\r\n\r\n",
        &["GET /target HTTP/1.1\r\n", "\r\nHost: a\r\n"],
        &["Host: b"],
    ),
];

/// Sends a request and the hidden one. Returns all bytes until the connection is closed, or `None` if it stays open.
///
/// The hidden request is sent at once, and again later, for a server that treats every read as a message.
fn exchange(daemon: &Daemon, request: &str) -> Option<String> {
    let mut stream = daemon.connect();
    stream.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
    stream.write_all(format!("{request}{HIDDEN}").as_bytes()).expect("requests can be sent");
    std::thread::sleep(Duration::from_millis(20));
    let _ = stream.write_all(HIDDEN.as_bytes());
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return None,
            // The connection was closed while bytes were in transit.
            Err(_) => break,
        }
    }
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// Reads a request until no more bytes arrive, then sends a response. Returns the request.
fn receive(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).expect("sockets can be non-blocking");
    let mut arrived = None;
    until(|| {
        arrived = listener.accept().ok();
        arrived.is_some()
    });
    let Some((mut stream, _)) = arrived else { return "nothing".to_owned() };
    stream.set_nonblocking(false).expect("sockets can be blocking");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("sockets have timeouts");
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(n) = stream.read(&mut piece)
        && n > 0
    {
        got.extend_from_slice(&piece[..n]);
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    String::from_utf8_lossy(&got).into_owned()
}

#[test]
fn accepted_requests_have_one_meaning_for_the_origin() {
    let _slot = shared_slot();
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let daemon = Daemon::start(&vcl(address, ""), &["-s", "malloc,32M"]);
    let mut faults = Vec::new();
    for (name, request, wanted, unwanted) in HARMLESS {
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        client.send(request).expect("requests can be sent");
        let got = receive(&listener);
        let has = |text: &&str| match text.strip_prefix("[^\r]") {
            Some(text) => got.matches(text).count() > got.matches(&format!("\r{text}")).count(),
            None => got.contains(*text),
        };
        if !wanted.iter().all(has) || unwanted.iter().any(has) {
            faults.push(format!("{name}: {got:?}"));
        }
        match client.response() {
            Ok(answer) if answer.status == 200 => {}
            other => faults.push(format!("{name}: {other:?}")),
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Starts a daemon with an origin that counts the hidden requests which reach it.
fn start() -> (Origin, Daemon, Arc<AtomicUsize>) {
    let hidden = Arc::new(AtomicUsize::new(0));
    let count = hidden.clone();
    let origin = Origin::start(move |path, stream| {
        count.fetch_add(usize::from(path.contains("hidden")), Ordering::SeqCst);
        sized(path, stream)
    });
    let subs = "sub vcl_recv { if (req.url ~ \"hidden\") { return (pass); } }";
    // Longer than the test waits, so that a connection that stays open is not mistaken for a closed one.
    let options = ["-s", "malloc,32M", "-p", "timeout_idle=60"];
    let daemon = Daemon::start(&vcl(origin.address, subs), &options);
    (origin, daemon, hidden)
}

#[test]
fn ambiguous_heads_are_refused() {
    let _slot = shared_slot();
    let (origin, daemon, _) = start();
    let mut faults = Vec::new();
    let headers = HEADERS.iter().map(|(name, text)| (name, format!("{POST}{text}\r\n0\r\n\r\n")));
    let lines = FIRST_LINES.iter().map(|(name, text)| (name, format!("{text}Host: robust\r\n\r\n")));
    for (name, request) in headers.chain(lines) {
        let before = origin.requests();
        let answer = exchange(&daemon, &request);
        let answers = answer.as_deref().map(|text| text.matches("HTTP/1.1 ").count());
        let status = answer.as_deref().and_then(|text| text.get(9..12)).unwrap_or("none").to_owned();
        if answers != Some(1) || !matches!(&*status, "400" | "501" | "505") || origin.requests() != before {
            let reached = origin.requests() - before;
            faults
                .push(format!("{name}: status {status}, {answers:?} answers, {reached} reached the origin"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert_eq!(get(daemon.address, "/100/kept/a").expect("a response arrives").status, 200);
}

#[test]
fn broken_chunks_hide_no_request() {
    let _slot = shared_slot();
    let (origin, daemon, hidden) = start();
    let mut faults = Vec::new();
    for (name, body) in CHUNKS {
        let answer = exchange(&daemon, &format!("{CHUNKED}\r\n{body}"));
        let answers = answer.as_deref().map(|text| text.matches("HTTP/1.1 ").count());
        let good = answer.as_deref().is_some_and(|text| text.contains(" 200 OK"));
        let hidden = hidden.load(Ordering::SeqCst);
        if answers.is_none_or(|n| n > 1) || good || hidden > 0 {
            faults.push(format!("{name}: {answers:?} answers, good: {good}, {hidden} hidden ones so far"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    // Only heads reached the origin, each with a body that is recognizably incomplete.
    assert!(origin.requests() <= CHUNKS.len(), "{} requests reached the origin", origin.requests());
    assert_eq!(get(daemon.address, "/100/kept/a").expect("a response arrives").status, 200);
}

/// Responses that other servers might read differently: name, bytes from the origin, and the body that the client
/// receives. `None` stands for an error generated by the daemon, or a body that ends early.
const RESPONSES: [(&str, &str, Option<&str>); 14] = [
    ("a length", "Content-Length: 4\r\n\r\nbody", Some("body")),
    ("a length with zeros", "Content-Length: 0004\r\n\r\nbody", Some("body")),
    ("a length twice", "Content-Length: 4\r\nContent-Length: 4\r\n\r\nbody", Some("body")),
    ("chunks", "Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", Some("body")),
    (
        "chunks twice",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        Some("body"),
    ),
    ("a folded line", "X-Fold: a\r\n Content-Length: 9\r\nContent-Length: 4\r\n\r\nbody", Some("body")),
    ("until the end", "Connection: close\r\n\r\nbody", Some("body")),
    ("two lengths", "Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody", None),
    (
        "length and chunks",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        None,
    ),
    ("chunks that end in LF", "Transfer-Encoding: chunked\r\n\r\n4\nbody\n0\n\n", Some("body")),
    ("an extension with a bare CR", "Transfer-Encoding: chunked\r\n\r\n4;\rx\r\nbody\r\n0\r\n\r\n", None),
    ("a line end in a value", "X-Split: a\rX-Injected: 1\r\nContent-Length: 4\r\n\r\nbody", None),
    ("a NUL in a value", "X-Nul: a\0b\r\nContent-Length: 4\r\n\r\nbody", None),
    ("a chunk too long", "Transfer-Encoding: chunked\r\n\r\n2\r\nbody\r\n0\r\n\r\n", None),
];

/// A response reaches the client with one meaning, byte for byte, or as a failure.
#[test]
fn responses_have_one_meaning_for_the_client() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let number = path.trim_start_matches('/').parse::<usize>();
        let (_, answer, _) = RESPONSES[number.unwrap_or_default()];
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{answer}").as_bytes());
        false
    });
    let daemon = Daemon::start(&vcl(origin.address, "sub vcl_recv { return (pass); }"), &[]);
    let mut faults = Vec::new();
    for (number, (name, _, expected)) in RESPONSES.iter().enumerate() {
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        let answer = client.get(&format!("/{number}"));
        let good = match (&answer, expected) {
            (Ok(answer), Some(body)) => {
                let lengths = answer.head.lines().filter(|line| line.starts_with("Content-Length:")).count();
                let canonical = lengths == 0 || answer.header("Content-Length") == Some("4");
                answer.status == 200 && answer.body == body.as_bytes() && lengths < 2 && canonical
            }
            (Ok(answer), None) => answer.status == 503 && !answer.head.contains("X-Injected"),
            (Err(_), None) => true,
            (Err(_), Some(_)) => false,
        };
        if !good {
            faults.push(format!("{name}: {answer:?}"));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// A connection that begins with a PROXY header belongs to one client: a backend with such a header never uses an idle
/// connection of another backend at the same address, and no other backend uses its connections.
#[test]
fn connections_with_a_proxy_header_are_not_shared() {
    let _slot = shared_slot();
    let origin = Recorder::start(|_| ok("fine"));
    let address = origin.address;
    let subs = format!(
        "backend named {{ .host = \"{}\"; .port = \"{}\"; .proxy_header = 1; }}
        sub vcl_recv {{
            if (req.url == \"/named\") {{ set req.backend_hint = named; }}
            return (pass);
        }}",
        address.ip(),
        address.port()
    );
    let daemon = Daemon::start(&vcl(address, &subs), &[]);
    for path in ["/plain", "/named", "/plain", "/named", "/named", "/plain"] {
        assert_eq!(get(daemon.address, path).expect("a response arrives").status, 200);
        // By then an idle connection has proven that it can be reused.
        std::thread::sleep(Duration::from_millis(80));
    }
    let heads = origin.take();
    assert_eq!(heads.len(), 6);
    for head in heads {
        assert_eq!(head.starts_with("PROXY "), head.contains("GET /named "), "{head:?}");
    }
}
