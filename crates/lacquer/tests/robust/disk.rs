//! `-s disk`: objects survive the end of all processes, and nothing comes back that was purged, banned or replaced.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lacquer_testing::Random;
use lacquer_testing::client::{Client, Response};
use lacquer_testing::daemon::{Daemon, refused, signal, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::{SharedSlot, shared_slot};
use lacquer_testing::until;

use crate::disk_waits::{disk_counters, refusals, wait_for_index, wait_for_queue, wait_for_writes};

pub(crate) const SUBS: &str = r#"
import std;
sub vcl_recv {
    if (req.method == "PURGE") { return (purge); }
    if (req.method == "BAN") { std.ban("req.url == " + req.url); return (synth(200)); }
    if (req.http.refresh) { set req.hash_always_miss = true; }
}
sub vcl_backend_response {
    set beresp.ttl = 1h;
    set beresp.grace = 1h;
    set beresp.storage = storage.s0;
    if (bereq.url ~ "^/mark") { set beresp.uncacheable = true; set beresp.ttl = 0.5s; }
}
sub vcl_deliver { set resp.http.hits = obj.hits; }
"#;

/// A folder with a store, which is removed at the end of the test.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("lacquer-disk-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory can be created");
        Place(path)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("lacquer.store")
    }

    pub(crate) fn option(&self, more: &str) -> String {
        format!("disk,{}{more}", self.0.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The length of a body: mostly small, some longer than one read.
fn length(n: u64) -> usize {
    match n % 50 {
        0 => 900_000 + n as usize,
        1..6 => 30_000 + n as usize * 97,
        _ => n as usize * 131 % 9000,
    }
}

pub(crate) fn body(n: u64, version: usize, variant: &str) -> Vec<u8> {
    let mut bytes = Random(n + 1000 * version as u64).bytes(length(n));
    bytes.extend_from_slice(variant.as_bytes());
    bytes
}

/// An origin of numbered pages in versions. `/N/VARIANT` varies by the header `X-V`. The test runs beside others.
pub(crate) struct Pages {
    origin: Origin,
    _slot: SharedSlot,
    pub(crate) version: Arc<AtomicUsize>,
}

impl Pages {
    pub(crate) fn start() -> Pages {
        let slot = shared_slot();
        let version = Arc::new(AtomicUsize::new(1));
        let current = Arc::clone(&version);
        let origin = Origin::start(move |path, stream| {
            let path = path.strip_prefix("/mark").unwrap_or(path);
            let mut words = path.split('/').skip(1);
            let n: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let variant = words.next().unwrap_or_default();
            let version = current.load(Ordering::SeqCst);
            let body = body(n, version, variant);
            let vary = if variant.is_empty() { "" } else { "Vary: X-V\r\n" };
            let head = format!(
                "HTTP/1.1 200 OK\r\n{vary}X-Seventh: {}\r\nX-Version: {version}\r\nContent-Length: {}\r\n\r\n",
                n % 7,
                body.len()
            );
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
        });
        Pages { origin, _slot: slot, version }
    }

    pub(crate) fn requests(&self) -> usize {
        self.origin.requests()
    }

    /// Starts a daemon, and waits until it has read the index: until then, requests are misses.
    pub(crate) fn daemon(&self, option: &str) -> Daemon {
        // Evictions of 50 small pages, the default, do not always free enough for a long one: its response would be cut.
        self.daemon_with(&["-s", option, "-p", "nuke_limit=1000"])
    }

    pub(crate) fn daemon_with(&self, options: &[&str]) -> Daemon {
        self.daemon_by(SUBS, options)
    }

    /// Starts a daemon, and does not wait until it has read the index.
    pub(crate) fn daemon_at_once(&self, subs: &str, options: &[&str]) -> Daemon {
        Daemon::start(&vcl(self.origin.address, subs), options)
    }

    /// Starts a daemon with other subroutines.
    pub(crate) fn daemon_by(&self, subs: &str, options: &[&str]) -> Daemon {
        let mut daemon = self.daemon_at_once(subs, options);
        wait_for_index(&mut daemon);
        daemon
    }
}

pub(crate) fn ask(client: &mut Client, method: &str, path: &str, headers: &str) -> Response {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    let response = client.send(&request).and_then(|()| client.response_to(method));
    response.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// Returns the version of a page, after checking its body.
pub(crate) fn version(client: &mut Client, n: u64) -> usize {
    let response = ask(client, "GET", &format!("/{n}"), "");
    assert_eq!(response.status, 200, "{n}");
    let version = response.header("X-Version").and_then(|text| text.parse().ok()).expect("a version");
    assert!(response.body == body(n, version, ""), "the body of {n}: {} bytes", response.body.len());
    version
}

/// Checks the bodies of pages.
pub(crate) fn read_all(client: &mut Client, pages: Range<u64>) {
    for n in pages {
        version(client, n);
    }
}

/// The number of pages that are requested before the disk is waited for. They have room in the smallest queue.
const FEW: usize = 25;

/// Fetches pages, and then requests those again that came faster than the disk could write them, until it has all.
pub(crate) fn store_all(daemon: &Daemon, client: &mut Client, pages: impl IntoIterator<Item = u64>) {
    let pages: Vec<u64> = pages.into_iter().collect();
    let mut before = refusals(daemon);
    for &n in &pages {
        version(client, n);
    }
    wait_for_writes(daemon);
    if refusals(daemon) == before {
        return;
    }
    // A hit does not offer its page while the writer is far behind, so that one round does not suffice.
    let mut complete = 0;
    for _ in 0..10 {
        before = refusals(daemon);
        let mut cut = 0;
        for few in pages.chunks(FEW) {
            for &n in few {
                // A disk that is so slow may be taken for one that does not respond.
                if client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).is_err() {
                    *client = connect(daemon);
                    cut += 1;
                }
            }
            // The counters are published ten times a second.
            thread::sleep(Duration::from_millis(300));
            wait_for_queue(daemon);
        }
        wait_for_writes(daemon);
        complete = if cut == 0 && refusals(daemon) == before { complete + 1 } else { 0 };
        if complete == 2 {
            return;
        }
    }
    panic!("the disk refuses objects: {}{}", daemon.stderr(), disk_counters(daemon));
}

/// Writes a file, and waits until it is on the disk: reads of a store would wait for that, longer than a request does.
pub(crate) fn write_to_disk(path: &Path, bytes: &[u8]) {
    let written = fs::write(path, bytes).and_then(|()| fs::File::open(path)?.sync_all());
    written.expect("it can be written");
}

pub(crate) fn connect(daemon: &Daemon) -> Client {
    Client::connect(daemon.address).expect("it accepts")
}

/// Waits until the objects are durable, and kills all processes.
pub(crate) fn kill_all(daemon: Daemon) {
    wait_for_writes(&daemon);
    thread::sleep(Duration::from_millis(1500));
    kill_now(daemon);
}

/// Kills all processes.
pub(crate) fn kill_now(mut daemon: Daemon) {
    let (manager, worker) = (daemon.manager(), daemon.worker());
    signal(worker, "-KILL");
    signal(manager, "-KILL");
    assert!(until(|| !Path::new(&format!("/proc/{worker}/exe")).exists()));
}

/// Requests that need no or few bytes of a body.
fn ask_for_parts(client: &mut Client) {
    let large = body(50, 1, "");
    let head = ask(client, "HEAD", "/50", "");
    assert_eq!(head.header("Content-Length"), Some(&*large.len().to_string()));
    let part = ask(client, "GET", "/50", "Range: bytes=700000-700099\r\n");
    assert_eq!((part.status, &*part.body), (206, &large[700_000..700_100]));
}

#[test]
fn objects_survive_the_end_of_all_processes() {
    let (pages, place) = (Pages::start(), Place::new("kill"));
    let option = place.option(",size=128m,memory=32m");
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    store_all(&daemon, &mut client, 0..500);
    assert!((0..500).all(|n| version(&mut client, n) == 1));
    for n in (0..100).step_by(5) {
        for variant in ["a", "b"] {
            ask(&mut client, "GET", &format!("/{n}/{variant}"), &format!("X-V: {variant}\r\n"));
        }
    }
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let before = pages.requests();
    let mut daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    let hits = (0..500).filter(|&n| version(&mut client, n) == 1).count();
    assert!(hits >= 495, "{hits} hits: {}", daemon.stderr());
    assert_eq!(pages.requests() - before, 500 - hits);
    for n in (0..100).step_by(5) {
        for variant in ["a", "b"] {
            let response =
                ask(&mut client, "GET", &format!("/{n}/{variant}"), &format!("X-V: {variant}\r\n"));
            assert!(response.body == body(n, 1, variant), "variant {variant} of {n}");
        }
    }
    assert_eq!(pages.requests() - before, 500 - hits, "variants were fetched");
    assert!(daemon.logs("disk s0"));

    ask_for_parts(&mut client);
    drop(client);

    // Purges, bans and newer versions, of objects in memory and on the disk alone.
    let mut client = connect(&daemon);
    for n in (0..500).step_by(11) {
        assert_eq!(ask(&mut client, "PURGE", &format!("/{n}"), "").status, 200);
    }
    assert_eq!(ask(&mut client, "BAN", "/17", "").status, 200);
    daemon.ok("ban obj.http.X-Seventh == 2");
    for n in (3..500).step_by(50) {
        ask(&mut client, "GET", &format!("/{n}"), "refresh: 1\r\n");
    }
    kill_all(daemon);
    let is_gone = |n: u64| n.is_multiple_of(11) || n % 7 == 2 || n == 17 || n % 50 == 3;
    pages.version.store(3, Ordering::SeqCst);
    let mut daemon = pages.daemon(&option);
    assert!(daemon.ok("ban.list").contains("obj.http.X-Seventh == 2"), "{}", daemon.ok("ban.list"));
    let mut client = connect(&daemon);
    let mut stayed = 0;
    for n in 0..500 {
        let version = version(&mut client, n);
        assert!(version > 1 || !is_gone(n), "{n} came back");
        stayed += usize::from(version == 1 && !is_gone(n));
    }
    let expected = (0..500).filter(|&n| !is_gone(n)).count();
    assert!(stayed * 100 >= expected * 98, "{stayed} of {expected}: {}", daemon.stderr());
    // New bans have higher numbers, and apply to what is on the disk.
    daemon.ok("ban obj.http.X-Seventh == 3");
    kill_all(daemon);
    pages.version.store(4, Ordering::SeqCst);
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    for n in 0..500 {
        let version = version(&mut client, n);
        assert!(version == 4 || n % 7 != 3, "{n} came back as {version}");
    }
}

/// Requests that need no byte of a body do not keep what was read with the heads.
#[test]
fn requests_for_heads_of_long_objects_do_not_fill_the_memory() {
    let (pages, place) = (Pages::start(), Place::new("heads"));
    let option = place.option(",size=512m,memory=64m");
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    // They have 300 to 600 kB.
    let long: Vec<u64> = (2800..5800).filter(|n| (1..6).contains(&(n % 50))).collect();
    store_all(&daemon, &mut client, long.iter().copied());
    let fetched = pages.requests();
    kill_all(daemon);
    let mut daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    for &n in &long[..20] {
        ask(&mut client, "HEAD", &format!("/{n}"), "");
    }
    let before = daemon.resident().memory;
    for &n in &long {
        let head = ask(&mut client, "HEAD", &format!("/{n}"), "");
        assert_eq!(head.header("Content-Length"), Some(&*length(n).to_string()));
    }
    let grown = daemon.resident().memory.saturating_sub(before);
    assert_eq!(pages.requests(), fetched, "all are hits");
    assert!(grown < 20 << 20, "{grown} bytes more in memory");
}

#[test]
fn replaced_objects_stay_gone_when_memory_is_short() {
    let (pages, place) = (Pages::start(), Place::new("short"));
    let daemon = pages.daemon(&place.option(",size=256m,memory=16m"));
    let mut client = connect(&daemon);
    let churn = |client: &mut Client| (0..200).for_each(|n| drop(ask(client, "GET", &format!("/{n}/x"), "")));
    store_all(&daemon, &mut client, 0..200);
    pages.version.store(2, Ordering::SeqCst);
    // Even pages get a new version, and some of those that are not stored.
    for n in (0..200).step_by(2) {
        ask(&mut client, "GET", &format!("/{n}"), "refresh: 1\r\n");
    }
    let before = pages.requests();
    churn(&mut client);
    for n in 0..200 {
        let version = version(&mut client, n);
        assert_eq!(version, if n.is_multiple_of(2) { 2 } else { 1 }, "{n}");
    }
    let fetched = pages.requests() - before;
    assert!(fetched < 230, "{fetched} requests, although the disk has all objects");
}

#[test]
fn damaged_objects_are_misses() {
    let (pages, place) = (Pages::start(), Place::new("damage"));
    let option = place.option(",size=64m,memory=64m");
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..200);
    daemon.end_in_order();
    let before = pages.requests();
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..200);
    assert_eq!(pages.requests(), before, "{}", daemon.stderr());
    drop(daemon);
    let mut bytes = fs::read(place.store()).expect("there is a store");
    for at in (1 << 20..bytes.len()).step_by(50_000) {
        bytes[at] ^= 4;
    }
    write_to_disk(&place.store(), &bytes);
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    // A long response that had begun is cut off. After that, all objects are sound.
    for n in 0..200 {
        let request = format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n");
        if client.ask(&request).is_err() {
            client = connect(&daemon);
        }
    }
    read_all(&mut client, 0..200);
    let fetched = pages.requests() - before;
    assert!((5..200).contains(&fetched), "{fetched} objects were fetched again");
}

