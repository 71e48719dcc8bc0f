//! Origins that fail for a while, some or all of their responses.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::{in_parallel, shared_slot};

const PAGES: usize = 12;

/// Clients get good pages from the cache, of which every second refresh fails in some way.
#[test]
fn stale_copies_hide_an_origin_that_fails_every_second_time() {
    let slot = shared_slot();
    let served: [AtomicUsize; PAGES] = Default::default();
    let bad = std::sync::Arc::new(AtomicUsize::new(0));
    let count = bad.clone();
    let origin = Origin::start(move |path, stream| {
        let page: usize = path.trim_start_matches('/').parse().unwrap_or(0);
        let number = served[page % PAGES].fetch_add(1, Ordering::SeqCst);
        if number.is_multiple_of(2) {
            return stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood").is_ok();
        }
        count.fetch_add(1, Ordering::SeqCst);
        let response: &[u8] = match number / 2 % 5 {
            0 => b"HTTP/1.1 500 Bad\r\nContent-Length: 3\r\n\r\nbad",
            1 => b"HTTP/1.1 503 Bad\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
            2 => b"HTTP/1.1 502 Bad\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            3 => b"HTTP/1.1 504 Bad\r\nContent-Length: 0\r\n\r\n",
            // Beyond the time that the cache waits.
            _ => {
                std::thread::sleep(Duration::from_millis(600));
                return false;
            }
        };
        stream.write_all(response).is_ok() && number / 2 % 5 != 2
    });
    let subs = "sub vcl_backend_response {
            if (beresp.status == 200) {
                set beresp.ttl = 50ms;
                set beresp.grace = 0s;
                set beresp.stale_if_error = 10m;
            }
        }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &["-p", "first_byte_timeout=0.3"]);
    let until = Instant::now() + Duration::from_secs(effort(5, 60));
    let requests = AtomicUsize::new(0);
    in_parallel(&slot, 0..6, |client| {
        let mut connection = Client::connect(daemon.address).expect("the daemon accepts");
        let mut page = client;
        while Instant::now() < until {
            let response = connection.get(&format!("/{}", page % PAGES)).expect("a response");
            assert_eq!((response.status, &response.body[..]), (200, &b"good"[..]), "page {page}");
            requests.fetch_add(1, Ordering::SeqCst);
            page += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let (requests, bad) = (requests.into_inner(), bad.load(Ordering::SeqCst));
    assert!(bad > PAGES && requests > 10 * PAGES, "{bad} failures for {requests} requests");
}

/// While the origin does not respond at all, its pages are served at once, except to the first that notices.
#[test]
fn stale_copies_do_not_wait_for_a_dead_origin() {
    let _slot = shared_slot();
    // A busy machine may stall.
    assert!((0..5).any(|_| dead_origin_delays_nobody()), "clients wait each time");
}

/// Returns whether all responses came in time.
fn dead_origin_delays_nobody() -> bool {
    let is_dead = std::sync::Arc::new(AtomicUsize::new(0));
    let dead = is_dead.clone();
    let origin = Origin::start(move |_, stream| {
        if dead.load(Ordering::SeqCst) != 0 {
            std::thread::sleep(Duration::from_secs(30));
            return false;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood").is_ok()
    });
    let subs = "sub vcl_backend_response { set beresp.ttl = 50ms; set beresp.grace = 0s; }";
    let options = ["-p", "first_byte_timeout=1", "-p", "stale_if_error=10m"];
    let daemon = Daemon::start(&vcl(origin.address, subs), &options);
    let get = || lacquer_testing::client::get(daemon.address, "/").expect("a response");
    assert_eq!(get().status, 200);
    is_dead.store(1, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    let status = std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| get().status)).collect();
        waiting.into_iter().map(|one| one.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(status, [200; 20]);
    // One fetch has failed, not one after the other.
    let first = begun.elapsed();
    let mut slowest = Duration::ZERO;
    for _ in 0..30 {
        let begun = Instant::now();
        assert_eq!(get().status, 200);
        slowest = slowest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let asked = origin.requests();
    eprintln!("{first:?}, then {slowest:?} at most, with {asked} requests to a dead origin");
    first < Duration::from_secs(3) && slowest < Duration::from_millis(700) && asked < 10
}

/// Starts an origin that refuses connections while `is_up` is 0: it closes them without a response.
fn flickering(is_up: std::sync::Arc<AtomicUsize>) -> Origin {
    Origin::start(move |_, stream| {
        is_up.load(Ordering::SeqCst) != 0
            && stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood").is_ok()
    })
}

/// Retries multiply the load of a dead origin by 1.2 at most, and hide one that is dead half of the time behind another.
#[test]
fn retries_have_a_budget() {
    let slot = shared_slot();
    let (first, second) =
        (std::sync::Arc::new(AtomicUsize::new(0)), std::sync::Arc::new(AtomicUsize::new(0)));
    let (one, other) = (flickering(first.clone()), flickering(second.clone()));
    let vcl = format!(
        "vcl 4.1;
        import directors;
        backend one {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
        backend other {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
        sub vcl_init {{
            new pair = directors.round_robin();
            pair.add_backend(one);
            pair.add_backend(other);
        }}
        sub vcl_recv {{ set req.backend_hint = pair.backend(); return (pass); }}",
        one.address.port(),
        other.address.port()
    );
    let options = ["-p", "backend_retries=3", "-p", "backend_remote_error_holddown=0"];
    let daemon = Daemon::start(&vcl, &options);
    let good = AtomicUsize::new(0);
    let ask = |count: usize| {
        good.store(0, Ordering::SeqCst);
        in_parallel(&slot, 0..4, |_| {
            let mut connection = Client::connect(daemon.address).expect("the daemon accepts");
            for _ in 0..count / 4 {
                let response = connection.get("/").expect("a response");
                good.fetch_add(usize::from(response.status == 200), Ordering::SeqCst);
            }
        });
        good.load(Ordering::SeqCst)
    };
    let asked = || one.requests() + other.requests();
    let count = effort(400, 4000);
    assert_eq!(ask(count), 0);
    let attempts = asked();
    assert!(attempts <= count + count / 5 + 10, "{attempts} attempts for {count} requests");
    assert!(attempts >= count + count / 5 - 10, "{attempts} attempts for {count} requests");
    // One of them is up. Every second request fails first, so the budget is enough for two of five failures.
    first.store(1, Ordering::SeqCst);
    let before = asked();
    let served = ask(count);
    assert!(served >= count * 11 / 20, "{served} of {count}");
    assert!(asked() - before <= count + count / 5 + 10, "{} attempts", asked() - before);
    // Both are up, and good times restore the reserve.
    second.store(1, Ordering::SeqCst);
    assert_eq!(ask(count), count);
    // One is dead for a moment: nobody notices.
    first.store(0, Ordering::SeqCst);
    assert_eq!(ask(8), 8);
}

/// An address that swallows connections costs a few requests their time, not all of them.
#[test]
fn a_circuit_breaker_spares_requests_the_wait_for_a_dead_address() {
    let _slot = shared_slot();
    // A backlog that is full drops further attempts, as a dead machine does.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    let limit = Duration::from_millis(300);
    let mut held = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, limit) {
        held.push(stream);
        assert!(held.len() < 10_000, "the backlog has an end");
    }
    // A busy machine may stall.
    assert!((0..5).any(|_| breaker_spares_the_wait(address)), "requests wait each time");
}

/// Returns whether only those requests to a dead address took long that try it.
fn breaker_spares_the_wait(address: SocketAddr) -> bool {
    let options =
        ["-p", "backend_breaker_failures=3", "-p", "backend_breaker_pause=1.5", "-p", "connect_timeout=0.4"];
    let subs = "sub vcl_recv { return (pass); }";
    let daemon = Daemon::start(&vcl(address, subs), &options);
    let took = || {
        let begun = Instant::now();
        assert_eq!(lacquer_testing::client::get(daemon.address, "/").expect("a response").status, 503);
        begun.elapsed()
    };
    for _ in 0..3 {
        assert!(took() > Duration::from_millis(350), "an attempt is made");
    }
    let slowest = (0..20).map(|_| took()).max();
    std::thread::sleep(Duration::from_secs(2));
    // One request tries, and the others do not wait for it.
    let slow = std::thread::scope(|scope| {
        let all: Vec<_> = (0..10).map(|_| scope.spawn(took)).collect();
        let all = all.into_iter().map(|one| one.join().expect("no panic"));
        all.filter(|took| *took > Duration::from_millis(350)).count()
    });
    assert!(daemon.logs("the circuit breaker opens"));
    eprintln!("{slowest:?} at most, then {slow} that wait");
    slowest < Some(Duration::from_millis(250)) && slow == 1
}

/// Promise: copies that came over a connection stay in the cache if VCL decides against a later response there.
#[test]
fn decisions_against_a_response_keep_the_copies_before_it() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let is_long = path.ends_with("long");
        let (status, body) = if path.starts_with("/bad") {
            ("500 Internal Server Error", "x".repeat(if is_long { 9000 } else { 5 }))
        } else {
            ("200 OK", path.to_owned())
        };
        let head = format!("HTTP/1.1 {status}\r\nCache-Control: max-age=600\r\n");
        stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).is_ok()
    });
    let subs = "
        sub vcl_backend_response {
            if (beresp.status == 500) {
                if (bereq.url ~ \"abandon\") { return (abandon); }
                if (bereq.url ~ \"error\") { return (error(503)); }
                if (bereq.url ~ \"retry\" && bereq.retries == 0) { return (retry); }
                if (bereq.url ~ \"fail\") { return (fail); }
            }
        }";
    let daemon = Daemon::start(&vcl(origin.address, subs), &[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for decision in ["abandon", "error", "retry", "fail", "abandon-long", "retry-long"] {
        let paths: Vec<_> = (0..5).map(|number| format!("/{decision}/{number}")).collect();
        for path in &paths {
            assert_eq!(client.get(path).expect("a response arrives").body, path.as_bytes());
        }
        let asked = origin.requests();
        assert!(client.get(&format!("/bad/{decision}")).expect("a response arrives").status >= 500);
        let attempts = if decision.starts_with("retry") { 2 } else { 1 };
        assert_eq!(origin.requests() - asked, attempts, "{decision}");
        for path in &paths {
            assert_eq!(client.get(path).expect("a response arrives").body, path.as_bytes());
        }
        assert_eq!(origin.requests() - asked, attempts, "{decision}: copies were lost");
    }
}
