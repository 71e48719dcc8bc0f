//! Pairs of requests that must share a cache entry, and pairs that must not. Requests that an origin can distinguish
//! have different entries unless VCL makes them equal. Headers that are not part of the key reach the origin unchanged.

use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::h2;
use lacquer_testing::recorder::{Recorder, ok};
use lacquer_testing::slots::shared_slot;

/// Starts an origin whose responses are all different.
fn numbered() -> Recorder {
    let count = AtomicUsize::new(0);
    Recorder::start(move |_| ok(&format!("answer {}", count.fetch_add(1, Ordering::SeqCst))))
}

fn ask(daemon: &Daemon, head: &str) -> String {
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let answer = client.ask(&format!("{head}\r\n")).expect("a response arrives");
    assert_eq!(answer.status, 200, "{head:?}: {}", answer.head);
    String::from_utf8_lossy(&answer.body).into_owned()
}

fn get(target: &str, host: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n")
}

/// Requests with the same meaning share an entry.
#[test]
fn equal_requests_share_an_entry() {
    let _slot = shared_slot();
    let origin = numbered();
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "feature=+http2"]);
    let pairs = [
        (get("/1", "a"), get("/1", "A")),
        (get("/2", "a"), "GET /2 HTTP/1.1\r\nhost:a\r\n".to_owned()),
        (get("/3", "a"), "GET /3 HTTP/1.1\r\nHOST: \t a \t\r\nX-Other: b\r\n".to_owned()),
        (get("/4", "a:80"), get("http://a:80/4", "b")),
        (get("/5", "a"), get("HTTP://A/5", "b")),
        (get("/6", "a"), get("/6", "a") + "X-Forwarded-Host: evil\r\nX-Original-URL: /admin\r\n"),
        (get("/7", "a"), "GET  /7  HTTP/1.1\r\nHost: a\r\n".to_owned()),
    ];
    for (first, second) in pairs {
        assert_eq!(ask(&daemon, &first), ask(&daemon, &second), "{first:?} and {second:?}");
    }
    let by_http1 = ask(&daemon, &get("/8", "a"));
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/8"), (":authority", "A")];
    let by_http2 = h2::ask(daemon.address, &fields).expect("a response arrives");
    assert_eq!(by_http1.as_bytes(), by_http2.body);
}

/// All lines of a header on which the response varies are compared.
#[test]
fn variants_are_distinguished_by_every_line() {
    let _slot = shared_slot();
    let count = AtomicUsize::new(0);
    let origin = Recorder::start(move |_| {
        let body = format!("answer {}", count.fetch_add(1, Ordering::SeqCst));
        format!("HTTP/1.1 200 OK\r\nVary: X-A\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &[]);
    let with = |lines: &str| ask(&daemon, &(get("/1", "a") + lines));
    let first = with("X-A: 1\r\nX-A: 2\r\n");
    assert_eq!(first, with("X-A: 1\r\nX-A: 2\r\n"));
    for other in ["X-A: 1\r\nX-A: 3\r\n", "X-A: 1\r\n", "X-A: 2\r\nX-A: 1\r\n", ""] {
        assert_ne!(first, with(other), "{other:?}");
    }
}

/// Requests that an origin may distinguish do not share an entry, however similar they are.
#[test]
fn different_requests_never_share_an_entry() {
    let _slot = shared_slot();
    let origin = numbered();
    let daemon = Daemon::start(&vcl(origin.address, ""), &[]);
    let hosts = ["a", "a:80", "a:8080", "a.", "b", "a.b", "[::1]", "a%2e", "a_"];
    let paths = [
        "/b",
        "/B",
        "/a/../b",
        "/./b",
        "//b",
        "/b/",
        "/%62",
        "/b;x",
        "/b?",
        "/b??",
        "/b?x=1",
        "/b?x=1&y=2",
        "/b?y=2&x=1",
        "/b%2f",
        "/b%2F",
        "/b%3f",
        "/b#x",
        "/b.css",
        "/b;.css",
        "/b%00.css",
        "/b\\",
        "/%2e%2e/b",
        "/b,",
        "/b+",
        "/b%20",
        "//a/b",
        "/http://a/b",
        "/b?Host:%20a",
        "/b@a",
        "/b:80",
    ];
    let mut answers = std::collections::HashMap::new();
    let targets =
        hosts.iter().map(|host| get("/b", host)).chain(paths.iter().skip(1).map(|path| get(path, "a")));
    for head in targets {
        let answer = ask(&daemon, &head);
        if let Some(other) = answers.insert(answer, head.clone()) {
            panic!("{other:?} and {head:?} share an entry");
        }
        // The origin receives the target as it was sent.
        let seen = origin.take();
        assert!(
            seen.len() == 1 && seen[0].starts_with(head.lines().next().expect("a line")),
            "{head:?}: {seen:?}"
        );
    }
}

/// The method is not part of the key, but a GET never gets the response to another method.
#[test]
fn responses_to_other_methods_are_not_shared() {
    let _slot = shared_slot();
    let origin = numbered();
    let daemon = Daemon::start(&vcl(origin.address, ""), &[]);
    let mut seen = std::collections::HashSet::new();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "GET"] {
        let head = format!("{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n");
        assert!(seen.insert(ask(&daemon, &head)), "{method} got the response to another method");
    }
}

/// Headers that are not part of the key, and that an origin may reflect, reach it unchanged. VCL can therefore read and
/// hash them.
#[test]
fn unkeyed_headers_reach_the_origin_unchanged() {
    let _slot = shared_slot();
    let origin = numbered();
    let daemon = Daemon::start(&vcl(origin.address, "sub vcl_recv { return (pass); }"), &[]);
    let lines = [
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Proto: https, http",
        "Forwarded: for=1.2.3.4;host=evil",
        "X-Original-URL: /admin",
        "X-HTTP-Method-Override: DELETE",
        "x-MiXed-CaSe: A  b\tC",
        "X-Bytes: \u{e9}\u{fc}",
        "X-Twice: 1",
        "X-Twice: 2",
        "Accept: text/html;q=0.5",
    ];
    let request = get("/", "a") + &lines.map(|line| format!("{line}\r\n")).concat();
    ask(&daemon, &request);
    let seen = origin.take().concat();
    for line in lines {
        assert!(seen.contains(&format!("\r\n{line}\r\n")), "{line:?} is missing in {seen:?}");
    }
}

/// A refused request leaves nothing in the cache that a later request could get.
#[test]
fn refusals_are_not_cached() {
    let _slot = shared_slot();
    let origin = numbered();
    let daemon = Daemon::start(&vcl(origin.address, ""), &[]);
    for bad in [
        "GET /x HTTP/1.1\r\nHost: a b\r\n",
        "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        "GET http://u@a/x HTTP/1.1\r\nHost: a\r\n",
    ] {
        let mut client = Client::connect(daemon.address).expect("connections are accepted");
        client.send(&format!("{bad}\r\n")).expect("requests can be sent");
        assert_eq!(client.response().expect("a response arrives").status, 400, "{bad:?}");
    }
    assert_eq!(ask(&daemon, &get("/x", "a")), "answer 0");
}