#[test]
fn a_full_store_drops_its_oldest_objects() {
    let (pages, place) = (Pages::start(), Place::new("full"));
    let option = place.option(",size=16m,memory=128m");
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..1450);
    // The newest have room in the queue.
    wait_for_writes(&daemon);
    read_all(&mut client, 1450..1500);
    daemon.end_in_order();
    let before = pages.requests();
    let mut daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    read_all(&mut client, 1450..1500);
    let fetched = pages.requests() - before;
    // One of them is longer than a segment.
    assert!(fetched <= 1, "{fetched} of the newest objects were fetched: {}", daemon.ok("storage.list"));
    read_all(&mut client, 0..50);
    assert!(pages.requests() - before >= 40, "the oldest are not");
}

#[test]
fn pages_that_are_requested_once_are_not_written() {
    let (pages, place) = (Pages::start(), Place::new("once"));
    let option = place.option(",size=64m,memory=32m");
    let daemon = pages.daemon_with(&["-s", &option, "-p", "disk_admission=2"]);
    let mut client = connect(&daemon);
    read_all(&mut client, 0..200);
    read_all(&mut client, 0..60);
    read_all(&mut client, 0..20);
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let daemon = pages.daemon_with(&["-s", &option, "-p", "disk_admission=2"]);
    let mut client = connect(&daemon);
    for n in 0..200 {
        assert_eq!(version(&mut client, n), if n < 60 { 1 } else { 2 }, "{n}");
    }
    // The hits on the disk have no other effect, and new versions replace those on the disk.
    for n in 0..60 {
        ask(&mut client, "GET", &format!("/{n}"), "refresh: 1\r\n");
    }
    kill_all(daemon);
    pages.version.store(3, Ordering::SeqCst);
    let daemon = pages.daemon_with(&["-s", &option, "-p", "disk_admission=2"]);
    let mut client = connect(&daemon);
    for n in 0..200 {
        assert_eq!(version(&mut client, n), if n < 60 { 2 } else { 3 }, "{n}");
    }
}

