//! Upgrades to WebSocket without VCL: only the origin's consent to exactly this request makes a tunnel. All other bytes
//! stay requests and responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lacquer_http::websocket;
use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, MAX_WAIT, vcl};
use lacquer_testing::raw::exchange;
use lacquer_testing::recorder::ok;
use lacquer_testing::until;

pub const ON: &[&str] = &["-p", "upgrade_protocols=websocket"];
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// The head that agrees to a request with `KEY`, whose `Sec-WebSocket-Accept` is `ACCEPT`.
const AGREES: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// An origin whose response depends on the path. After a 101 it repeats all bytes, until it receives `!`. At `#` it
/// breaks the connection: it leaves bytes unread. After the 101 for `/deaf` it reads nothing, and after that for `/flood`
/// it writes all the time.
pub struct Origin {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    pub fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(&stream, &kept));
            }
        });
        Origin { address, seen }
    }

    pub fn daemon(&self, options: &[&str]) -> Daemon {
        Daemon::start(&vcl(self.address, ""), options)
    }

    /// Returns the heads since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(stream: &TcpStream, kept: &Mutex<Vec<String>>) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output) = (BufReader::new(stream), stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if input.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap_or_default();
        let response = answer(&path).replace(ACCEPT, &websocket::accept(key.as_bytes()));
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        if output.write_all(response.as_bytes()).is_err() {
            return;
        }
        match path.as_str() {
            _ if !response.starts_with("HTTP/1.1 101") => {}
            "/deaf" => return std::thread::sleep(MAX_WAIT),
            "/flood" => {
                while output.write_all(&[b'x'; 4096]).is_ok() {}
                return;
            }
            _ => return repeat(&mut input, output),
        }
    }
}

fn repeat(input: &mut impl Read, mut output: &TcpStream) {
    let mut piece = [0; 4096];
    while let Ok(n @ 1..) = input.read(&mut piece) {
        if piece[..n].contains(&b'#') {
            std::thread::sleep(Duration::from_millis(200));
            return;
        }
        if piece[..n].contains(&b'!') || output.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    let _ = output.shutdown(Shutdown::Write);
}

fn answer(path: &str) -> String {
    let changed = |from: &str, to: &str| AGREES.replace(from, to);
    match path {
        "/echo" | "/deaf" | "/flood" => AGREES.to_owned(),
        "/early" => format!("{AGREES}early"),
        "/silent" => "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
        "/accept" => changed("+xOo=", "+xOO="),
        "/unconfirmed" => changed("Sec-WebSocket-Accept", "X-Accept"),
        "/other" => changed("websocket\r\n", "h2c\r\n"),
        "/unconnected" => changed("Connection: Upgrade", "Connection: keep-alive"),
        "/old" => changed("HTTP/1.1", "HTTP/1.0"),
        "/length" => changed("Connection:", "Content-Length: 5\r\nConnection:"),
        "/chunked" => changed("Connection:", "Transfer-Encoding: chunked\r\nConnection:"),
        "/refused" => {
            "HTTP/1.1 403 Forbidden\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno".to_owned()
        }
        _ => String::from_utf8_lossy(&ok("page")).into_owned(),
    }
}

/// Returns a complete request to upgrade.
fn request(path: &str) -> String {
    request_with(path, "")
}

fn request_with(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: robust\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{more}\r\n"
    )
}

/// Asks for an upgrade, followed by these bytes. Returns the connection, and the head of the response.
fn upgrade(daemon: &Daemon, path: &str, then: &str) -> (TcpStream, String) {
    let mut client = daemon.connect();
    client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
    client.write_all((request(path) + then).as_bytes()).expect("requests can be sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("there is a response");
        head.extend_from_slice(&byte);
    }
    (client, String::from_utf8_lossy(&head).into_owned())
}

/// Returns whether a tunnel begins, which then ends.
fn may_upgrade(daemon: &Daemon) -> bool {
    let (mut client, head) = upgrade(daemon, "/echo", "!");
    head.starts_with("HTTP/1.1 101 ") && client.read(&mut [0]).is_ok()
}

fn expect(client: &mut TcpStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    client.read_exact(&mut read).expect("the bytes arrive");
    assert_eq!(read.escape_ascii().to_string(), bytes.escape_ascii().to_string());
}

fn expect_end(client: &mut TcpStream) {
    assert_eq!(client.read(&mut [0]).expect("the end is in order"), 0);
}

