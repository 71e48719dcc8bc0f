//! Clients that send requests in the first flight of a resumed session (0-RTT). Nobody can have one executed twice, one
//! with effects waits for the end of the handshake, and a handshake that stays open ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::daemon::until;
use lacquer_testing::h2::{END_HEADERS, END_STREAM, PREFACE, block, kind, put};
use lacquer_testing::slots::shared_slot;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::tls::{Served, closed, connect, start_with, trusted};

/// The response to an early request has `X-Early: 1`. Requests reach the origin unless the path is `/100`.
const SUBS: &str = "
sub vcl_recv { if (req.url != \"/100\") { return (pass); } }
sub vcl_backend_response {
    if (bereq.http.Early-Data) { set beresp.http.X-Origin-Early = bereq.http.Early-Data; }
}
sub vcl_deliver {
    if (req.http.Early-Data) { set resp.http.X-Early = req.http.Early-Data; }
}
";

/// The most bytes of early data.
const MOST: usize = 16 * 1024;

/// A client of this daemon that keeps sessions.
struct Client<'s> {
    served: &'s Served,
    config: Arc<ClientConfig>,
}

/// A connection of a client, whose bytes are moved one way at a time.
struct Exchange {
    tls: ClientConnection,
    socket: TcpStream,
}

fn serve(options: &[&str]) -> Served {
    serve_with("", options)
}

/// Starts a daemon with further subroutines, which come first.
fn serve_with(subs: &str, options: &[&str]) -> Served {
    let subs = format!("{subs}{SUBS}");
    start_with(&subs, "", &[&["-p", "tls_early_data=on", "-p", "reactors=2"], options].concat())
}

/// An origin that refuses early data, and all requests for `/always`.
struct Wary {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Wary {
    fn start() -> Wary {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let shared = heads.clone();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let heads = shared.clone();
                thread::spawn(move || {
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while stream.read(&mut byte).is_ok_and(|n| n > 0) {
                        head.push(byte[0]);
                        if !head.ends_with(b"\r\n\r\n") {
                            continue;
                        }
                        let text = String::from_utf8_lossy(&head).into_owned();
                        head.clear();
                        let is_early = text.contains("Early-Data") || text.contains("/always");
                        let (status, body) = if text.starts_with("GET /always/page ") {
                            ("200 OK", "<i>first</i><esi:include src=\"/wary/fragment\"/>")
                        } else if is_early {
                            ("425 Too Early", "too early")
                        } else {
                            ("200 OK", "served later")
                        };
                        heads.lock().expect("no panic").push(text);
                        let length = body.len();
                        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
                        let _ = stream.write_all(reply.as_bytes());
                    }
                });
            }
        });
        Wary { address, heads }
    }

    /// Returns a daemon that asks this origin for paths under `/wary`, which it may cache, and others.
    fn served(&self, options: &[&str]) -> Served {
        self.served_with("", options)
    }

    /// Returns such a daemon with further subroutines.
    fn served_with(&self, subs: &str, options: &[&str]) -> Served {
        let (ip, port) = (self.address.ip(), self.address.port());
        let subs = format!(
            "backend wary {{ .host = \"{ip}\"; .port = \"{port}\"; }}\n{subs}\
             sub vcl_recv {{\n    if (req.url ~ \"^/(wary|always)\") {{ set req.backend_hint = wary; }}\n    \
             if (req.url ~ \"^/wary\") {{ return (hash); }}\n}}\n"
        );
        serve_with(&subs, options)
    }

    /// Returns the number of requests, and of those that were marked as early.
    fn requests(&self) -> (usize, usize) {
        let heads = self.heads.lock().expect("no panic");
        (heads.len(), heads.iter().filter(|head| head.contains("Early-Data: 1")).count())
    }
}

/// Returns the frames of a client of HTTP/2 that sends these requests without bodies.
fn frames(requests: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    put(&mut bytes, kind::SETTINGS, 0, 0, &[]);
    for (n, (method, path)) in requests.iter().enumerate() {
        let stream = 2 * n as u32 + 1;
        put(&mut bytes, kind::HEADERS, END_HEADERS | END_STREAM, stream, &block(method, path, &[]));
    }
    bytes
}

