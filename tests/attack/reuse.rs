//! Reuse of origin connections. An origin that sends an unsolicited response deceives one client at most, however slow
//! it is. Correct origins lose little throughput by the precautions.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::{Origin, this_connection};
use lacquer_testing::slots::{in_parallel, shared_slot};

use crate::faulty_origins::passes_to;
use crate::foreign_responses::page;

const PASS: &str = "sub vcl_recv { return (pass); }";

/// Lets each client request its own pages until the time has passed. Returns the duration of each request.
fn ask(address: SocketAddr, clients: usize, time: Duration, wrong: &Arc<AtomicUsize>) -> Vec<Duration> {
    let end = Instant::now() + time;
    let client = |own| {
        let wrong = wrong.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(address).expect("connections are accepted");
            let mut times = Vec::new();
            for n in 0.. {
                if Instant::now() > end {
                    break;
                }
                let (path, asked) = (format!("/{own}/{n}"), Instant::now());
                let answer = client.get(&path).expect("every request gets a response");
                assert_eq!(answer.status, 200);
                wrong.fetch_add(usize::from(answer.body != path.as_bytes()), Ordering::Relaxed);
                times.push(asked.elapsed());
            }
            times
        })
    };
    let all: Vec<_> = (0..clients).map(client).collect();
    all.into_iter().flat_map(|client| client.join().expect("clients do not panic")).collect()
}

/// Promise: an origin that is used for the first time, by many clients at once, and that sends a surplus response after
/// each second one, deceives at most one client. The same holds for an origin that was correct for a while, if its
/// responses take up to half a second.
#[test]
fn slow_origins_deceive_one_client() {
    let slot = shared_slot();
    let cases = effort(
        &[(150, false), (150, true)][..],
        &[(5, false), (150, false), (400, false), (150, true), (300, true)],
    );
    in_parallel(&slot, cases.iter(), |&(millis, is_late)| {
        let took = Duration::from_millis(millis);
        let (begun, done) = (Instant::now(), AtomicBool::new(false));
        let known = Mutex::new(HashSet::new());
        let origin = Origin::start(move |path, stream| {
            let is_first =
                known.lock().expect("no thread panics while it holds the lock").insert(this_connection());
            let is_time = begun.elapsed() > Duration::from_secs(3);
            if is_late && is_time && !done.swap(true, Ordering::Relaxed) || !is_late && !is_first {
                let _ = stream.write_all(page("unsolicited", false).as_bytes());
            }
            std::thread::sleep(took);
            stream.write_all(page(path, false).as_bytes()).is_ok()
        });
        let daemon = Daemon::start(&vcl(origin.address, PASS), &[]);
        let (clients, wrong) = (if is_late { 1 } else { 20 }, Arc::new(AtomicUsize::new(0)));
        ask(daemon.address, clients, Duration::from_secs(effort(5, 15)), &wrong);
        let wrong = wrong.load(Ordering::Relaxed);
        assert!(wrong <= 1, "{wrong} wrong, {took:?}, late: {is_late}");
    });
}

