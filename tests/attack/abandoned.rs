//! Clients that leave before their response: work for which no client waits ends, and no other work does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, until, vcl};
use lacquer_testing::h2::H2Client;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;

use crate::gz;
use crate::stuck::{LATE, Stuck};

/// The time within which the origin connection must be closed after the client's.
const SOON: Duration = Duration::from_secs(1);

/// Lets clients leave whose requests the origin holds, until it has lost them in time: a busy machine may stall.
fn assert_released_soon(stuck: &Stuck, mut leave: impl FnMut()) {
    let mut times = Vec::new();
    while times.len() < 5 {
        leave();
        let left = Instant::now();
        stuck.comes_to_hold(0);
        let took = left.elapsed();
        if took < SOON {
            return;
        }
        times.push(took);
    }
    panic!("it took {times:?}");
}

fn ask(daemon: &Daemon, path: &str) -> TcpStream {
    let mut stream = daemon.connect();
    stream.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
    let request = format!("GET {path} HTTP/1.1\r\nHost: robust\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("requests can be sent");
    stream
}

/// A pass ends when its client leaves, whether it waits for the head, the body, or the whole body before delivery.
#[test]
fn passes_end_with_their_client() {
    let _slot = shared_slot();
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    for path in ["/head/", "/body/", "/body/whole"] {
        assert_released_soon(&stuck, || {
            let clients: Vec<_> = (0..10).map(|_| ask(&daemon, path)).collect();
            stuck.comes_to_hold(clients.len());
        });
    }
    assert_released_soon(&stuck, || {
        let mut upload = daemon.connect();
        let request = b"POST /head/ HTTP/1.1\r\nHost: robust\r\nContent-Length: 5\r\n\r\nhello";
        upload.write_all(request).expect("requests can be sent");
        stuck.comes_to_hold(1);
    });
    assert_eq!(get(daemon.address, "/now/").expect("a response arrives").status, 200);
}

/// A pass over HTTP/2 ends with its stream; the connection and its other streams continue.
#[test]
fn passes_end_with_their_stream() {
    let _slot = shared_slot();
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    let mut client = H2Client::connect(daemon.address, &[]).expect("connections are accepted");
    for path in ["/head/", "/body/", "/body/whole"] {
        assert_released_soon(&stuck, || {
            let streams: Vec<_> = (0..10).map(|_| client.get(path).expect("requests can be sent")).collect();
            stuck.comes_to_hold(streams.len());
            for stream in streams {
                client.reset(stream).expect("streams can be reset");
            }
        });
        let alive = client.get("/now/").expect("requests can be sent");
        let (status, _) = client.response(alive).expect("the connection is open");
        assert_eq!(status, Some(200));
    }
    let mut leaving = Some(client);
    assert_released_soon(&stuck, || {
        let connect = || H2Client::connect(daemon.address, &[]).expect("connections are accepted");
        let mut client = leaving.take().unwrap_or_else(connect);
        client.get("/head/").expect("requests can be sent");
        stuck.comes_to_hold(1);
    });
}

/// A fetch for the cache continues without its client, and so does one for which another request waits.
#[test]
fn fetches_for_the_cache_continue() {
    let _slot = shared_slot();
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    drop(ask(&daemon, "/late/a"));
    assert!(until(|| stuck.origin.requests() == 1));
    let mut waiting = ask(&daemon, "/late/a");
    let mut head = [0; 15];
    waiting.read_exact(&mut head).expect("the other client is served");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    drop(ask(&daemon, "/late/b"));
    std::thread::sleep(LATE + LATE);
    let asked = Instant::now();
    assert_eq!(get(daemon.address, "/late/b").expect("a response arrives").status, 200);
    assert!(asked.elapsed() < LATE, "the second was fetched again");
    assert_eq!(stuck.origin.requests(), 2);
}

/// Pipelined requests after a waiting one are neither lost nor mistaken for the end of the client.
#[test]
fn pipelined_requests_get_responses() {
    let _slot = shared_slot();
    let stuck = Stuck::start();
    let daemon = stuck.daemon(&[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    client.send("GET /slow/1 HTTP/1.1\r\nHost: robust\r\n\r\n").expect("requests can be sent");
    std::thread::sleep(LATE / 5);
    client.send("GET /slow/2 HTTP/1.1\r\nHost: robust\r\n\r\n").expect("requests can be sent");
    for path in ["/slow/1", "/slow/2"] {
        assert_eq!(client.response().expect("a response arrives").body, path.as_bytes());
    }
}

/// With `cancel_abandoned` off, no fetch ends with its client. Otherwise a reset connection is detected, whatever
/// `half_close_timeout` is.
#[test]
fn parameters_decide_which_clients_are_gone() {
    let _slot = shared_slot();
    let stuck = Stuck::start();
    let mut daemon = stuck.daemon(&[]);
    // A connection that is closed with unread bytes is reset.
    daemon.ok("param.set half_close_timeout never");
    assert_released_soon(&stuck, || {
        let mut client = ask(&daemon, "/now/");
        client.write_all(b"GET /head/ HTTP/1.1\r\nHost: robust\r\n\r\n").expect("requests can be sent");
        stuck.comes_to_hold(1);
    });
    daemon.ok("param.set cancel_abandoned off");
    drop(ask(&daemon, "/head/"));
    stuck.comes_to_hold(1);
    std::thread::sleep(SOON);
    assert_eq!(stuck.held(), 1);
}

/// Requests beyond the limit are refused, with 503 or as the thread parameters configure. Hits are not limited.
#[test]
fn waiting_requests_are_bounded() {
    let _slot = shared_slot();
    let stuck = Stuck::start();
    let mut daemon = stuck.daemon(&["-p", "max_waiting=8", "-p", "timeout_idle=1"]);
    assert_eq!(get(daemon.address, "/kept/a").expect("a response arrives").status, 200);
    let told = |mut client: TcpStream| {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the daemon closes in order");
        answer
    };
    // One backend gets three quarters of the permits; two more requests wait for it.
    let clients: Vec<_> = (0..6).map(|_| ask(&daemon, "/head/")).collect();
    stuck.comes_to_hold(6);
    assert!(told(ask(&daemon, "/head/close")).starts_with("HTTP/1.1 503 Backend fetch failed"));
    assert_eq!(get(daemon.address, "/fresh/").expect("the other backend is free").status, 200);
    drop(clients);
    stuck.comes_to_hold(0);
    for (name, value) in [("thread_pools", 1), ("thread_pool_min", 5), ("thread_pool_max", 5)] {
        daemon.ok(&format!("param.set {name} {value}"));
    }
    daemon.ok("param.set thread_queue_limit 2");
    let clients: Vec<_> = (0..7).map(|_| ask(&daemon, "/head/")).collect();
    stuck.comes_to_hold(5);
    std::thread::sleep(LATE / 5);
    assert_eq!(told(ask(&daemon, "/head/")), "", "it is dropped without a response");
    let mut streams = H2Client::connect(daemon.address, &[]).expect("connections are accepted");
    let stream = streams.get("/head/").expect("requests can be sent");
    assert_eq!(streams.response(stream).expect("the connection is open").0, None, "it is reset");
    assert_eq!(get(daemon.address, "/kept/a").expect("hits are not bounded").status, 200);
    assert_eq!(stuck.held(), 5);
    drop(clients);
    stuck.comes_to_hold(0);
    assert_eq!(get(daemon.address, "/fresh/").expect("there is room again").status, 200);
}

/// A fetch whose client has left ends when another request needs its permit, even if its filters have only to finish. What
/// they have produced is not a whole body.
#[test]
fn a_fetch_that_ends_for_others_does_not_store_a_truncated_body() {
    const LENGTH: usize = 60 << 20;
    let _slot = shared_slot();
    let packed = gz::zeros(LENGTH);
    let origin = Origin::start(move |path: &str, stream: &mut TcpStream| {
        let is_packed = path.starts_with("/packed/");
        let (head, body) =
            if is_packed { ("Content-Encoding: gzip\r\n", &packed[..]) } else { ("", &b"small"[..]) };
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(body).is_ok()
    });
    let subs = "sub vcl_backend_response {
        set beresp.do_stream = false;
        if (bereq.url ~ \"^/packed/\") { set beresp.do_gunzip = true; set beresp.do_esi = true; } }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &["-s", "malloc,200M", "-p", "max_waiting=1"]);
    for round in 0..12 {
        let (path, fetched) = (format!("/packed/{round}"), origin.requests());
        let client = ask(&daemon, &path);
        assert!(until(|| origin.requests() > fetched));
        std::thread::sleep(Duration::from_millis(5 * round));
        drop(client);
        let mut other = ask(&daemon, &format!("/other/{round}"));
        other.read_exact(&mut [0; 9]).expect("it gets a response");
        let body = get(daemon.address, &path).expect("a response arrives").body;
        assert!(body.is_empty() || body.len() >= LENGTH, "round {round}: {} bytes", body.len());
    }
}

/// A fetch that lost its client before its head arrived is not ended for others while another client receives the object.
#[test]
fn a_fetch_whose_object_others_receive_does_not_end_for_others() {
    let _slot = shared_slot();
    let (is_begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, ends) = (is_begun.clone(), may_end.clone());
    let origin = Origin::start(move |path: &str, stream: &mut TcpStream| {
        if path != "/shared" {
            return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsmall").is_ok();
        }
        std::thread::sleep(LATE);
        let first = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst";
        let sent = stream.write_all(first).is_ok();
        begun.store(true, Ordering::SeqCst);
        until(|| ends.load(Ordering::SeqCst));
        sent && stream.write_all(b"after").is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "max_waiting=2"]);
    let client = ask(&daemon, "/shared");
    assert!(until(|| origin.requests() == 1));
    drop(client);
    assert!(until(|| is_begun.load(Ordering::SeqCst)));
    let mut reader = ask(&daemon, "/shared");
    let mut response = Vec::new();
    while !response.ends_with(b"first") {
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("the body begins");
        response.push(byte[0]);
    }
    // They need permits, of which there are no more.
    let others: Vec<_> = (0..2).map(|n| ask(&daemon, &format!("/other/{n}"))).collect();
    std::thread::sleep(LATE / 2);
    may_end.store(true, Ordering::SeqCst);
    let mut rest = [0; 5];
    reader.read_exact(&mut rest).expect("the body ends in order");
    assert_eq!(&rest, b"after");
    drop(others);
}