#[test]
fn objects_are_durable_after_the_flush_interval() {
    let pages = Pages::start();
    for (at_start, later, version_after) in [("0.05", None, 1), ("60", None, 2), ("60", Some("0.05"), 1)] {
        pages.version.store(1, Ordering::SeqCst);
        let place = Place::new("flush");
        let option = place.option(",size=64m,memory=32m");
        let parameter = format!("disk_flush_interval={at_start}");
        let mut daemon = pages.daemon_with(&["-s", &option, "-p", &parameter]);
        // Short pages, which are written together.
        read_all(&mut connect(&daemon), 6..50);
        if let Some(value) = later {
            thread::sleep(Duration::from_millis(500));
            daemon.ok(&format!("param.set disk_flush_interval {value}"));
        }
        kill_all(daemon);
        pages.version.store(2, Ordering::SeqCst);
        let daemon = pages.daemon(&option);
        let mut client = connect(&daemon);
        for n in 6..50 {
            assert_eq!(version(&mut client, n), version_after, "{n}, {at_start}, then {later:?}");
        }
    }
}

/// Bans are in the store and in the memory that the next worker takes over.
#[test]
fn a_worker_takes_over_memory_beside_a_store() {
    let (pages, place) = (Pages::start(), Place::new("worker"));
    let mut daemon = pages.daemon(&place.option(",size=64m,memory=16m"));
    let mut client = connect(&daemon);
    (0..200).for_each(|n| assert_eq!(version(&mut client, n), 1));
    for round in 2..5 {
        assert_eq!(daemon.ok(&format!("ban obj.http.X-Seventh == {round}")), "");
        assert_eq!(ask(&mut client, "PURGE", &format!("/{}", 70 * round), "").status, 200);
        wait_for_writes(&daemon);
        pages.version.store(round, Ordering::SeqCst);
        let (worker, before) = (daemon.worker(), pages.requests());
        signal(worker, "-KILL");
        assert!(until(|| daemon.worker() != worker && Client::connect(daemon.address).is_ok()));
        wait_for_index(&mut daemon);
        client = connect(&daemon);
        let gone = |n: u64| n % 7 == round as u64 || n == 70 * round as u64;
        for n in 0..200 {
            let version = version(&mut client, n);
            assert!(!gone(n) || version == round, "{n} came back as {version} in round {round}");
        }
        let expected = (0..200).filter(|&n| gone(n)).count();
        let fetched = pages.requests() - before;
        assert!(fetched <= expected + 4, "{fetched} instead of {expected} in round {round}");
        let list = daemon.ok("ban.list");
        for old in 2..=round {
            assert!(list.matches(&format!("obj.http.X-Seventh == {old}")).count() <= 1, "{list}");
        }
    }
}

