//! Origins whose responses are shifted by one, on connections that close before the shift is visible. The objects that
//! came over these connections leave the cache nevertheless.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, this_connection};
use lacquer_testing::slots::shared_slot;

use crate::foreign_responses::{SOON, page, speaks_first};

/// A time after which every silence that the daemon waits for has passed.
const SETTLED: Duration = Duration::from_secs(2);

/// Sends an unsolicited response, and the regular one `late` after it.
fn shift(stream: &mut TcpStream, path: &str, late: Duration) -> bool {
    let _ = stream.write_all(page("unsolicited", false).as_bytes());
    std::thread::sleep(late);
    stream.write_all(page(path, false).as_bytes()).is_ok()
}

fn wrong_of(address: SocketAddr, paths: &[String]) -> usize {
    let is_wrong = |path: &&String| get(address, path).is_ok_and(|answer| answer.body != path.as_bytes());
    paths.iter().filter(is_wrong).count()
}

/// Promise: each connection to a suspected origin is watched after its response, and the objects that came over it
/// leave the cache if another response follows.
#[test]
fn suspected_origins_are_watched() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        std::thread::sleep(Duration::from_millis(30));
        shift(stream, path, Duration::from_millis(30))
    });
    let daemon = Daemon::start(&vcl(origin.address, ""), &["-p", "backend_quiet_time=1"]);
    let paths: Vec<_> = (0..10).map(|n| format!("/{n}")).collect();
    wrong_of(daemon.address, &paths);
    std::thread::sleep(SETTLED);
    let before = origin.requests();
    wrong_of(daemon.address, &paths);
    assert!(origin.requests() - before >= paths.len(), "some were still in the cache");
}

/// Promise: a fault on one connection does not end the watch over others. Each connection begins with an unsolicited
/// response, and all are opened at once.
#[test]
fn a_fault_on_one_connection_leaves_the_others_watched() {
    const CLIENTS: usize = 6;
    let _slot = shared_slot();
    let late = |number: usize| Duration::from_millis(50 + 60 * number.min(CLIENTS) as u64);
    let address = speaks_first(SOON, late);
    let daemon = Daemon::start(&vcl(address, ""), &["-p", "backend_quiet_time=0.5"]);
    let paths: Vec<_> = (0..CLIENTS).map(|n| format!("/{n}")).collect();
    std::thread::scope(|scope| {
        for path in &paths {
            scope.spawn(|| get(daemon.address, path));
        }
    });
    std::thread::sleep(SETTLED);
    let is_wrong = |path: &&String| get(daemon.address, path).is_ok_and(|answer| answer.body == b"foreign");
    assert_eq!(paths.iter().filter(is_wrong).count(), 0, "still in the cache");
}

/// Promise: if VCL abandons a connection before the end of a response, the objects that came over it leave the cache.
#[test]
fn objects_that_cannot_be_checked_leave_the_cache() {
    const SUBS: &str = "sub vcl_recv { if (req.url ~ \"^/bad\") { return (pass); } }
        sub vcl_backend_response { if (bereq.url ~ \"^/bad\") { return (error(502)); } }";
    const TOOK: Duration = Duration::from_millis(400);
    let _slot = shared_slot();
    let is_shifted = AtomicBool::new(false);
    let origin = Origin::start(move |path, stream| {
        std::thread::sleep(TOOK);
        if path == "/victim" && !is_shifted.swap(true, Ordering::Relaxed) {
            return shift(stream, path, TOOK);
        }
        stream.write_all(page(path, false).as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, SUBS), &[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for n in 0..4 {
        client.get(&format!("/{n}")).expect("a response arrives");
    }
    client.get("/victim").expect("a response arrives");
    assert_eq!(client.get("/bad").expect("a response arrives").status, 502);
    std::thread::sleep(SETTLED);
    assert_eq!(client.get("/victim").expect("a response arrives").body, b"/victim");
}

/// Promise: the first reuse of a connection is tested also if unused connections were closed before.
#[test]
fn connections_that_end_in_order_do_not_end_the_trial() {
    const CLIENTS: usize = 8;
    let _slot = shared_slot();
    let lone = Arc::new(AtomicBool::new(true));
    let is_lone = lone.clone();
    let counts = std::sync::Mutex::new(std::collections::HashMap::new());
    let origin = Origin::start(move |path, stream| {
        std::thread::sleep(Duration::from_millis(200));
        let count = *counts
            .lock()
            .expect("no thread panics while it holds the lock")
            .entry(this_connection())
            .and_modify(|n| *n += 1)
            .or_insert(1);
        if count == 2 {
            return shift(stream, path, Duration::from_millis(200));
        }
        let _ = stream.write_all(page(path, false).as_bytes());
        if is_lone.load(Ordering::Relaxed) {
            // The origin closes idle connections after a while.
            std::thread::sleep(Duration::from_millis(300));
            return false;
        }
        true
    });
    let daemon = Daemon::start(&vcl(origin.address, "sub vcl_recv { return (pass); }"), &[]);
    for n in 0..3 {
        get(daemon.address, &format!("/lone/{n}")).expect("a response arrives");
        std::thread::sleep(Duration::from_millis(700));
    }
    lone.store(false, Ordering::Relaxed);
    let wrong = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for own in 0..CLIENTS {
            let (wrong, address) = (&wrong, daemon.address);
            scope.spawn(move || {
                let mut client = Client::connect(address).expect("connections are accepted");
                for n in 0..4 {
                    let path = format!("/{own}/{n}");
                    let answer = client.get(&path).expect("a response arrives");
                    wrong.fetch_add(usize::from(answer.body != path.as_bytes()), Ordering::Relaxed);
                }
            });
        }
    });
    let wrong = wrong.load(Ordering::Relaxed);
    assert!(wrong <= 1, "{wrong} responses belonged to another request");
}

/// Promise: a late body after HEAD, which is not a response, does not fail the next request: it is sent again.
#[test]
fn a_late_body_does_not_fail_the_next_request() {
    let _slot = shared_slot();
    let origin = Origin::by_method(move |request, stream| {
        if request.starts_with("HEAD") {
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nCache-Control: no-store\r\n\r\n");
            let late = stream.try_clone().expect("sockets can be cloned");
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(400));
                let _ = (&late).write_all(b"late body\r\n");
            });
            return true;
        }
        std::thread::sleep(Duration::from_millis(600));
        stream.write_all(page(request.split(' ').nth(1).unwrap_or_default(), false).as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, "sub vcl_recv { return (pass); }"), &[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n").expect("requests can be sent");
    client.head().expect("a response arrives");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.get("/next").expect("a response arrives").body, b"/next");
}