impl<'s> Client<'s> {
    /// Creates a client that has a session.
    fn new(served: &'s Served, protocol: &str) -> Client<'s> {
        let mut config = trusted().config.as_ref().clone();
        config.enable_early_data = true;
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        config.resumption = Resumption::in_memory_sessions(16);
        let client = Client { served, config: Arc::new(config) };
        client.renew();
        client
    }

    fn begin(&self) -> Exchange {
        let name = ServerName::try_from("example.test").expect("a name");
        let tls = ClientConnection::new(self.config.clone(), name).expect("a configuration");
        Exchange { tls, socket: connect(self.served.address) }
    }

    /// Gets a session by a connection without early data.
    fn renew(&self) {
        let mut exchange = self.begin();
        while exchange.tls.is_handshaking() {
            exchange.send();
            assert!(exchange.receive());
        }
        exchange.send();
        // The session comes with the first bytes after the handshake.
        if self.config.alpn_protocols[0] == b"http/1.1" {
            exchange.ask("GET /100 HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(exchange.text_until("xx\u{0}").starts_with("HTTP/1.1 200"));
        } else {
            exchange.ask_bytes(PREFACE);
            assert!(exchange.receive());
        }
        exchange.tls.send_close_notify();
        exchange.send();
    }

    /// Begins a connection whose first flight contains these bytes. Returns it with the flight, which was sent.
    fn early(&self, bytes: &[u8]) -> (Exchange, Vec<u8>) {
        let mut exchange = self.begin();
        let mut early = exchange.tls.early_data().expect("a session with early data");
        assert_eq!(early.bytes_left(), MOST);
        early.write_all(bytes).expect("memory");
        let mut flight = Vec::new();
        while exchange.tls.wants_write() {
            exchange.tls.write_tls(&mut flight).expect("memory");
        }
        exchange.socket.write_all(&flight).expect("it reads");
        (exchange, flight)
    }
}

impl Exchange {
    /// Sends what TLS has to send.
    fn send(&mut self) {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).expect("it reads");
        }
    }

    /// Receives some bytes. Returns false at their end.
    fn receive(&mut self) -> bool {
        let read = self.tls.read_tls(&mut self.socket).expect("it answers");
        self.tls.process_new_packets().expect("valid records");
        read > 0
    }

    fn ask_bytes(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).expect("memory");
        self.send();
    }

    fn ask(&mut self, request: &str) {
        self.ask_bytes(request.as_bytes());
    }

    /// Returns the data that has arrived, and receives until it has this text. A text that ends with NUL is the end of
    /// the data.
    fn text_until(&mut self, wanted: &str) -> String {
        let mut all = Vec::new();
        loop {
            let mut piece = [0; 4096];
            match self.tls.reader().read(&mut piece) {
                Ok(n) if n > 0 => all.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() != ErrorKind::WouldBlock => panic!("{e}"),
                _ => {}
            }
            let text = String::from_utf8_lossy(&all).into_owned();
            let is_there = match wanted.strip_suffix('\u{0}') {
                Some(end) => text.ends_with(end),
                None => text.contains(wanted),
            };
            if is_there {
                return text;
            }
            assert!(self.receive(), "it has closed the connection after {text:?}");
        }
    }

    /// Completes the handshake.
    fn complete(&mut self) {
        self.send();
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
}

/// An early GET is answered before the handshake ends, and marked for VCL and the origin. Its flight is of no use to
/// anybody else, on any reactor.
#[test]
fn an_early_request_is_executed_once() {
    let _slot = shared_slot();
    let served = serve(&[]);
    let client = Client::new(&served, "http/1.1");
    let before = served.origin.requests();
    let (mut exchange, flight) = client.early(get("/7").as_bytes());
    let response = exchange.text_until("xxxxxxx\u{0}");
    assert!(response.contains("X-Early: 1") && response.contains("X-Origin-Early: 1"), "{response}");
    assert!(exchange.tls.is_early_data_accepted());
    assert_eq!(served.origin.requests(), before + 1);
    for _ in 0..6 {
        let mut socket = connect(served.address);
        socket.write_all(&flight).expect("it reads");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let mut piece = [0; 4096];
        while socket.read(&mut piece).is_ok_and(|n| n > 0) {}
    }
    assert_eq!(served.origin.requests(), before + 1, "a repetition reached the origin");
    exchange.complete();
    exchange.ask(&get("/8"));
    let response = exchange.text_until("xxxxxxxx\u{0}");
    assert!(!response.contains("Early"), "{response}");
    // A second use of the session by its own client is a full handshake.
    let (mut again, _) = client.early(get("/100").as_bytes());
    assert!(again.text_until("xx\u{0}").contains("X-Early: 1"));
    served.serves();
}