/// Bytes pass in both directions, including those that either side sends before the other has heard of the upgrade.
#[test]
fn an_upgrade_is_a_tunnel_in_both_directions() {
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let (mut client, head) = upgrade(&daemon, "/early", "first");
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    for field in ["\r\nUpgrade: websocket\r\n", "\r\nConnection: Upgrade\r\n", "+xOo=\r\n"] {
        assert!(head.contains(field), "{head}");
    }
    expect(&mut client, b"earlyfirst");
    for text in ["a", "GET / HTTP/1.1\r\n\r\n"] {
        client.write_all(text.as_bytes()).expect("the tunnel is open");
        expect(&mut client, text.as_bytes());
    }
    // The client ends its direction first.
    client.shutdown(Shutdown::Write).expect("sockets can be shut down");
    expect_end(&mut client);
    // The origin ends its direction first.
    let (mut client, _) = upgrade(&daemon, "/echo", "");
    client.write_all(b"!").expect("the tunnel is open");
    expect_end(&mut client);
    drop(client);
    let seen = origin.take();
    assert_eq!(seen.len(), 2, "{seen:?}");
    for head in &seen {
        assert!(head.contains("\r\nConnection: Upgrade\r\n"), "{head}");
        assert!(head.contains("\r\nUpgrade: websocket\r\n"), "{head}");
        assert!(!head.contains("keep-alive"), "{head}");
    }
}

/// A large transfer in both directions at once is whole, whichever side is slow.
#[test]
fn a_tunnel_loses_no_byte() {
    const LENGTH: usize = 4 << 20;
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let (client, _) = upgrade(&daemon, "/echo", "");
    let byte = |at: usize| (at % 251) as u8 | 0x80;
    let mut writer = client.try_clone().expect("sockets can be cloned");
    let sending = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..LENGTH).map(byte).collect();
        writer.write_all(&bytes).expect("the tunnel is open");
        writer.shutdown(Shutdown::Write).expect("sockets can be shut down");
    });
    let mut read = Vec::new();
    let mut client = client;
    let mut piece = [0; 16 << 10];
    loop {
        match client.read(&mut piece).expect("the end is in order") {
            0 => break,
            n => read.extend_from_slice(&piece[..n]),
        }
        if read.len() < 1 << 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    sending.join().expect("everything was sent");
    assert_eq!(read.len(), LENGTH);
    assert!(read.iter().enumerate().all(|(at, found)| *found == byte(at)));
}

/// After a refusal, the connection carries requests. What follows was sent as a request, and is one.
#[test]
fn a_refused_upgrade_leaves_the_connection_to_requests() {
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let mut client = Client::connect(daemon.address).expect("the daemon accepts");
    for path in ["/refused", "/page", "/refused"] {
        let response = client.ask(&request(path)).expect("there is a response");
        let (status, body) = if path == "/page" { (200, "page") } else { (403, "no") };
        assert_eq!((response.status, &*response.body), (status, body.as_bytes()));
        assert_eq!(response.header("Upgrade"), None);
        assert_ne!(response.header("Connection"), Some("close"));
    }
    let pipelined = request("/refused") + "GET /page HTTP/1.1\r\nHost: robust\r\n\r\n";
    client.send(&pipelined).expect("requests can be sent");
    assert_eq!(client.response().expect("there is a response").status, 403);
    assert_eq!(client.response().expect("there is a response").body, b"page");
}

/// A 101 that does not agree to this request is a bad response. The bytes after it never reach the client.
#[test]
fn a_false_101_is_a_bad_response() {
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let false_ones =
        ["/silent", "/accept", "/unconfirmed", "/other", "/unconnected", "/old", "/length", "/chunked"];
    for path in false_ones {
        let mut client = Client::connect(daemon.address).expect("the daemon accepts");
        let response = client.ask(&request(path)).expect("there is a response");
        assert_eq!(response.status, 503, "{path}: {response:?}");
        let next = client.get("/page").expect("the connection stays open");
        assert_eq!(next.body, b"page", "{path}");
    }
    // Without a key, nothing can be confirmed.
    let keyless = request("/echo").replace("Sec-WebSocket-Key", "X-Key");
    let mut client = Client::connect(daemon.address).expect("the daemon accepts");
    assert_eq!(client.ask(&keyless).expect("there is a response").status, 503);
    assert!(daemon.log_has("101 response with a wrong Sec-WebSocket-Accept"));
}

/// Requests that may not upgrade are ordinary requests, whose origin sees no `Upgrade`. A 101 to them is a bad response.
#[test]
fn other_requests_do_not_upgrade() {
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let plain = request("/echo");
    let body = "Content-Length: 5\r\n\r\nhello";
    let requests = [
        plain.replace("HTTP/1.1", "HTTP/1.0"),
        plain.replace("Upgrade: websocket", "Upgrade: h2c"),
        plain.replace("Upgrade: websocket", "Upgrade: foo"),
        plain.replace("keep-alive, Upgrade", "keep-alive"),
        plain.replace("Connection: keep-alive, Upgrade\r\n", ""),
        plain.replace("GET ", "POST "),
        plain.replace("\r\n\r\n", &format!("\r\n{body}")),
        plain.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ];
    for request in requests {
        let response = exchange(daemon.address, request.as_bytes(), true).expect("the daemon answers");
        assert_eq!(response.status(), 503, "{request}\n{}", response.text());
        let seen = origin.take();
        assert!(!seen.is_empty(), "{request}");
        assert!(seen.iter().all(|head| !head.contains("\r\nUpgrade:")), "{seen:?}");
    }
}

