//! Clients that shut down their sending side after the request, as `nc -N` and some health checks do. On TCP they look
//! like clients that have closed their connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use lacquer_testing::daemon::{Daemon, MAX_WAIT};

use crate::stuck::{LATE, Stuck};

/// Sends requests for these pages and then shuts down the sending side.
fn ask(daemon: &Daemon, paths: &[&str]) -> TcpStream {
    let mut client = daemon.connect();
    client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
    for path in paths {
        let request = format!("GET {path} HTTP/1.1\r\nHost: robust\r\n\r\n");
        client.write_all(request.as_bytes()).expect("requests can be sent");
    }
    client.shutdown(Shutdown::Write).expect("sockets can be shut down");
    client
}

fn read_all(mut client: TcpStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the daemon closes in order");
    answer
}

fn fetch(daemon: &Daemon, path: &str) -> String {
    read_all(ask(daemon, &[path]))
}

/// Asserts that `answer` consists of exactly these responses, whole and in order.
fn assert_answered(answer: &str, paths: &[&str]) {
    let heads: Vec<_> = answer.match_indices("HTTP/1.1 200 OK\r\n").map(|(at, _)| at).collect();
    assert_eq!(heads.len(), paths.len(), "{answer}");
    assert_eq!(heads[0], 0, "{answer}");
    let ends = heads.iter().skip(1).copied().chain([answer.len()]);
    for ((head, end), path) in heads.iter().zip(ends).zip(paths) {
        assert!(answer[*head..end].ends_with(&format!("\r\n\r\n{path}")), "{answer}");
    }
}

/// Passes and misses get their responses, including late ones and those that wait for another request's fetch.
#[test]
fn half_closed_clients_get_their_responses() {
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    for path in ["/now/", "/slow/", "/late/a", "/parts/a", "/late/a"] {
        assert_answered(&fetch(&daemon, path), &[path]);
    }
    let both = [ask(&daemon, &["/late/b"]), ask(&daemon, &["/late/b"])];
    for client in both {
        assert_answered(&read_all(client), &["/late/b"]);
    }
    let several = ["/slow/1", "/late/c", "/slow/2"];
    assert_answered(&read_all(ask(&daemon, &several)), &several);
    let mut upload = daemon.connect();
    let request =
        b"POST /slow/ HTTP/1.1\r\nHost: robust\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello";
    upload.write_all(request).expect("requests can be sent");
    upload.shutdown(Shutdown::Write).expect("sockets can be shut down");
    let answer = read_all(upload);
    assert_answered(answer.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n"), &["/slow/"]);
}

/// A client that closes its connection after the first bytes of its response, which test it, is detected.
#[test]
fn half_closed_clients_that_close_later_are_detected() {
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    let mut client = ask(&daemon, &["/head/"]);
    stuck.comes_to_hold(1);
    client.read_exact(&mut [0]).expect("the first byte is sent ahead");
    drop(client);
    stuck.comes_to_hold(0);
}

/// Within a response, a pass ends when its client may be gone for `half_close_timeout`. A fetch for the cache
/// continues, also to the client.
#[test]
fn a_limit_holds_within_responses() {
    let stuck = Stuck::start();
    let mut daemon = stuck.daemon(&[]);
    daemon.ok("param.set half_close_timeout 0.1");
    assert_answered(&fetch(&daemon, "/parts/a"), &["/parts/a"]);
    daemon.ok("param.reset half_close_timeout");
    let took = || {
        let mut client = daemon.connect();
        client.write_all(b"GET /body/ HTTP/1.1\r\nHost: robust\r\n\r\n").expect("requests can be sent");
        stuck.comes_to_hold(1);
        let mut seen = 0;
        while seen < 1000 {
            seen += client.read(&mut [0; 1000]).expect("the first part of the body comes");
        }
        let closed = Instant::now();
        drop(client);
        stuck.comes_to_hold(0);
        closed.elapsed()
    };
    // A busy machine may stall.
    assert!((0..5).any(|_| took() < Duration::from_secs(2)), "it took too long each time");
}

/// Parameters select other treatments.
#[test]
fn parameters_choose_how_half_closed_clients_are_treated() {
    let stuck = Stuck::start();
    let mut daemon = stuck.daemon(&[]);
    daemon.ok("param.set half_close_timeout 0");
    assert!(fetch(&daemon, "/slow/").starts_with("HTTP/1.1 408 "));
    daemon.ok("param.set half_close_timeout never");
    assert_answered(&fetch(&daemon, "/slow/"), &["/slow/"]);
    drop(ask(&daemon, &["/head/"]));
    stuck.comes_to_hold(1);
    std::thread::sleep(LATE);
    assert_eq!(stuck.held(), 1);
    daemon.ok("param.reset half_close_timeout");
    daemon.ok("param.set cancel_abandoned off");
    assert_answered(&fetch(&daemon, "/slow/"), &["/slow/"]);
}
