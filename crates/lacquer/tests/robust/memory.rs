//! Memory stays within the configured limit with far more data than fits, of all sizes and partly uncacheable.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::Random;

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;

const STORAGE: u64 = 64 << 20;
const LIMIT: u64 = STORAGE + STORAGE * 15 / 100 + (40 << 20);
const TIME: Duration = Duration::from_secs(12);
/// The time for `LEAST` responses on a slow machine.
const LONGEST_TIME: Duration = Duration::from_mins(3);
const LEAST: usize = 1000;
const PATHS: u64 = 5000;

#[derive(Default)]
struct Seen {
    ends: AtomicBool,
    responses: AtomicUsize,
    /// Responses for which `nuke_limit` evictions did not free enough space: they ended early, or were a 503 if
    /// nothing had been sent.
    cut: AtomicUsize,
}

/// Sizes from 100 B to 2 MB, spread evenly over the powers of ten, but with fewer large ones.
fn path(number: u64) -> String {
    let share = (number * 7919 % 1000) as f64 / 1000.0;
    let size = 100.0 * 10f64.powf(4.3 * share.powi(2));
    let kind = ["private", "zero", "kept"][(number % 10).min(2) as usize];
    format!("/{}/{kind}/{number}", size as u64)
}

fn churn(address: std::net::SocketAddr, start: u64, seen: &Seen) {
    let mut random = Random(start);
    let mut client = Client::connect(address).expect("connections are accepted");
    while !seen.ends.load(Ordering::Relaxed) {
        let path = path(random.below(PATHS));
        seen.responses.fetch_add(1, Ordering::Relaxed);
        let mut reconnect = random.below(16) == 0;
        match client.get(&path) {
            Ok(response) if response.status == 503 => {
                seen.cut.fetch_add(1, Ordering::Relaxed);
            }
            Ok(response) => assert_eq!(response.status, 200, "{path}: {}", response.head),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::UnexpectedEof, "{path}: {e}");
                seen.cut.fetch_add(1, Ordering::Relaxed);
                reconnect = true;
            }
        }
        if reconnect {
            client = Client::connect(address).expect("connections are accepted");
        }
    }
}

#[test]
fn churn_stays_within_the_configured_memory() {
    let _slot = shared_slot();
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,64M"]);
    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = (0..8)
        .map(|seed| {
            let (seen, address) = (seen.clone(), daemon.address);
            std::thread::spawn(move || churn(address, seed, &seen))
        })
        .collect();
    let started = Instant::now();
    let worker = daemon.worker();
    let (mut most, mut ring) = (0, 0);
    let has_few = || seen.responses.load(Ordering::Relaxed) <= LEAST && started.elapsed() < LONGEST_TIME;
    while started.elapsed() < TIME || has_few() {
        std::thread::sleep(Duration::from_millis(250));
        let resident = daemon.resident();
        most = most.max(resident.memory);
        ring = ring.max(resident.ring);
    }
    seen.ends.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no response is wrong");
    }
    assert_eq!(daemon.worker(), worker);
    let [responses, cut] = [&seen.responses, &seen.cut].map(|n| n.load(Ordering::Relaxed));
    eprintln!("{responses} responses, {cut} cut; at most {} MB, log ring {} MB", most >> 20, ring >> 20);
    assert!(responses > LEAST && cut * 100 < responses, "{responses} responses, {cut} cut");
    assert!(most < LIMIT, "{most} bytes are resident, {LIMIT} are allowed");
}
