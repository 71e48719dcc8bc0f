//! The worker is killed under load: the next one continues with its objects, bans, tags and purges.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::client::{Client, Response, get};
use lacquer_testing::daemon::{Daemon, signal, vcl};
use lacquer_testing::effort;
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;
use lacquer_testing::until;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::disk::{Place, kill_all};
use crate::disk_waits::wait_for_index;

const SUBS: &str = r#"
import xkey;
import std;
sub vcl_recv {
    if (req.method == "PURGE") { return (purge); }
    if (req.method == "XKEY") { return (synth(200, "" + xkey.purge(req.http.tags))); }
    if (req.method == "BAN") { std.ban("req.url == " + req.url); return (synth(200)); }
}
sub vcl_backend_response { set beresp.ttl = 1h; set beresp.grace = 1h; }
sub vcl_deliver { set resp.http.hits = obj.hits; set resp.http.age-now = obj.age; }
"#;

/// The length of a body: mostly small, some in several pieces.
fn length(n: u64) -> usize {
    match n % 40 {
        0 => 700_000,
        1..5 => 30_000 + n as usize * 7,
        _ => n as usize * 13 % 4000,
    }
}

fn body(n: u64, variant: &str) -> Vec<u8> {
    let mut bytes = Random(n).bytes(length(n));
    bytes.extend_from_slice(variant.as_bytes());
    bytes
}

/// An origin of numbered pages. Pages whose number is divisible by five differ by the header `X-V` of the request.
/// `/slow` never ends.
fn origin(begun: &Arc<AtomicUsize>) -> Origin {
    let begun = Arc::clone(begun);
    Origin::start(move |path, stream| {
        if path.starts_with("/slow") {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nbegun";
            let _ = stream.write_all(head.as_bytes());
            begun.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_secs(30));
            return false;
        }
        let mut words = path.split('/').skip(1);
        let n: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let variant = words.next().unwrap_or_default();
        let body = body(n, variant);
        let vary = if variant.is_empty() { "" } else { "Vary: X-V\r\n" };
        let head = format!(
            "HTTP/1.1 200 OK\r\n{vary}X-Number: {n}\r\nX-Seventh: {}\r\nxkey: t{} all\r\nContent-Length: {}\r\n\r\n",
            n % 7,
            n % 10,
            body.len()
        );
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
    })
}

fn ask(client: &mut Client, method: &str, path: &str, headers: &str) -> Response {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    client.ask(&request).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
}

/// Returns whether it was a hit, after checking the body.
fn is_hit(client: &mut Client, n: u64) -> bool {
    let response = ask(client, "GET", &format!("/{n}"), "");
    assert_eq!(response.status, 200);
    assert!(response.body == body(n, ""), "the body of {n}");
    response.header("hits") != Some("0")
}

/// Returns the transaction id of a response.
fn xid(response: &Response) -> u64 {
    let ids = response.header("x-varnish").unwrap_or_default();
    ids.split(' ').next().and_then(|id| id.parse().ok()).expect("a response has an id")
}

/// Kills the worker and waits for the next one. Returns the time until it serves.
fn kill_worker(daemon: &mut Daemon) -> Duration {
    let old = daemon.worker();
    let start = Instant::now();
    signal(old, "-KILL");
    assert!(until(|| daemon.ok("status").contains("running") && daemon.worker() != old));
    let _ = get(daemon.address, "/served");
    start.elapsed()
}

const BAN: &str = "obj.http.X-Seventh == 2 && obj.http.X-Number != 9";

/// Fills the cache, and removes some pages by each kind of invalidation.
fn fill_and_invalidate(daemon: &mut Daemon, client: &mut Client) {
    for n in 0..2000 {
        assert!(!is_hit(client, n));
    }
    for (n, variant) in variants() {
        ask(client, "GET", &format!("/{n}/{variant}"), &format!("X-V: {variant}\r\n"));
    }
    for n in (0..2000).step_by(11) {
        assert_eq!(ask(client, "PURGE", &format!("/{n}"), "").status, 200);
    }
    assert!(ask(client, "XKEY", "/", "tags: t3\r\n").head.contains(" 200 "));
    daemon.ok(&format!("ban {BAN}"));
    assert_eq!(ask(client, "BAN", "/17", "").status, 200);
}

fn is_gone(n: u64) -> bool {
    n.is_multiple_of(11) || n % 10 == 3 || (n % 7 == 2 && n != 9) || n == 17
}

fn variants() -> impl Iterator<Item = (u64, &'static str)> {
    (0..100).step_by(5).flat_map(|n| [(n, "a"), (n, "b")])
}