/// Requests with effects wait for the end of the handshake, which proves that the client is there.
#[test]
fn an_early_request_with_effects_waits() {
    let _slot = shared_slot();
    let served = serve(&[]);
    for method in ["POST", "DELETE", "PURGE", "get"] {
        let client = Client::new(&served, "http/1.1");
        let before = served.origin.requests();
        let request = post("/7").replace("POST", method);
        let (mut exchange, _) = client.early(request.as_bytes());
        thread::sleep(Duration::from_millis(200));
        assert_eq!(served.origin.requests(), before, "{method}");
        assert!(exchange.receive());
        exchange.complete();
        let response = exchange.text_until("xxxxxxx\u{0}");
        assert!(response.starts_with("HTTP/1.1 200") && !response.contains("Early"), "{response}");
        assert_eq!(served.origin.requests(), before + 1, "{method}");
    }
    served.serves();
}

/// A client that never completes its handshake is told so, and its connection ends. Nothing was executed.
#[test]
fn a_handshake_with_early_data_that_stays_open_ends() {
    let _slot = shared_slot();
    let served = serve(&["-p", "tls_handshake_timeout=1", "-p", "timeout_idle=1"]);
    for request in [post("/7"), get("/100"), "GET /100 HTTP/1.1\r\n".to_owned()] {
        let client = Client::new(&served, "http/1.1");
        let before = served.origin.requests();
        let begun = Instant::now();
        let (mut exchange, _) = client.early(request.as_bytes());
        if request.starts_with("POST") {
            let response = exchange.text_until("\r\n\r\n");
            assert!(response.starts_with("HTTP/1.1 425 Too Early"), "{response}");
        }
        assert!(closed(&mut exchange.socket).is_some(), "{request}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{request}: {:?}", begun.elapsed());
        assert_eq!(served.origin.requests(), before, "{request}");
    }
    assert!(served.daemon.logs("The handshake of early data was not completed"));
    served.serves();
}