#[test]
fn concurrent_requests_for_an_object_find_it() {
    let (pages, place) = (Pages::start(), Place::new("shared"));
    let option = place.option(",size=64m,memory=16m");
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    read_all(&mut client, 45..55);
    daemon.end_in_order();
    let before = pages.requests();
    let daemon = pages.daemon(&option);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = connect(&daemon);
                read_all(&mut client, 45..55);
            });
        }
    });
    assert_eq!(pages.requests(), before, "{}", daemon.stderr());
}

#[test]
fn stores_that_cannot_be_used_are_reported() {
    let place = Place::new("refused");
    let path = place.store();
    let refuse = |more: &str| refused(&["-s", &place.option(more)], "exec \"$@\"");
    let text = refuse("");
    assert!(text.contains("add size="), "{text}");
    fs::write(&path, vec![b'x'; 32 << 20]).expect("written");
    let text = refuse(",size=32m");
    assert!(text.contains("not a Lacquer store"), "{text}");
    fs::remove_file(&path).expect("removed");
    let pages = Pages::start();
    let daemon = pages.daemon(&place.option(",size=32m"));
    let text = refuse(",size=32m");
    assert!(text.contains("another process uses this store"), "{text}");
    drop(daemon);
    let mut bytes = fs::read(&path).expect("there");
    fs::write(&path, &bytes[..20 << 20]).expect("written");
    let text = refuse(",size=32m");
    assert!(text.contains("restore the size"), "{text}");
    for at in [8, 4096 + 8] {
        bytes[at] = 9;
    }
    fs::write(&path, &bytes).expect("written");
    let text = refuse(",size=32m");
    assert!(text.contains("format version 9"), "{text}");
}
