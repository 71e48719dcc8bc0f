//! Connections that requests to an origin share: how requests get them, and what happens to a request when its connection
//! ends or turns silent.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::Daemon;
use lacquer_testing::slots::shared_slot;

use super::origin::Origin;
use super::{PASS, at_once, start};

const CACHED: &str =
    "import std; sub vcl_recv { if (!std.cache_req_body(1MB)) { return (fail); } return (pass); }";

/// A request on a connection that ends may have been processed. It is sent again only if that does no harm, and if no
/// response to it had begun.
#[test]
fn only_idempotent_requests_are_repeated() {
    let _slot = shared_slot();
    for (method, path, subs, body, attempts) in [
        ("GET", "/drop", PASS, "", 2),
        ("PUT", "/drop", PASS, "", 2),
        ("PUT", "/drop", CACHED, "body", 2),
        ("POST", "/drop", PASS, "", 1),
        ("PATCH", "/drop", PASS, "", 1),
        ("POST", "/drop", CACHED, "body", 1),
        ("GET", "/interim-drop", PASS, "", 1),
    ] {
        let origin = Origin::start(&[]);
        let daemon = start(&origin, subs, &["-p", "thread_pools=1"]);
        let mut client = Client::connect(daemon.address).expect("it serves");
        assert_eq!(client.get("/ok").expect("a response").status, 200);
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        assert_eq!(client.ask(&request).expect("a response").status, 503, "{method} {path}");
        let received = origin.counts.requests.load(Ordering::SeqCst) - 1;
        assert_eq!(received, attempts, "{method} {path} {body}");
    }
}

/// A connection on which nothing arrives any more costs the requests that are on it. Later ones get another.
#[test]
fn silent_connections_are_left() {
    let _slot = shared_slot();
    let origin = Origin::start(&[]);
    let daemon = start(&origin, PASS, &["-p", "first_byte_timeout=1"]);
    let mut client = Client::connect(daemon.address).expect("it serves");
    assert_eq!(client.get("/ok").expect("a response").status, 200);
    assert_eq!(client.get("/mute").expect("a response").status, 503);
    for _ in 0..3 {
        assert_eq!(client.get("/ok").expect("a response").status, 200);
    }
    assert_eq!(origin.counts.connections.load(Ordering::SeqCst), 2);
}

/// Requests that arrive before the origin has announced its limit of streams keep it, too.
#[test]
fn a_burst_on_a_new_connection_keeps_the_limit_of_streams() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    let _slot = shared_slot();
    let origin = Origin::start_late(&[(MAX_CONCURRENT_STREAMS, 2)], Duration::from_millis(200));
    let daemon = start(&origin, PASS, &["-p", "thread_pools=1"]);
    let bodies = at_once(&daemon, 8);
    assert!(bodies.iter().enumerate().all(|(n, body)| *body == format!("/slow{n}")), "{bodies:?}");
    assert!(origin.counts.streams.load(Ordering::SeqCst) <= 2);
}

/// Requests that wait for a connection of another wait for one `connect_timeout`, however many attempts fail.
#[test]
fn waiting_requests_have_one_limit() {
    let _slot = shared_slot();
    // It closes each connection after 0.7 s, during the handshake.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(700));
                drop(stream);
            });
        }
    });
    let vcl = format!(
        "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; .ssl = 1; .ssl_verify_peer = 0; \
         .proto = \"h2\"; .connect_timeout = 1s; }}\n{PASS}\n"
    );
    let daemon = Daemon::start(&vcl, &["-p", "thread_pools=1"]);
    let took = || {
        let (address, begun) = (daemon.address, Instant::now());
        let ask = |n| thread::spawn(move || get(address, &format!("/{n}")).expect("a response"));
        let clients: Vec<_> = (0..12).map(ask).collect();
        for client in clients {
            assert_eq!(client.join().expect("it does not panic").status, 503);
        }
        begun.elapsed()
    };
    // One attempt has failed, and a second that began at its end. Twelve in turn would take several seconds, and a busy
    // machine may stall.
    assert!((0..5).any(|_| took() < Duration::from_secs(3)), "they fail one after the other");
}
