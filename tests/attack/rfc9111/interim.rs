//! Interim responses in the mode, which forwards them: floods, fields that change the meaning of a message, and
//! malformed lines.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;

const PAGE: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\npage";

fn start(before: impl Fn(&str) -> String + Send + Sync + 'static) -> (Origin, Daemon) {
    let origin = Origin::start(move |path, stream| {
        stream.write_all(before(path).as_bytes()).is_ok() && stream.write_all(PAGE.as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M", "-p", "feature=+rfc9111"]);
    (origin, daemon)
}

/// Returns all bytes that a client gets for a path.
fn all(daemon: &Daemon, path: &str, version: &str) -> String {
    let mut client = daemon.connect();
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("sockets have timeouts");
    let request = format!("GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).expect("requests can be sent");
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Promise: an origin that sends interim responses without end is an error, in bounded time and memory.
#[test]
fn floods_of_interim_responses_end() {
    let (_origin, mut daemon) = start(|path| {
        let (count, status) = path[1..].split_once('/').unwrap_or(("1", "103"));
        let count = count.parse().unwrap_or(1);
        format!("HTTP/1.1 {status} Wait\r\nLink: </{}>\r\n\r\n", "x".repeat(100)).repeat(count)
    });
    assert!(all(&daemon, "/16/103", "1.1").ends_with("\r\n\r\npage"));
    let before = daemon.resident().memory;
    for status in ["100", "102", "103", "199"] {
        for _ in 0..10 {
            let begun = Instant::now();
            let got = all(&daemon, &format!("/5000/{status}"), "1.1");
            let last = got.rfind("HTTP/1.1 ").map_or("", |at| &got[at..]);
            assert!(last.starts_with("HTTP/1.1 503 "), "{status}: {last:.60}");
            assert!(got.matches("HTTP/1.1 1").count() <= 17 && begun.elapsed() < Duration::from_secs(5));
        }
    }
    let grown = daemon.resident().memory.saturating_sub(before);
    assert!(grown < 8 << 20, "{} kB more memory", grown >> 10);
}

/// Promise: an interim response cannot end, frame or replace the final one, and HTTP/1.0 clients get none. A later
/// client gets the response without it.
#[test]
fn interim_responses_cannot_become_final_ones() {
    const LINES: [&str; 9] = [
        "Content-Length: 0",
        "Transfer-Encoding: chunked",
        "Connection: close, X-Secret\r\nX-Secret: 1",
        "Upgrade: x",
        "X-A: b\rSet-Cookie: c",
        "X-A: b\u{0}c",
        "X A: b",
        "no colon",
        "Content-Length : 5",
    ];
    let _slot = shared_slot();
    let (_origin, daemon) = start(|path| {
        let lines = path[1..].parse().ok().and_then(|n: usize| LINES.get(n)).copied().unwrap_or("Link: <x>");
        format!("HTTP/1.1 103 Early Hints\r\n{lines}\r\n\r\n")
    });
    for (number, lines) in LINES.into_iter().enumerate() {
        let got = all(&daemon, &format!("/{number}"), "1.1");
        if let Some((interim, last)) = got.split_once("\r\n\r\n")
            && interim.starts_with("HTTP/1.1 103")
        {
            let lower = interim.to_ascii_lowercase();
            for field in
                ["content-length", "transfer-encoding", "connection:", "x-secret", "upgrade", "set-cookie"]
            {
                assert!(!lower.contains(field), "{lines:?}: {interim:?}");
            }
            let is_clean = interim.replace("\r\n", "").bytes().all(|b| !b.is_ascii_control());
            assert!(
                is_clean && last.ends_with("page") && last.starts_with("HTTP/1.1 200"),
                "{lines:?}: {got:?}"
            );
        } else {
            assert!(got.starts_with("HTTP/1.1 200") || got.starts_with("HTTP/1.1 503"), "{lines:?}: {got:?}");
        }
        let later = all(&daemon, &format!("/{number}"), "1.0");
        let is_final = later.starts_with("HTTP/1.1 200") && later.ends_with("page");
        assert!(is_final || later.starts_with("HTTP/1.1 503"), "{lines:?}: {later:?}");
        assert!(!later.contains("103 Early"), "{lines:?}");
    }
}

/// Promise: a client that reads nothing delays its own interim responses only. Others that wait for the same page get it.
#[test]
fn a_client_that_takes_no_interim_response_delays_no_other() {
    const REQUESTS: usize = 5000;
    let _slot = shared_slot();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = Origin::start(move |_: &str, stream: &mut TcpStream| {
        count.fetch_add(1, Ordering::SeqCst);
        let interim = format!("HTTP/1.1 103 Early Hints\r\nLink: </{}>\r\n\r\n", "x".repeat(7000));
        let sent = stream.write_all(interim.as_bytes());
        thread::sleep(Duration::from_millis(2));
        sent.is_ok() && stream.write_all(PAGE.as_bytes()).is_ok()
    });
    let options = ["-s", "malloc,32M", "-p", "feature=+rfc9111"];
    let daemon = Daemon::start(&vcl(origin.address, ""), &options);
    let client = daemon.connect();
    let mut sender = client.try_clone().expect("a descriptor");
    let sending = thread::spawn(move || {
        let request = |number| format!("GET /{number} HTTP/1.1\r\nHost: robust\r\n\r\n");
        sender.write_all((1..=REQUESTS).map(request).collect::<String>().as_bytes())
    });
    // Nearly all that the client is sent are interim responses, so one of them fills the buffers.
    let mut stuck = 0;
    assert!(until(|| {
        thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut stuck, asked.load(Ordering::SeqCst));
        before == stuck && stuck > 0
    }));
    assert!(stuck < REQUESTS, "the buffers are full");
    let response = get(daemon.address, &format!("/{stuck}")).expect("a response in time");
    assert_eq!(response.body, b"page");
    assert_eq!(asked.load(Ordering::SeqCst), stuck, "both clients get one response");
    let _ = client.shutdown(Shutdown::Both);
    let _ = sending.join();
}
