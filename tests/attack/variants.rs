//! Thousands of variants of a URL, with a disk behind the memory.

use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, Response};
use lacquer_testing::daemon::{Daemon, signal, until, vcl};
use lacquer_testing::recorder::Recorder;
use lacquer_testing::slots::shared_slot;

const VARIANTS: usize = 2000;
const PURGES: &str = r#"sub vcl_recv { if (req.method == "PURGE") { return (purge); } }"#;

fn field<'a>(request: &'a str, name: &str) -> &'a str {
    let line = request.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("", |value| value.trim_start_matches(':').trim())
}

/// Sends a response that contains the header by which it varies: `X-B` if the request has one on `/two`, else `X-A`.
fn respond(request: &str) -> Vec<u8> {
    let is_second = request.starts_with("GET /two") && request.contains("X-B:");
    let name = if is_second { "X-B" } else { "X-A" };
    let body = format!("{name} {}", field(request, name));
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nVary: {name}\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn ask(daemon: &Daemon, client: &mut Option<Client>, request: &str) -> Response {
    let client =
        client.get_or_insert_with(|| Client::connect(daemon.address).expect("connections are accepted"));
    client.ask(&format!("{request}\r\nHost: a\r\n\r\n")).expect("it is whole")
}

/// Promise: a client that makes thousands of variants of a URL does not stop it: the work of a request that finds nothing
/// in memory does not grow with the number of variants on a disk.
#[test]
fn variants_on_a_disk_are_not_read_for_each_other() {
    let _slot = shared_slot();
    let file = std::env::temp_dir().join(format!("lacquer-variants-{}", std::process::id()));
    let origin = Recorder::start(respond);
    let store = format!("disk,{},size=64m,memory=32m", file.display());
    let options = ["-s", &store, "-p", "disk_flush_interval=0.1"];
    let mut daemon = Daemon::start(&vcl(origin.address, PURGES), &options);
    let began = Instant::now();
    let mut client = None;
    let mut slowest = Duration::ZERO;
    for number in 0..VARIANTS {
        let began = Instant::now();
        let made = ask(&daemon, &mut client, &format!("GET /one HTTP/1.1\r\nX-A: {number}"));
        slowest = slowest.max(began.elapsed());
        assert_eq!(made.body, format!("X-A {number}").as_bytes());
    }
    // The names of the headers change, too.
    for number in 0..100 {
        let name = if number % 3 == 0 { "X-B" } else { "X-A" };
        let made = ask(&daemon, &mut client, &format!("GET /two HTTP/1.1\r\n{name}: {number}"));
        assert_eq!(made.body, format!("{name} {number}").as_bytes());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    std::thread::sleep(Duration::from_millis(500));
    let before = daemon.worker();
    signal(before, "-KILL");
    assert!(until(|| Client::connect(daemon.address).and_then(|mut client| client.get("/up")).is_ok()));
    std::thread::sleep(Duration::from_millis(500));
    client = None;
    origin.take();
    for number in [5, VARIANTS / 2, VARIANTS - 1, 6] {
        let found = ask(&daemon, &mut client, &format!("GET /one HTTP/1.1\r\nX-A: {number}"));
        assert_eq!(found.body, format!("X-A {number}").as_bytes());
    }
    for number in [98, 98] {
        let found = ask(&daemon, &mut client, &format!("GET /two HTTP/1.1\r\nX-A: {number}"));
        assert_eq!(found.body, format!("X-A {number}").as_bytes());
    }
    let fetched = origin.take();
    assert!(
        fetched.len() <= 1 && !fetched.iter().any(|request| request.starts_with("GET /one")),
        "{fetched:?}"
    );
    assert_eq!(ask(&daemon, &mut client, "PURGE /one HTTP/1.1").status, 200);
    ask(&daemon, &mut client, "GET /one HTTP/1.1\r\nX-A: 7");
    assert_eq!(origin.take().len(), 1, "a purge removes all variants");
    let _ = std::fs::remove_file(file);
}