/// Requests objects that stay, so that it fetches none of those that are gone, and checks each complete response.
/// Returns their number.
fn load(address: SocketAddr, stop: &AtomicBool) -> u64 {
    let (mut random, mut complete) = (Random(7), 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::connect(address) else { continue };
        while !stop.load(Ordering::Relaxed) {
            let n = random.below(2000);
            if is_gone(n) {
                continue;
            }
            let request = format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n");
            let Ok(response) = client.ask(&request) else { break };
            assert!(response.status == 200 && response.body == body(n, ""), "the body of {n} under load");
            complete += 1;
        }
    }
    complete
}

/// Checks that the pages that stay are hits, and that those that are gone are fetched. Variants are the same.
fn check_all(origin: &Origin, client: &mut Client, context: &str) {
    let before = origin.requests();
    let (mut hits, mut stayed, mut gone) = (0, 0, 0);
    for n in 0..2000 {
        let is_hit = is_hit(client, n);
        if is_gone(n) {
            gone += 1;
            assert!(!is_hit, "{n} came back: {context}");
        } else {
            (stayed, hits) = (stayed + 1, hits + usize::from(is_hit));
        }
    }
    assert!(hits * 100 >= stayed * 99, "{hits} hits of {stayed}: {context}");
    assert_eq!(origin.requests() - before, gone + stayed - hits);
    for (n, variant) in variants() {
        let response = ask(client, "GET", &format!("/{n}/{variant}"), &format!("X-V: {variant}\r\n"));
        assert!(response.body == body(n, variant), "variant {variant} of {n}");
        assert_eq!(response.header("hits") != Some("0"), !(n % 7 == 2 || n % 10 == 3), "{n}/{variant}");
    }
}

#[test]
fn a_killed_worker_leaves_its_objects_to_the_next_one() {
    let slow = Arc::new(AtomicUsize::new(0));
    let origin = origin(&slow);
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,200m"]);
    let mut client = Client::connect(daemon.address).expect("it accepts");
    fill_and_invalidate(&mut daemon, &mut client);
    let xid_before = xid(&ask(&mut client, "GET", "/4", ""));
    let address = daemon.address;
    thread::spawn(move || get(address, "/slow"));
    assert!(until(|| slow.load(Ordering::SeqCst) > 0));

    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let loader = thread::spawn(move || load(address, &stopped));
    thread::sleep(Duration::from_millis(300));
    let took = kill_worker(&mut daemon);
    thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let complete = loader.join().expect("every complete response is right");
    println!("{took:?} until the next worker served; {complete} responses under load");

    let bans = daemon.ok("ban.list");
    for ban in [BAN, "req.url == /17"] {
        assert!(bans.contains(ban), "{ban} is missing in {bans}");
    }
    let mut client = Client::connect(daemon.address).expect("it accepts");
    check_all(&origin, &mut client, &(daemon.stderr() + &bans));
    // Tags work on objects that were taken over.
    assert!(is_hit(&mut client, 14));
    ask(&mut client, "XKEY", "/", "tags: t4\r\n");
    assert!(!is_hit(&mut client, 14) && is_hit(&mut client, 15));
    assert!(xid(&ask(&mut client, "GET", "/15", "")) > xid_before, "a transaction id is used again");
    // Of the fetch that was in progress, nothing is left: the page is fetched again.
    let begun = slow.load(Ordering::SeqCst);
    thread::spawn(move || get(address, "/slow"));
    assert!(until(|| slow.load(Ordering::SeqCst) > begun), "the half of an object is used");
}

/// Kills the worker at once after the last fetch: objects below `min` are in memory alone, others were not written yet.
#[test]
fn memory_in_front_of_a_disk_outlives_the_worker() {
    for min in ["10m", "0"] {
        let (origin, place) = (origin(&Arc::default()), Place::new("memory"));
        let option = place.option(&format!(",size=512m,memory=200m,min={min}"));
        let start = || Daemon::start(&vcl(origin.address, SUBS), &["-s", &option]);
        let mut daemon = start();
        let mut client = Client::connect(daemon.address).expect("it accepts");
        fill_and_invalidate(&mut daemon, &mut client);
        kill_worker(&mut daemon);
        if min == "0" {
            // Until then, hits do not write objects.
            wait_for_index(&mut daemon);
        }
        let mut client = Client::connect(daemon.address).expect("it accepts");
        check_all(&origin, &mut client, &daemon.stderr());
        assert!(is_hit(&mut client, 14));
        ask(&mut client, "XKEY", "/", "tags: t4\r\n");
        assert!(!is_hit(&mut client, 14) && is_hit(&mut client, 15));
        if min == "0" {
            // Objects that were in memory alone are on the disk now.
            kill_all(daemon);
            let mut daemon = start();
            wait_for_index(&mut daemon);
            let mut client = Client::connect(daemon.address).expect("it accepts");
            let stay = (0..2000).filter(|n| n % 10 != 4);
            let (hits, all) =
                stay.fold((0, 0), |(hits, all), n| (hits + usize::from(is_hit(&mut client, n)), all + 1));
            assert!(hits * 100 >= all * 98, "{hits} of {all}: {}", daemon.stderr());
            assert!((24..2000).step_by(10).all(|n| !is_hit(&mut client, n)), "it came back");
        }
    }
}