/// Early data is read up to its limit, whatever is in it, and damaged records end the connection.
#[test]
fn the_length_of_early_data_is_limited() {
    let _slot = shared_slot();
    let served = serve(&[]);
    let client = Client::new(&served, "http/1.1");
    let many = get("/100").repeat(MOST / get("/100").len());
    let (mut exchange, _) = client.early(many.as_bytes());
    exchange.text_until("HTTP/1.1 200");
    exchange.complete();
    exchange.ask("GET /9 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    exchange.text_until("Connection: close");
    client.renew();
    let before = served.origin.requests();
    let (mut whole, flight) = client.early(get("/7").as_bytes());
    whole.text_until("xxxxxxx\u{0}");
    assert_eq!(served.origin.requests(), before + 1);
    for at in [flight.len() - 1, flight.len() - 40] {
        client.renew();
        let mut exchange = client.begin();
        let mut early = exchange.tls.early_data().expect("a session with early data");
        early.write_all(get("/7").as_bytes()).expect("memory");
        let mut flight = Vec::new();
        while exchange.tls.wants_write() {
            exchange.tls.write_tls(&mut flight).expect("memory");
        }
        flight[at] ^= 1;
        exchange.socket.write_all(&flight).expect("it reads");
        assert!(closed(&mut exchange.socket).is_some());
    }
    assert_eq!(served.origin.requests(), before + 1);
    served.serves();
}

/// Sessions end with the worker, and with the certificate: the client gets a full handshake, or a refusal.
#[test]
fn sessions_end_with_their_worker() {
    let _slot = shared_slot();
    let mut served = serve(&[]);
    let config = Client::new(&served, "http/1.1").config;
    served.daemon.ok("stop");
    served.daemon.ok("start");
    let before = served.origin.requests();
    let client = Client { served: &served, config: config.clone() };
    let (mut exchange, _) = client.early(get("/7").as_bytes());
    while exchange.tls.is_handshaking() {
        assert!(exchange.receive());
        exchange.send();
    }
    assert!(!exchange.tls.is_early_data_accepted());
    assert_eq!(served.origin.requests(), before);
    exchange.ask(&get("/7"));
    assert!(!exchange.text_until("xxxxxxx\u{0}").contains("Early"));
    client.renew();
    served.daemon.ok("tls.cert.discard cert0");
    served.daemon.ok("tls.cert.commit");
    let before = served.origin.requests();
    let (mut exchange, _) = Client { served: &served, config }.early(get("/7").as_bytes());
    assert!(closed(&mut exchange.socket).is_some());
    assert_eq!(served.origin.requests(), before);
}

/// Over HTTP/2, early requests without effects are served, and others wait, each by itself.
#[test]
fn early_streams_wait_by_themselves() {
    let _slot = shared_slot();
    let served = serve(&[]);
    let client = Client::new(&served, "h2");
    let before = served.origin.requests();
    let (mut exchange, _) = client.early(&frames(&[("DELETE", "/3"), ("GET", "/7")]));
    exchange.text_until("xxxxxxx");
    assert_eq!(served.origin.requests(), before + 1);
    exchange.complete();
    exchange.text_until("xxx");
    assert_eq!(served.origin.requests(), before + 2);
    served.serves();
}

/// A request that the origin refuses as early data is sent again after the handshake, once, without the mark.
#[test]
fn an_origin_may_refuse_early_data() {
    let _slot = shared_slot();
    let wary = Wary::start();
    let served = wary.served(&[]);
    let mut expected = (0, 0);
    for (protocol, path, response) in [
        ("http/1.1", "/wary/1", "served later"),
        ("h2", "/wary/2", "served later"),
        ("http/1.1", "/always/1", "too early"),
        ("h2", "/always/2", "too early"),
    ] {
        let client = Client::new(&served, protocol);
        let bytes = if protocol == "h2" { frames(&[("GET", path)]) } else { get(path).into_bytes() };
        let (mut exchange, _) = client.early(&bytes);
        expected = (expected.0 + 1, expected.1 + 1);
        assert!(until(|| wary.requests() == expected), "{path}: {:?}", wary.requests());
        thread::sleep(Duration::from_millis(100));
        assert_eq!(wary.requests(), expected, "{path}: the handshake is not complete");
        assert!(exchange.receive());
        exchange.complete();
        exchange.text_until(response);
        expected.0 += 1;
        assert_eq!(wary.requests(), expected, "{path}");
    }
    assert!(served.daemon.logs("sent again after the handshake"));
    // Requests that are not early data get the origin's refusal, whatever fields they have.
    let client = Client::new(&served, "http/1.1");
    let mut exchange = client.begin();
    while exchange.tls.is_handshaking() {
        exchange.send();
        assert!(exchange.receive());
    }
    exchange.ask("GET /wary/3 HTTP/1.1\r\nHost: a\r\nEarly-Data: 1\r\n\r\n");
    assert!(exchange.text_until("too early").starts_with("HTTP/1.1 425"));
    assert_eq!(wary.requests(), (expected.0 + 1, expected.1 + 1));
    // So do early requests that another proxy has marked, because it has to repeat them.
    let marked = "GET /wary/4 HTTP/1.1\r\nHost: a\r\nEarly-Data: 1\r\n\r\n";
    let (mut exchange, _) = client.early(marked.as_bytes());
    assert!(exchange.text_until("too early").starts_with("HTTP/1.1 425"));
    assert_eq!(wary.requests(), (expected.0 + 2, expected.1 + 2));
    served.serves();
}

/// A client that sends early data and never completes its handshake fails alone: others that wait for the page get it.
#[test]
fn others_do_not_get_the_refusal_of_early_data() {
    let _slot = shared_slot();
    let wary = Wary::start();
    let served = wary.served(&["-p", "tls_handshake_timeout=5"]);
    let client = Client::new(&served, "http/1.1");
    let (early, _) = client.early(get("/wary/9").as_bytes());
    assert!(until(|| wary.requests() == (1, 1)), "{:?}", wary.requests());
    let other = Client::new(&served, "http/1.1");
    let mut exchange = other.begin();
    while exchange.tls.is_handshaking() {
        exchange.send();
        assert!(exchange.receive());
    }
    exchange.ask(&get("/wary/9"));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(wary.requests(), (1, 1), "it waits");
    drop(early);
    exchange.text_until("served later");
    assert_eq!(wary.requests(), (2, 1));
}

/// A client that stays connected without completing its handshake delays others that wait for the page only briefly.
#[test]
fn others_do_not_wait_long_for_a_handshake() {
    let _slot = shared_slot();
    let wary = Wary::start();
    let served = wary.served(&["-p", "tls_handshake_timeout=600"]);
    for protocol in ["http/1.1", "h2"] {
        let path = format!("/wary/slow/{protocol}");
        let before = wary.requests();
        let client = Client::new(&served, protocol);
        let bytes = if protocol == "h2" { frames(&[("GET", &path)]) } else { get(&path).into_bytes() };
        let (_early, _) = client.early(&bytes);
        assert!(until(|| wary.requests() == (before.0 + 1, before.1 + 1)), "{:?}", wary.requests());
        let other = Client::new(&served, "http/1.1");
        let mut exchange = other.begin();
        while exchange.tls.is_handshaking() {
            exchange.send();
            assert!(exchange.receive());
        }
        exchange.ask(&get(&path));
        exchange.text_until("served later");
        assert_eq!(wary.requests(), (before.0 + 2, before.1 + 1), "{protocol}");
    }
    served.serves();
}

/// The includes of an early request wait for the handshake, and are not marked.
#[test]
fn includes_of_an_early_request_wait() {
    let _slot = shared_slot();
    let subs = "sub vcl_backend_response { if (bereq.url == \"/always/page\") { set beresp.do_esi = true; } }\n\
                sub vcl_recv { if (req.url == \"/wary/fragment\") { set req.backend_hint = wary; return (pass); } }\n";
    let wary = Wary::start();
    let served = wary.served_with(subs, &[]);
    let mut expected = (0, 0);
    for protocol in ["http/1.1", "h2"] {
        let client = Client::new(&served, protocol);
        let path = "/always/page";
        let bytes = if protocol == "h2" { frames(&[("GET", path)]) } else { get(path).into_bytes() };
        let (mut exchange, _) = client.early(&bytes);
        expected = (expected.0 + 1, expected.1 + 1);
        assert!(until(|| wary.requests() == expected), "{protocol}: {:?}", wary.requests());
        thread::sleep(Duration::from_millis(100));
        assert_eq!(wary.requests(), expected, "{protocol}: the handshake is not complete");
        assert!(exchange.receive());
        exchange.complete();
        exchange.text_until("served later");
        expected.0 += 1;
        assert_eq!(wary.requests(), expected, "{protocol}");
    }
    served.serves();
}

/// A 425 to a fetch in the background replaces nothing: the stale object is served until another request refreshes it.
#[test]
fn a_refused_fetch_in_the_background_keeps_the_object() {
    let _slot = shared_slot();
    let subs = "sub vcl_backend_response { set beresp.ttl = 0.05s; set beresp.grace = 1h; }\n";
    let wary = Wary::start();
    let served = wary.served_with(subs, &[]);
    let client = Client::new(&served, "http/1.1");
    let plain = || {
        let mut exchange = client.begin();
        while exchange.tls.is_handshaking() {
            exchange.send();
            assert!(exchange.receive());
        }
        exchange.ask(&get("/wary/stale"));
        exchange.text_until("served later");
    };
    plain();
    assert_eq!(wary.requests(), (1, 0));
    thread::sleep(Duration::from_millis(100));
    client.renew();
    let (mut exchange, _) = client.early(get("/wary/stale").as_bytes());
    exchange.text_until("served later");
    assert!(until(|| wary.requests() == (2, 1)), "{:?}", wary.requests());
    assert!(served.daemon.logs("425 (Too Early), which a background fetch does not wait for"));
    plain();
    assert!(until(|| wary.requests() == (3, 1)), "{:?}", wary.requests());
    served.serves();
}

/// If the handshake never ends, requests that wait for it get 425, over HTTP/2 too, and the connection ends. The origin
/// has no part in the wait.
#[test]
fn streams_of_a_handshake_that_stays_open_end() {
    let _slot = shared_slot();
    let wary = Wary::start();
    let served = wary.served(&["-p", "tls_handshake_timeout=1", "-p", "timeout_idle=1"]);
    for (protocol, method, path) in
        [("h2", "DELETE", "/7"), ("h2", "GET", "/wary/1"), ("http/1.1", "GET", "/wary/2")]
    {
        let client = Client::new(&served, protocol);
        let (before, begun) = (served.origin.requests(), Instant::now());
        let bytes = if protocol == "h2" { frames(&[(method, path)]) } else { get(path).into_bytes() };
        let (mut exchange, _) = client.early(&bytes);
        exchange.text_until("425");
        assert!(begun.elapsed() > Duration::from_millis(900), "{path}: {:?}", begun.elapsed());
        assert!(closed(&mut exchange.socket).is_some(), "{path}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{path}: {:?}", begun.elapsed());
        assert_eq!(served.origin.requests(), before, "{path}");
    }
    assert_eq!(wary.requests(), (2, 2));
    assert!(served.daemon.logs("the client has not completed its handshake"));
    served.serves();
}
