//! Bodies that are small on the wire and cause much work: gzip streams that expand a thousandfold, that produce no
//! output or never end, ESI pages that include themselves, and JSON documents of very many objects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::machine::ticks;
use lacquer_testing::origin::Origin;

use crate::gz;

const MB: u64 = 1 << 20;

/// Starts a daemon with a single reactor, so that an attack that holds it affects all clients.
fn one_reactor(origin: &Origin) -> Daemon {
    one_reactor_with(origin, SUBS)
}

fn one_reactor_with(origin: &Origin, subs: &str) -> Daemon {
    let script = "exec taskset -c 0 \"$@\"";
    Daemon::start_by(&vcl(origin.address, subs), &["-s", "malloc,64M"], script)
}

fn send(stream: &mut TcpStream, head: &str, body: &[u8]) -> bool {
    let head = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).is_ok() && stream.write_all(body).is_ok()
}

/// The parts of a gzip header before an optional file name.
const NAMED: [u8; 10] = [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];

/// Starts an origin that serves bodies by path. Responses for `/endless...` do not end.
fn origin() -> Origin {
    let bomb = gz::zeros(effort(50, 500) << 20);
    let twice = [gz::zeros(1000), gz::zeros(1000)].concat();
    let digits = gz::digits(effort(40, 80) << 20);
    let itself = "<esi:include src=\"itself\"/>".repeat(200);
    let many = format!("<p>{}</p>", "<esi:include src=\"x\"/>".repeat(2000));
    Origin::start(move |path, stream| match path.rsplit('/').next().unwrap_or_default() {
        "bomb" => send(stream, "Content-Encoding: gzip\r\n", &bomb),
        "members" => send(stream, "Content-Encoding: gzip\r\n", &twice),
        "itself" => send(stream, "X-Esi: yes\r\n", itself.as_bytes()),
        "many" => send(stream, "X-Esi: yes\r\n", many.as_bytes()),
        "x" => send(stream, "", b""),
        "digits" => send(stream, "Content-Encoding: gzip\r\n", &digits),
        "page" => send(stream, "X-Esi: yes\r\nX-Gzip: yes\r\n", b"<p><esi:include src=\"digits\"/></p>"),
        "endless-header" => endless(stream, "Content-Encoding: gzip\r\n", &NAMED, &b"n".repeat(1 << 16)),
        "endless-attribute" => {
            endless(stream, "X-Esi: yes\r\n", b"<esi:include src=\"", &b"n".repeat(1 << 16))
        }
        "endless-faults" => endless(stream, "X-Esi: yes\r\n", b"<", &b"<esi:x>".repeat(9000)),
        _ => send(stream, "", b"small"),
    })
}

/// Sends as many bytes as the cache accepts, 2 GB at most.
fn endless(stream: &mut TcpStream, head: &str, first: &[u8], then: &[u8]) -> bool {
    let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
    let mut sent = stream.write_all(head.as_bytes()).is_ok() && stream.write_all(first).is_ok();
    for _ in 0..(2 << 30) / then.len() {
        sent = sent && stream.write_all(then).is_ok();
    }
    false
}