/// Promise: after a response without a body by rule, a connection is reused no sooner than after 50 ms, however many
/// requests wait for one.
#[test]
fn no_rest_after_a_bodyless_response_is_cut_short() {
    let _slot = shared_slot();
    let shortest = Arc::new(Mutex::new(Duration::MAX));
    let seen = shortest.clone();
    // The time of the last response to HEAD, by connection.
    let heads = Mutex::new(HashMap::new());
    let origin = Origin::by_method(move |request, stream| {
        if let Some(then) =
            heads.lock().expect("no thread panics while it holds the lock").remove(&this_connection())
        {
            let mut shortest = seen.lock().expect("no thread panics while it holds the lock");
            *shortest = shortest.min(Instant::elapsed(&then));
        }
        let (method, path) = request.split_once(' ').unwrap_or_default();
        std::thread::sleep(Duration::from_millis(if path.ends_with("slow") { 100 } else { 2 }));
        let text = page(path, false);
        let head = text.find("\r\n\r\n").map_or(0, |end| end + 4);
        let is_head = method == "HEAD";
        if is_head {
            heads
                .lock()
                .expect("no thread panics while it holds the lock")
                .insert(this_connection(), Instant::now());
        }
        stream.write_all(if is_head { &text.as_bytes()[..head] } else { text.as_bytes() }).is_ok()
    });
    let subs = passes_to(origin.address, ".max_connections = 40;");
    let daemon = Daemon::start(&vcl(origin.address, &subs), &[]);
    let (end, address) = (Instant::now() + Duration::from_secs(effort(4, 20)), daemon.address);
    let client = |own: usize| {
        std::thread::spawn(move || {
            let mut client = Client::connect(address).expect("connections are accepted");
            while Instant::now() < end {
                if own.is_multiple_of(2) {
                    client.get("/slow").expect("a response arrives");
                } else {
                    client.send("HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n").expect("requests can be sent");
                    client.head().expect("a response arrives");
                }
            }
        })
    };
    (0..16)
        .map(client)
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|client| client.join().expect("a response arrives"));
    let shortest = *shortest.lock().expect("no thread panics while it holds the lock");
    // The origin records its response slightly after the connection begins to rest.
    assert!(shortest > Duration::from_millis(45), "a connection was reused after {shortest:?}");
}

/// Promise: clients that keep all connections of a slow origin busy get at least four fifths of its throughput.
#[test]
fn busy_connections_lose_little_by_their_rests() {
    const CLIENTS: usize = 4;
    let took = Duration::from_millis(60);
    let origin = Origin::start(move |path, stream| {
        std::thread::sleep(took);
        stream.write_all(page(path, false).as_bytes()).is_ok()
    });
    let mut daemon = Daemon::start(&vcl(origin.address, PASS), &[]);
    let wrong = Arc::new(AtomicUsize::new(0));
    // The first reuse of a connection happens alone.
    ask(daemon.address, CLIENTS, Duration::from_secs(1), &wrong);
    let machine = daemon.machine();
    let time = Duration::from_secs(effort(4, 20));
    let count = ask(daemon.address, CLIENTS, time, &wrong).len();
    let most = CLIENTS * time.as_millis() as usize / took.as_millis() as usize;
    assert!(count * 10 * machine.slack() as usize > most * 8, "{count} of {most}");
    assert_eq!(wrong.load(Ordering::Relaxed), 0);
}

/// Promise: a response that took seconds does not delay the next ones.
#[test]
fn a_slow_response_delays_few_others() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        std::thread::sleep(Duration::from_millis(if path == "/slow" { 2000 } else { 5 }));
        stream.write_all(page(path, false).as_bytes()).is_ok()
    });
    let daemon = Daemon::start(&vcl(origin.address, PASS), &[]);
    get(daemon.address, "/fast").expect("a response arrives");
    get(daemon.address, "/slow").expect("a response arrives");
    let wrong = Arc::new(AtomicUsize::new(0));
    let times = ask(daemon.address, 1, Duration::from_secs(5), &wrong);
    let late: Duration = times.iter().filter(|&&time| time > Duration::from_millis(200)).sum();
    assert!(late < Duration::from_millis(2600), "requests waited for {late:?}");
}

/// Promise: requests do not wait for origins that close idle connections at once.
#[test]
fn origins_that_close_early_cause_no_waits() {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let done = stream.write_all(page(path, false).as_bytes()).is_ok();
        if let Ok(stream) = stream.try_clone() {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                let _ = stream.shutdown(std::net::Shutdown::Both);
            });
        }
        done
    });
    let daemon = Daemon::start(&vcl(origin.address, PASS), &[]);
    let mut times = Vec::new();
    for n in 0..60 {
        let asked = Instant::now();
        let answer = get(daemon.address, &format!("/{n}")).expect("a response arrives");
        assert_eq!(answer.status, 200);
        times.push(asked.elapsed());
        std::thread::sleep(Duration::from_millis(15));
    }
    times.sort_unstable();
    assert!(times[30] < Duration::from_millis(10), "half of them took longer than {:?}", times[30]);
}

