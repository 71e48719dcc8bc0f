//! All operations at once: clients of all kinds, whose responses identify their request, while other clients invalidate
//! objects or leave early, and the origin fails.

mod bodies;
mod http1;
mod http2;
mod world;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::{Random, effort};

use bodies::{check, generation_of};
use world::{KEYS, Kind, TAGS, Target, World, start_origin};

/// The time after which a response that was in transit when the content changed is in the cache.
const SETTLED: Duration = Duration::from_millis(400);

const SUBS: &str = r#"
import std;
import xkey;
sub vcl_recv {
    if (req.method == "PURGE") { return (purge); }
    if (req.method == "BAN") { std.ban("obj.http.x-key == " + req.http.x-key); return (synth(200)); }
    if (req.method == "BANURL") { std.ban("req.url == " + req.url); return (synth(200)); }
    if (req.method == "TAG") { xkey.purge(req.http.x-tag); return (synth(200)); }
    if (req.url ~ "^/p/") { return (pass); }
}
sub vcl_backend_response {
    set beresp.grace = 0s;
    set beresp.ttl = 1h;
    if (bereq.url ~ "^/b/") { set beresp.ttl = 0.05s; set beresp.do_gzip = true; }
    if (bereq.url ~ "^/e/") { set beresp.do_esi = true; }
    if (bereq.url ~ "^/f/") { set beresp.ttl = 0s; }
}
"#;

/// Checks an ESI page, which consists of the bodies of two keys with a newline in between.
fn check_page(world: &World, page: Target, body: &[u8]) -> Result<(), String> {
    let [a, b] = page.included();
    let (first, rest) = body.split_at_checked(a.length()).ok_or("the page ends early")?;
    check(a.key, a.length(), 0, first)?;
    let second = rest.strip_prefix(b"\n").ok_or("no newline between")?;
    if second.len() != b.length() {
        return Err(format!(
            "{} bytes of the second part, generation {:?}",
            second.len(),
            generation_of(second)
        ));
    }
    check(b.key, b.length(), 0, second)?;
    world.checked.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Changes contents and invalidates their objects, each time in another way.
fn invalidator(world: &World, address: SocketAddr, mut random: Random, share: usize) {
    let mut client = Client::connect(address).expect("connections are accepted");
    while world.go_on() {
        // Each invalidator has its own tags, so that generations do not overtake each other.
        let tag = share + 2 * random.index(TAGS / 2);
        let keys: Vec<usize> = (0..KEYS).filter(|key| Target::tag(*key) == tag).collect();
        let changed: Vec<_> = keys.iter().map(|&key| (key, world.change(key))).collect();
        std::thread::sleep(SETTLED);
        let how = random.below(4);
        for &(key, generation) in &changed {
            let path = Target { kind: Kind::Kept, key }.path();
            let request = match how {
                0 => format!("PURGE {path} HTTP/1.1\r\nHost: robust\r\n\r\n"),
                1 => format!("BAN / HTTP/1.1\r\nHost: robust\r\nx-key: {key}\r\n\r\n"),
                2 => format!("BANURL {path} HTTP/1.1\r\nHost: robust\r\n\r\n"),
                _ => format!("TAG / HTTP/1.1\r\nHost: robust\r\nx-tag: t{tag}\r\n\r\n"),
            };
            assert_eq!(client.ask(&request).expect("a response arrives").status, 200);
            world.invalidated(key, generation);
        }
    }
}

/// Adds bans that match no object.
fn storm(world: &World, address: SocketAddr) {
    let mut client = Client::connect(address).expect("connections are accepted");
    for n in 0.. {
        if !world.go_on() {
            return;
        }
        let ban = format!("BANURL /none/{n} HTTP/1.1\r\nHost: robust\r\n\r\n");
        assert_eq!(client.ask(&ban).expect("a response arrives").status, 200);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Promise: each response belongs to its request and is complete, and no object that was purged, banned or purged by a
/// tag before a request began is delivered to it, whatever else happens.
#[test]
fn every_body_is_its_own() {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = seed.unwrap_or(since.as_secs());
    eprintln!("SEED={seed}");
    let world = World::new();
    let origin = start_origin(&world, seed);
    // More than clients can hold at a time, and less than the requested content, to cause evictions.
    let options = ["-s", "malloc,32M", "-p", "feature=+http2", "-p", "ban_lurker_age=0.1"];
    let options =
        [&options[..], &["-p", "timeout_idle=60", "-p", "h2_rapid_reset_limit=0", "-p", "nuke_limit=9999"]]
            .concat();
    let mut daemon = Daemon::start(&vcl(origin, SUBS), &options);
    let (address, worker) = (daemon.address, daemon.worker());
    let mut threads = Vec::new();
    let mut start = |work: &dyn Fn(Arc<World>, Random) -> std::thread::JoinHandle<()>| {
        let random = Random(seed.wrapping_mul(1000) + threads.len() as u64);
        threads.push(work(world.clone(), random));
    };
    for _ in 0..6 {
        start(&|world, random| std::thread::spawn(move || http1::client(&world, address, random)));
        start(&|world, random| std::thread::spawn(move || http2::client(&world, address, random)));
    }
    for share in 0..2 {
        start(&|world, random| std::thread::spawn(move || http1::quitter(&world, address, random)));
        start(&|world, random| std::thread::spawn(move || invalidator(&world, address, random, share)));
    }
    start(&|world, _| std::thread::spawn(move || storm(&world, address)));
    let deadline = std::time::Instant::now() + Duration::from_secs(effort(5, 240));
    while std::time::Instant::now() < deadline && threads.iter().all(|t| !t.is_finished()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    world.ends.store(true, Ordering::Relaxed);
    let failed = threads.into_iter().map(std::thread::JoinHandle::join).filter(Result::is_err).count();
    let (checked, invalidated) =
        (world.checked.load(Ordering::Relaxed), world.invalidated.load(Ordering::Relaxed));
    eprintln!("{checked} answers checked, {invalidated} invalidations");
    assert_eq!(failed, 0, "SEED={seed}");
    assert!(checked > 500 && invalidated > 10, "{checked} answers, {invalidated} invalidations");
    assert_eq!(daemon.worker(), worker, "the worker lives on");
    let faults = daemon.stderr().matches("Fault").count();
    assert_eq!(faults, 0, "{}", daemon.stderr());
}
