//! Work that holds a reactor: the clients of the same reactors measure how long they wait meanwhile.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};

/// Clients whose requests cost nothing, spread over the reactors.
const PROBES: usize = 4;
/// The longest wait on a quiet machine is a hold of 2 ms and what the kernel adds; this one is for a machine that
/// has something else to do. The best round of several counts.
const LONGEST_WAIT: Duration = Duration::from_millis(12);

/// Asks for `/probe` all the time and remembers the longest wait.
struct Probes {
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<io::Result<Duration>>>,
}

impl Probes {
    fn start(address: SocketAddr) -> Probes {
        let ends = Arc::new(AtomicBool::new(false));
        let probe = |_| {
            let mut client = Client::connect(address).expect("connections are accepted");
            client.get("/probe").expect("it answers");
            let ends = ends.clone();
            std::thread::spawn(move || {
                let mut longest = Duration::ZERO;
                while !ends.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    client.get("/probe")?;
                    longest = longest.max(asked.elapsed());
                    std::thread::sleep(Duration::from_micros(500));
                }
                Ok(longest)
            })
        };
        let clients = (0..PROBES).map(probe).collect();
        Probes { ends, clients }
    }

    fn longest_wait(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        let waits = self.clients.into_iter().map(|c| c.join().expect("it runs").expect("it is answered"));
        waits.max().unwrap_or_default()
    }
}

/// Returns the longest wait of the best of `rounds` rounds.
fn best_round(address: SocketAddr, rounds: usize, mut work: impl FnMut(usize)) -> Duration {
    let round = |n| {
        let probes = Probes::start(address);
        std::thread::sleep(Duration::from_millis(20));
        work(n);
        probes.longest_wait()
    };
    (0..rounds).map(round).min().expect("there are some")
}

const PROBED: &str = "sub vcl_recv { if (req.url == \"/probe\") { return (synth(200)); } }";

/// Promise: a lookup that has to test many bans does not make the other clients wait for more than 2 ms, and misses
/// none of the bans.
#[test]
fn testing_many_bans_holds_nobody() {
    const BANS: usize = 28_184;
    let origin = Origin::start(sized);
    let options = ["-s", "malloc,32M", "-p", "ban_lurker_sleep=0"];
    let mut daemon = Daemon::start(&vcl(origin.address, PROBED), &options);
    let path = |n: usize| format!("/1000/kept/{n}?{}", "x".repeat(300));
    for n in 0..8 {
        get(daemon.address, &path(n)).expect("it is stored");
    }
    for ban in 0..BANS {
        let url = if ban == BANS / 2 { "/kept/7".to_owned() } else { format!("^.*[a-w]{ban}$") };
        daemon.ok(&format!("ban req.url ~ {url}"));
    }
    let before = origin.requests();
    let longest = best_round(daemon.address, 5, |n| {
        // Several clients want the same: the tests are made once, not once for each.
        let ask = |_| {
            let (address, path) = (daemon.address, path(n));
            std::thread::spawn(move || get(address, &path).expect("it answers").status)
        };
        let clients: Vec<_> = (0..4).map(ask).collect();
        assert!(clients.into_iter().all(|c| c.join().expect("it runs") == 200));
    });
    assert_eq!(origin.requests(), before, "what is not banned is served from the cache");
    get(daemon.address, &path(7)).expect("it answers");
    assert_eq!(origin.requests(), before + 1, "what is banned is fetched");
    eprintln!("longest wait beside a lookup that tests {BANS} bans: {longest:?}");
    assert!(longest < LONGEST_WAIT, "{longest:?}");
}