/// The manager can open no file when it starts the next worker. Then it can.
#[test]
fn workers_that_cannot_be_started_leave_the_memory_as_it_is() {
    let _slot = shared_slot();
    let origin = origin(&Arc::default());
    for (method, is_upgraded) in [("malloc", false), ("malloc", true), ("file", false), ("file", true)] {
        let place = Place::new("not-started");
        let path =
            if method == "file" { format!(",{}", place.0.join("cache").display()) } else { String::new() };
        let storage = format!("{method}{path},200m");
        let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", &storage]);
        let mut client = Client::connect(daemon.address).expect("it accepts");
        (0..100).for_each(|n| assert!(!is_hit(&mut client, n)));
        let (manager, old) = (daemon.manager(), daemon.worker());
        let before = limit_descriptors(manager, Some(MOST_POLLED));
        signal(old, "-KILL");
        // The program is replaced before the next attempt.
        let pause = if is_upgraded { "trying again in 3.2s" } else { "trying again in 0.2s" };
        assert!(until(|| daemon.stderr().contains(pause)), "{}", daemon.stderr());
        limit_descriptors(manager, before);
        if is_upgraded {
            signal(manager, "-USR2");
            daemon.banner();
            assert!(daemon.ok("upgrade.show").starts_with("Upgraded from"), "{}", daemon.stderr());
        }
        assert!(until(|| daemon.ok("status").contains("running") && daemon.worker() != old));
        let mut client = Client::connect(daemon.address).expect("it accepts");
        let hits = (0..100).filter(|&n| is_hit(&mut client, n)).count();
        assert_eq!(hits, 100, "{storage} {is_upgraded}: {}", daemon.stderr());
    }
}

/// More descriptors than the manager waits for at a time, and fewer than it has open.
const MOST_POLLED: u64 = 12;

/// Limits the descriptors of a process. Returns the limit before.
fn limit_descriptors(process: u32, most: Option<u64>) -> Option<u64> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    // The manager inherits the hard limit.
    let limit = Rlimit { current: most, maximum: getrlimit(Resource::Nofile).maximum };
    prlimit(pid, Resource::Nofile, limit).expect("it is ours").current
}

#[test]
fn a_second_early_death_empties_the_memory() {
    let _slot = shared_slot();
    let origin = origin(&Arc::default());
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,20m"]);
    let hits = |daemon: &Daemon| get(daemon.address, "/7").expect("served").header("hits").map(str::to_owned);
    assert_eq!(hits(&daemon).as_deref(), Some("0"));
    for death in 1..=3 {
        kill_worker(&mut daemon);
        let expected = if death < 3 { death.to_string() } else { "0".to_owned() };
        assert_eq!(hits(&daemon), Some(expected), "death {death}: {}", daemon.stderr());
    }
    assert!(daemon.stderr().contains("died within a minute"), "{}", daemon.stderr());
}

#[test]
fn the_parameter_and_a_stop_discard_the_memory() {
    let _slot = shared_slot();
    let origin = origin(&Arc::default());
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,20m"]);
    let is_hit = |daemon: &Daemon| get(daemon.address, "/7").expect("served").header("hits") != Some("0");
    assert!(!is_hit(&daemon));
    daemon.ok("stop");
    daemon.ok("start");
    assert!(!is_hit(&daemon));
    kill_worker(&mut daemon);
    assert!(is_hit(&daemon));
    daemon.ok("param.set keep_memory off");
    kill_worker(&mut daemon);
    assert!(!is_hit(&daemon));
}

/// The time limit holds for the release build on an idle machine; otherwise the test checks only the hits.
#[test]
fn many_objects_are_served_again_soon() {
    let origin = Origin::start(lacquer_testing::origin::sized);
    let objects = effort(10_000, 100_000);
    let mut daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", "malloc,300m"]);
    let address = daemon.address;
    let fill = |from: usize| {
        let mut client = Client::connect(address).expect("it accepts");
        (from..objects)
            .step_by(8)
            .for_each(|n| drop(client.get(&format!("/600/x/{n}")).expect("it is served")));
    };
    thread::scope(|scope| (0..8).for_each(|from| drop(scope.spawn(move || fill(from)))));
    let took = kill_worker(&mut daemon);
    println!("{objects} objects: {took:?} from the kill to the first response");
    let before = origin.requests();
    let mut client = Client::connect(daemon.address).expect("it accepts");
    (0..objects).step_by(97).for_each(|n| drop(client.get(&format!("/600/x/{n}")).expect("it is served")));
    assert_eq!(origin.requests(), before, "{}", daemon.stderr());
    if !cfg!(debug_assertions) {
        assert!(took < Duration::from_millis(600), "{took:?}");
    }
}