const SUBS: &str = "sub vcl_backend_response {
    if (beresp.http.X-Esi) { set beresp.do_esi = true; }
    if (bereq.url ~ \"^/unpacked\") { set beresp.do_gunzip = true; }
    if (bereq.url ~ \"^/repacked\" || beresp.http.X-Gzip) { set beresp.do_gzip = true; } }
    sub vcl_recv { if (req.url ~ \"^/pass\") { return (pass); } }";

const DOCUMENTS: &str = "import json; import std; import vtc;
    sub vcl_recv {
        if (req.method == \"POST\") {
            std.cache_req_body(1MB);
            json.parse_req_body();
            vtc.sleep(3s);
            return (synth(200, json.is_valid()));
        } }";

/// Requests hits until `ends` is set. Returns the longest time of one.
fn hits(address: SocketAddr, ends: &AtomicBool) -> Duration {
    let mut client = Client::connect(address).expect("connections are accepted");
    let mut longest = Duration::ZERO;
    while !ends.load(Ordering::Relaxed) {
        let asked = Instant::now();
        assert_eq!(client.get("/hit").expect("every hit gets a response").status, 200);
        longest = longest.max(asked.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    longest
}

/// The effects of an attack.
struct Effects {
    /// The longest time of a hit.
    longest: Duration,
    /// The maximum memory above idle.
    memory: u64,
    /// The factor by which hits may take longer.
    slack: u32,
}

/// Runs an attack beside hits.
fn beside(daemon: &mut Daemon, attack: impl FnOnce(SocketAddr) + Send + 'static) -> Effects {
    let address = daemon.address;
    get(address, "/hit").expect("a response arrives");
    let idle = daemon.resident().memory;
    let machine = daemon.machine();
    let ends = Arc::new(AtomicBool::new(false));
    let until_then = ends.clone();
    let asking = std::thread::spawn(move || hits(address, &until_then));
    let attacking = std::thread::spawn(move || attack(address));
    let mut most = 0;
    while !attacking.is_finished() {
        most = daemon.resident().memory.max(most);
        std::thread::sleep(Duration::from_millis(50));
    }
    attacking.join().expect("the attack runs");
    ends.store(true, Ordering::Relaxed);
    let longest = asking.join().expect("every hit gets a response");
    Effects { longest, memory: most.saturating_sub(idle), slack: machine.slack() }
}

/// Reads a response to its end, or to the end of the connection. Returns the number of bytes.
fn swallow(address: SocketAddr, path: &str, header: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("connections are accepted");
    let request = format!("GET {path} HTTP/1.1\r\nHost: attack\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("requests can be sent");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("sockets have timeouts");
    let (mut all, mut buffer) = (0, vec![0; 1 << 18]);
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        all += n;
    }
    all
}

/// Checks the effects: hits take less than 300 ms on an otherwise idle machine, and memory stays below a limit.
fn check(name: &str, effects: &Effects, megabytes: u64) {
    let &Effects { longest, memory: most, slack } = effects;
    eprintln!("{name}: hits took up to {longest:?}, {} MB above idle", most / MB);
    assert!(longest < Duration::from_millis(300) * slack, "{name}: a hit took {longest:?}");
    assert!(most < megabytes * MB, "{name}: {} MB above idle", most / MB);
}

/// Decompression for clients, of a whole body or a part, holds neither the reactor nor memory.
#[test]
fn unpacking_a_bomb_lets_others_run() {
    let origin = origin();
    let mut daemon = one_reactor(&origin);
    let done = beside(&mut daemon, |address| {
        let length = effort(50, 500) << 20;
        assert!(swallow(address, "/bomb", "") > length);
        let last = format!("Range: bytes={}-\r\n", length - 5);
        assert!(swallow(address, "/bomb", &last) < 1000);
        swallow(address, "/pass/bomb", "");
    });
    check("bombs for clients", &done, 20);
}

/// A bomb that is decompressed, tested or recompressed before it is stored does not hold the reactor, and takes no more
/// memory than the storage has.
#[test]
fn storing_a_bomb_lets_others_run() {
    let origin = origin();
    let mut daemon = one_reactor(&origin);
    let done = beside(&mut daemon, |address| {
        for path in ["/unpacked/1/bomb", "/unpacked/2/bomb", "/repacked/bomb", "/unpacked/3/bomb"] {
            swallow(address, path, "");
        }
    });
    check("bombs for the cache", &done, 64 + 20);
}

/// A stream without end, or with another stream after it, is refused or truncated without being kept in memory.
#[test]
fn endless_and_joined_streams_are_bounded() {
    let origin = origin();
    let mut daemon = one_reactor(&origin);
    let done = beside(&mut daemon, |address| {
        for path in
            ["/members", "/unpacked/members", "/endless-attribute", "/endless-faults", "/endless-header"]
        {
            swallow(address, path, "Accept-Encoding: gzip\r\n");
        }
    });
    check("endless bodies", &done, 64 + 30);
}

/// A large gzipped body is included in a gzipped page without holding the reactor.
#[test]
fn including_a_large_packed_body_lets_others_run() {
    let origin = origin();
    let mut daemon = one_reactor(&origin);
    swallow(daemon.address, "/digits", "Accept-Encoding: gzip\r\n");
    let done = beside(&mut daemon, |address| {
        for _ in 0..3 {
            assert!(swallow(address, "/page", "Accept-Encoding: gzip\r\n") > 10 << 20);
        }
    });
    assert!(done.longest < Duration::from_millis(100) * done.slack, "a hit took {:?}", done.longest);
    check("packed includes", &done, 40);
}

/// A page that includes itself on all levels does not stop other requests, and ends when its client leaves.
#[test]
fn a_page_that_includes_itself_lets_others_run() {
    let origin = origin();
    let mut daemon = one_reactor(&origin);
    let worker = daemon.worker();
    let done = beside(&mut daemon, |address| {
        let mut clients: Vec<_> =
            (0..3).map(|_| TcpStream::connect(address).expect("connections are accepted")).collect();
        for client in &mut clients {
            client.write_all(b"GET /itself HTTP/1.1\r\nHost: attack\r\n\r\n").expect("requests can be sent");
        }
        std::thread::sleep(Duration::from_secs(effort(1, 20)));
        let long = format!("/{}/many", "u".repeat(7000));
        swallow(address, &long, "");
    });
    check("pages that include themselves", &done, 30);
    let rests = || {
        let before = ticks(worker);
        std::thread::sleep(Duration::from_millis(500));
        ticks(worker) - before < 10
    };
    let left = Instant::now();
    assert!(until(rests), "the daemon still works for clients that have left");
    assert!(left.elapsed() < Duration::from_secs(4), "it worked {:?} for clients that left", left.elapsed());
}

/// Documents that need a hundred times their size neither hold the reactor nor fill the memory.
#[test]
fn documents_of_many_objects_let_others_run() {
    let origin = origin();
    let mut daemon = one_reactor_with(&origin, DOCUMENTS);
    let done = beside(&mut daemon, |address| {
        let nested = "{\"\":".repeat(126) + "0" + &"}".repeat(126);
        let document = format!("[{}0]", format!("{nested},").repeat(600));
        let head = format!("POST / HTTP/1.1\r\nHost: attack\r\nContent-Length: {}\r\n\r\n", document.len());
        let request: Arc<str> = (head + &document).into();
        let send = move || {
            let mut client = Client::connect(address).expect("connections are accepted");
            client.ask(&request).expect("a response arrives").head.starts_with("HTTP/1.1 200 true")
        };
        let clients: Vec<_> = (0..30).map(|_| std::thread::spawn(send.clone())).collect();
        let parsed = clients.into_iter().map(|client| client.join().expect("a client does not fail"));
        assert!(parsed.filter(|is_parsed| *is_parsed).count() > 0, "some are within the limit");
    });
    check("documents of many objects", &done, 256 + 100);
}