/// Without the parameter, a request to upgrade is an ordinary request.
#[test]
fn upgrades_are_off_by_default() {
    let origin = Origin::start();
    let daemon = origin.daemon(&[]);
    let mut client = Client::connect(daemon.address).expect("the daemon accepts");
    assert_eq!(client.ask(&request("/page")).expect("there is a response").body, b"page");
    assert_eq!(client.ask(&request("/echo")).expect("there is a response").status, 503);
    assert!(origin.take().iter().all(|head| !head.contains("\r\nUpgrade:")));
}

/// A cached page is no answer to a request to upgrade, and such a request does not change the cache.
#[test]
fn upgrades_pass_the_cache() {
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let mut client = Client::connect(daemon.address).expect("the daemon accepts");
    client.get("/page").expect("there is a response");
    assert_eq!(origin.take().len(), 1);
    client.ask(&request("/page")).expect("there is a response");
    assert_eq!(origin.take().len(), 1);
    client.get("/page").expect("there is a response");
    assert_eq!(origin.take().len(), 0);
}

/// Idle tunnels end after `pipe_timeout`, all after `pipe_task_deadline`, and `pipe_sess_max` limits their number.
#[test]
fn tunnels_are_limited() {
    let origin = Origin::start();
    let mut daemon = origin.daemon(ON);
    daemon.ok("param.set pipe_sess_max 1");
    let (mut client, _) = upgrade(&daemon, "/echo", "");
    let mut second = Client::connect(daemon.address).expect("the daemon accepts");
    assert_eq!(second.ask(&request("/echo")).expect("there is a response").status, 503);
    assert_eq!(second.get("/page").expect("the connection stays open").status, 200);
    client.write_all(b"!").expect("the tunnel is open");
    expect_end(&mut client);
    drop(client);
    assert!(until(|| may_upgrade(&daemon)), "the tunnel has ended");
    daemon.ok("param.reset pipe_sess_max");
    for (parameter, busy) in [("pipe_timeout", false), ("pipe_task_deadline", true)] {
        daemon.ok(&format!("param.set {parameter} 0.5"));
        let (mut client, _) = upgrade(&daemon, "/echo", "");
        let begun = Instant::now();
        loop {
            let mut piece = [0; 10];
            if busy && client.write_all(b"a").is_err() || !matches!(client.read(&mut piece), Ok(1..)) {
                break;
            }
        }
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(300) && took < Duration::from_secs(5), "{parameter}: {took:?}");
        daemon.ok(&format!("param.reset {parameter}"));
    }
}

/// A client that is gone ends its tunnel, and a reset of the origin's connection reaches the client.
#[test]
fn a_broken_side_ends_the_tunnel() {
    let origin = Origin::start();
    let mut daemon = origin.daemon(ON);
    daemon.ok("param.set pipe_sess_max 1");
    let (client, _) = upgrade(&daemon, "/echo", "unread");
    drop(client);
    assert!(until(|| may_upgrade(&daemon)), "the tunnel has ended");
    let mut client = Client::connect(daemon.address).expect("the daemon accepts");
    assert_eq!(client.get("/page").expect("there is a response").status, 200);
}

/// VCL decides: it may withdraw the wish on both sides, and pipe or answer the request itself.
#[test]
fn vcl_may_refuse_upgrades() {
    let origin = Origin::start();
    let subs = "sub vcl_recv {
            if (req.url == \"/page?client\") { unset req.http.Upgrade; }
            if (req.url == \"/synth\") { return (synth(418)); }
        }
        sub vcl_backend_fetch {
            if (bereq.url == \"/page?origin\") { unset bereq.http.Upgrade; }
        }";
    let daemon = Daemon::start(&vcl(origin.address, subs), ON);
    let mut client = Client::connect(daemon.address).expect("the daemon accepts");
    for path in ["/page?client", "/page?origin"] {
        assert_eq!(client.ask(&request(path)).expect("there is a response").status, 200);
        let seen = origin.take().concat();
        assert!(!seen.contains("\r\nUpgrade:") && !seen.contains("\r\nConnection:"), "{seen}");
    }
    assert_eq!(client.ask(&request("/synth")).expect("there is a response").status, 418);
}

/// Fields that `Connection` names end here, except for the upgrade.
#[test]
fn other_connection_fields_do_not_reach_the_origin() {
    let origin = Origin::start();
    let daemon = origin.daemon(ON);
    let mut client = daemon.connect();
    let text = request_with("/echo", "X-Hop: 1\r\nHTTP2-Settings: AAMAAABk\r\n")
        .replace("keep-alive, Upgrade", "Upgrade, X-Hop, HTTP2-Settings");
    client.write_all(text.as_bytes()).expect("requests can be sent");
    expect(&mut client, b"HTTP/1.1 101 ");
    let seen = origin.take().concat();
    assert!(!seen.contains("X-Hop") && !seen.contains("HTTP2-Settings"), "{seen}");
}
