//! All processes of a daemon with a store on disk, or with memory over a file, are killed at random moments under mixed
//! load, again and again. Bodies are never wrong, and nothing comes back that was purged or banned.
//!
//! `DAEMON_KILLS=1000 cargo test -p lacquer --test robust kills` kills more often.

use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;

use crate::disk::{Place, SUBS, body, kill_now};

const PAGES: u64 = 120;
const CLIENTS: u64 = 4;
/// The longest life of a daemon, in milliseconds, in the usual number of kills. Data that is older than a second is durable.
const LONGEST_LIFE: u64 = 1800;
/// The longest time in which an object must outlive its daemon.
const LONGEST_WAIT: Duration = Duration::from_mins(3);

/// The number of the next response of the origin.
static VERSION: AtomicUsize = AtomicUsize::new(1);

/// The versions of a page. Each response of the origin is another one.
#[derive(Default)]
struct History {
    /// The times at which a client first received them.
    seen: BTreeMap<usize, Instant>,
    /// The times at which the response to a purge or a ban said that they are gone.
    gone: BTreeMap<usize, Instant>,
}

struct Record {
    pages: Vec<Mutex<History>>,
    requests: AtomicUsize,
    invalidations: AtomicUsize,
    /// The number of responses from before the life of the daemon that sent them.
    kept: AtomicUsize,
}

impl Record {
    fn of(&self, page: u64) -> MutexGuard<'_, History> {
        self.pages[page as usize].lock().expect("no client panics while it holds the lock")
    }

    /// Sends requests until the daemon is gone. `first` is the first version of its life.
    fn ask(&self, address: SocketAddr, first: usize, mut random: Random) {
        let Ok(mut client) = Client::connect(address) else { return };
        loop {
            let page = random.below(PAGES);
            let asked = match random.below(100) {
                0..6 => self.invalidate(&mut client, page, "PURGE"),
                6..9 => self.invalidate(&mut client, page, "BAN"),
                9..15 => self.get(&mut client, page, first, "refresh: 1\r\n"),
                _ => self.get(&mut client, page, first, ""),
            };
            if asked.is_none() {
                return;
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            // Other tests run beside this one.
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn invalidate(&self, client: &mut Client, page: u64, method: &str) -> Option<()> {
        let begun = Instant::now();
        let response = client.ask(&format!("{method} /{page} HTTP/1.1\r\nHost: a\r\n\r\n")).ok()?;
        assert_eq!(response.status, 200, "{method} /{page}");
        let mut history = self.of(page);
        let gone: Vec<usize> =
            history.seen.extract_if(.., |_, seen| *seen < begun).map(|(version, _)| version).collect();
        for version in gone {
            history.gone.entry(version).or_insert_with(Instant::now);
        }
        drop(history);
        self.invalidations.fetch_add(1, Ordering::Relaxed);
        Some(())
    }

    fn get(&self, client: &mut Client, page: u64, first: usize, header: &str) -> Option<()> {
        let begun = Instant::now();
        let response = client.ask(&format!("GET /{page} HTTP/1.1\r\nHost: a\r\n{header}\r\n")).ok()?;
        assert_eq!(response.status, 200, "/{page}");
        let version = response.header("X-Version").and_then(|text| text.parse().ok()).expect("a version");
        assert!(response.body == body(page, version, ""), "the body of /{page}, version {version}");
        let mut history = self.of(page);
        let is_back = history.gone.get(&version).is_some_and(|gone| *gone < begun);
        assert!(!is_back, "version {version} of /{page} was purged, and is back");
        history.seen.entry(version).or_insert_with(Instant::now);
        drop(history);
        self.kept.fetch_add(usize::from(version < first), Ordering::Relaxed);
        Some(())
    }
}

fn kills() -> Option<u64> {
    env::var("DAEMON_KILLS").ok().and_then(|text| text.parse().ok())
}

#[test]
fn kills_under_load_leave_no_wrong_bytes() {
    // The store is smaller than what is written, so that segments are used again.
    let place = Place::new("kills");
    kill_under_load(kills().unwrap_or(20), &place.option(",size=16m,memory=16m"));
}

#[test]
fn kills_under_load_leave_no_wrong_bytes_in_a_file() {
    // The pages have 13 MB, so that some are evicted.
    let place = Place::new("file-kills");
    let path = place.0.join("cache");
    kill_under_load(kills().unwrap_or(8), &format!("file,{},10m", path.display()));
}

fn kill_under_load(kills: u64, option: &str) {
    let _slot = shared_slot();
    let origin = Origin::start(|path, stream| {
        let page = path.trim_start_matches('/').parse().unwrap_or(0);
        let version = VERSION.fetch_add(1, Ordering::SeqCst);
        let body = body(page, version, "");
        let head =
            format!("HTTP/1.1 200 OK\r\nX-Version: {version}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
    });
    let pages = (0..PAGES).map(|_| Mutex::default()).collect();
    let (requests, invalidations, kept) = Default::default();
    let record = Record { pages, requests, invalidations, kept };
    let mut random = Random(kills);
    let (started, mut killed) = (Instant::now(), 0);
    // On a slow machine, no object may be durable so soon: there are more kills and longer lives then.
    let needs_more = || record.kept.load(Ordering::Relaxed) == 0 && started.elapsed() < LONGEST_WAIT;
    while killed < kills || needs_more() {
        let longest = LONGEST_LIFE * (1 + killed / kills.max(1));
        killed += 1;
        let daemon = Daemon::start(&vcl(origin.address, SUBS), &["-s", option, "-p", "nuke_limit=1000"]);
        let (first, life) = (VERSION.load(Ordering::SeqCst), Duration::from_millis(random.below(longest)));
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let (seed, address, record) = (random.number(), daemon.address, &record);
                scope.spawn(move || record.ask(address, first, Random(seed)));
            }
            thread::sleep(life);
            kill_now(daemon);
        });
    }
    let Record { requests, invalidations, kept, .. } = &record;
    let [requests, invalidations, kept] =
        [requests, invalidations, kept].map(|count| count.load(Ordering::Relaxed));
    println!(
        "{killed} kills, {requests} requests, {invalidations} purges and bans, {kept} hits of an earlier daemon's"
    );
    assert!(kept > 0, "no object outlived its daemon in {requests} requests");
}