/// Promise: an origin with one thread and a configured limit of one connection never gets a second connection while the
/// first rests.
#[test]
fn one_connection_is_enough_for_responses_without_a_body() {
    let _slot = shared_slot();
    let open = Arc::new(AtomicUsize::new(0));
    let counted = open.clone();
    let known = Mutex::new(HashSet::new());
    let origin = Origin::by_method(move |_, stream| {
        if known.lock().expect("no thread panics while it holds the lock").insert(this_connection()) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_ok()
    });
    let subs = passes_to(origin.address, ".max_connections = 1;");
    let daemon = Daemon::start(&vcl(origin.address, &subs), &[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    for n in 0..50 {
        let asked = Instant::now();
        assert_eq!(client.get(&format!("/{n}")).expect("a response arrives").status, 204);
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(1), "request {n} took {took:?}");
    }
    assert_eq!(open.load(Ordering::Relaxed), 1, "connections beyond the limit");
}

/// A request as an origin received it: its first line, the length that its head states, and the length of its body.
type Seen = (String, usize, usize);

/// Records requests, and responds even if the body does not arrive.
fn record(stream: &TcpStream, seen: &Mutex<Vec<Seen>>) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let (mut input, mut output) = (BufReader::new(stream), stream);
    loop {
        let (mut head, mut line) = (Vec::new(), String::new());
        while line != "\r\n" {
            line.clear();
            input.read_line(&mut line).ok().filter(|&n| n > 0)?;
            head.push(line.to_ascii_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let (length, mut body) = (length.unwrap_or(0), Vec::new());
        stream.set_read_timeout(Some(Duration::from_millis(500))).ok()?;
        // Stops at the end of the time.
        let _ = input.by_ref().take(length as u64).read_to_end(&mut body);
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        seen.lock().ok()?.push((head.swap_remove(0), length, body.len()));
        output
            .write_all(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nok")
            .ok()?;
    }
}

const ROLLBACK: &str = "
import std;
sub vcl_recv {
    if (req.restarts > 0) { set req.http.X-Again = \"yes\"; }
    if (req.url == \"/kept\") { std.cache_req_body(1KB); }
    if (req.method == \"POST\") { return (pass); }
}
sub vcl_backend_fetch {
    if (bereq.retries > 0 || bereq.http.X-Again) { std.rollback(bereq); return (fetch); }
}
sub vcl_backend_response { if (bereq.url != \"/restart\" && bereq.retries == 0) { return (retry); } }
sub vcl_deliver { if (req.url == \"/restart\" && req.restarts == 0) { return (restart); } }
";

/// Promise: a request states the length of the body that follows, also after VCL has restored the client's head for an
/// attempt without the client's body. Otherwise the origin would take the next request on the connection for the body.
#[test]
fn no_request_states_a_length_that_does_not_follow() {
    let _slot = shared_slot();
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let origin = listener.local_addr().expect("it is bound");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = kept.clone();
            std::thread::spawn(move || record(&stream, &kept));
        }
    });
    let daemon = Daemon::start(&vcl(origin, ROLLBACK), &[]);
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let body = "x".repeat(200);
    for (method, path) in [("GET", "/retry"), ("POST", "/restart"), ("POST", "/kept")] {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n{body}");
        assert_eq!(client.ask(&head).expect("a response arrives").status, 200, "{path}");
        assert_eq!(client.get("/next").expect("a response arrives").body, b"ok", "{path}");
    }
    let seen = seen.lock().expect("no thread panics while it holds the lock");
    // Each `GET /next` is retried, too.
    assert_eq!(seen.len(), 12, "{seen:?}");
    assert!(seen.iter().all(|(_, stated, received)| stated == received), "{seen:?}");
    assert_eq!(seen.iter().filter(|(_, stated, _)| *stated == 200).count(), 3, "{seen:?}");
}
