//! Clients that only consume resources: idle ones, slow ones, and more than there are descriptors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, MAX_WAIT, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::h2::H2Client;
use lacquer_testing::machine::{Machine, ticks};
use lacquer_testing::origin::{Origin, sized};

use crate::stuck::Stuck;

const IDLE: usize = 2000;
const SLOW: usize = 200;
const HITS: usize = 2000;
/// The p99 of hits may grow by this factor plus this time: the load generator, and possibly other processes, run on the
/// same processors.
const FACTOR: u32 = 3;
const SLACK: Duration = Duration::from_millis(10);

/// Raises the descriptor limit of this process and those it starts. Returns it.
pub fn many_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    most as usize
}

fn p99_of_hits(address: SocketAddr) -> Duration {
    let mut client = Client::connect(address).expect("connections are accepted");
    let mut times: Vec<_> = (0..HITS)
        .map(|_| {
            let asked = Instant::now();
            assert_eq!(client.get("/1400/kept/a").expect("every request gets a response").status, 200);
            asked.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[HITS * 99 / 100]
}

/// Sends the bytes of heads and reads those of responses, one byte a second on each connection, until `ends` is set.
fn hold(mut senders: Vec<TcpStream>, mut readers: Vec<TcpStream>, ends: &AtomicBool) {
    let head = b"GET / HTTP/1.1\r\nHost: robust\r\nX-Slow: 0123456789012345678901234567890123456789";
    for byte in head {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        for sender in &mut senders {
            sender.write_all(&[*byte]).expect("slow senders stay connected");
        }
        for reader in &mut readers {
            reader.read_exact(&mut [0]).expect("slow readers stay connected");
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Idle and slow clients do not slow down others.
#[test]
fn idle_and_slow_clients_do_not_slow_down_others() {
    let share = (many_descriptors() / 8).min(IDLE);
    let origin = Origin::start(sized);
    let options = ["-s", "malloc,32M", "-p", "timeout_idle=60", "-p", "idle_send_timeout=60"];
    let daemon = Daemon::start(&vcl(origin.address, ""), &options);
    get(daemon.address, "/1000000/kept/large").expect("the large one is stored");
    let open = |count| (0..count).map(|_| daemon.connect()).collect::<Vec<_>>();
    let tries = || (0..5).map(|_| p99_of_hits(daemon.address)).min().expect("there is at least one");
    let alone = tries();
    let idle = open(share);
    let (senders, mut readers) = (open(SLOW / 2), open(SLOW / 2));
    for reader in &mut readers {
        reader.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
        let request = b"GET /1000000/kept/large HTTP/1.1\r\nHost: robust\r\n\r\n";
        reader.write_all(request).expect("requests can be sent");
    }
    let ends = Arc::new(AtomicBool::new(false));
    let until_then = ends.clone();
    let holder = std::thread::spawn(move || hold(senders, readers, &until_then));
    std::thread::sleep(Duration::from_millis(500));
    let beside = tries();
    ends.store(true, Ordering::Relaxed);
    holder.join().expect("slow clients are served");
    for mut stream in idle {
        stream.set_nonblocking(true).expect("sockets can be non-blocking");
        assert!(stream.read(&mut [0]).is_err(), "an idle client was disconnected");
    }
    eprintln!("p99 of hits alone {alone:?}, beside {share} idle and {SLOW} slow clients {beside:?}");
    assert!(beside < alone * FACTOR + SLACK, "p99 of hits: alone {alone:?}, beside them {beside:?}");
}

/// Idle clients leave a reserve of descriptors. Clients that sent a request stay connected, and accepting resumes once
/// descriptors are free.
#[test]
fn accepting_pauses_without_descriptors_and_resumes() {
    many_descriptors();
    let origin = Origin::start(sized);
    let options = ["-s", "malloc,32M", "-p", "timeout_idle=60"];
    let mut daemon = Daemon::start_by(&vcl(origin.address, ""), &options, "ulimit -n 128; exec \"$@\"");
    let worker = daemon.worker();
    let mut kept = Client::connect(daemon.address).expect("connections are accepted");
    assert_eq!(kept.get("/100/kept/a").expect("a response arrives").status, 200);
    let waiting: Vec<_> = (0..300).map(|_| daemon.connect()).collect();
    let descriptors = || std::fs::read_dir(format!("/proc/{worker}/fd")).map_or(0, Iterator::count);
    assert!(until(|| descriptors() >= 100), "{} descriptors are in use", descriptors());
    assert!(descriptors() <= 120, "the reserve is used up: {} descriptors", descriptors());
    let before = ticks(worker);
    for _ in 0..10 {
        assert_eq!(kept.get("/100/kept/a").expect("open connections continue").status, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    let spent = ticks(worker) - before;
    assert!(spent < 50, "{spent} ticks of 100 were spent on failing accepts");
    drop(waiting);
    let answer = get(daemon.address, "/100/kept/b").expect("it accepts again");
    assert_eq!((answer.status, daemon.worker()), (200, worker));
    assert!(until(|| descriptors() < 64), "{} descriptors are left", descriptors());
}

/// The time within which hits and passes of other clients get a response during an attack.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The limit for the growth of resident memory during an attack with 1,024 descriptors: each pass has two descriptors
/// and two workspaces, each fetch for the cache one, and a workspace has 96 kB.
const GROWTH: u64 = 1024 * (96 << 10) + (32 << 20);

/// Measures hits and passes during an attack, on new connections and on a persistent one.
struct Watch {
    ends: Arc<AtomicBool>,
    watcher: std::thread::JoinHandle<Vec<Duration>>,
    machine: Machine,
}

impl Watch {
    fn begin(daemon: &mut Daemon) -> Watch {
        let (address, machine) = (daemon.address, daemon.machine());
        let ends = Arc::new(AtomicBool::new(false));
        let until_then = ends.clone();
        let watcher = std::thread::spawn(move || {
            let mut kept = Client::connect(address).expect("connections are accepted");
            let mut times = Vec::new();
            while !until_then.load(Ordering::Relaxed) {
                for path in ["/kept/a", "/fresh/a"] {
                    let asked = Instant::now();
                    let answer = kept.get(path).expect("every request gets a response");
                    let between = Instant::now();
                    assert_eq!((answer.status, answer.body), (200, path.into()));
                    let answer = get(address, path).expect("every client gets a response");
                    assert_eq!((answer.status, answer.body), (200, path.into()));
                    times.extend([between - asked, between.elapsed()]);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            times
        });
        Watch { ends, watcher, machine }
    }

    /// Asserts that all responses came in time, or all but one in two hundred on a busy machine.
    fn end(self, attack: &str) {
        self.ends.store(true, Ordering::Relaxed);
        let within = AT_ONCE * self.machine.slack();
        let mut times = self.watcher.join().expect("hits and passes are served during the attack");
        times.sort_unstable();
        let (last, count) = (times[times.len() - 1], times.len());
        let late = times.iter().filter(|&&time| time > within).count();
        eprintln!("{attack}: {count} hits and passes, longest {last:?}, {late} longer than {within:?}");
        assert!(late * 200 <= count, "{attack}: {late} of {count} took longer than {within:?}, one {last:?}");
    }
}

/// 1,500 requests to a stuck origin do not affect others, whether they are passes or misses of one page or of many,
/// whether each client closes its connection at once or stays.
#[test]
fn requests_to_a_stuck_origin_do_not_affect_others() {
    many_descriptors();
    let stuck = Stuck::start();
    let mut daemon = stuck.daemon_by(&[], "ulimit -n 1024; exec \"$@\"");
    assert_eq!(get(daemon.address, "/kept/a").expect("a response arrives").status, 200);
    let before = daemon.resident().memory;
    for (attack, page) in [("passes", "/head/"), ("misses of one page", "/miss/"), ("misses", "/miss/N")] {
        let watch = Watch::begin(&mut daemon);
        for number in 0..effort(1500, 15_000) {
            let path = page.replace('N', &number.to_string());
            let request = format!("GET {path} HTTP/1.1\r\nHost: robust\r\n\r\n");
            daemon.connect().write_all(request.as_bytes()).expect("requests can be sent");
        }
        std::thread::sleep(Duration::from_millis(500));
        watch.end(attack);
    }
    let grown = daemon.resident().memory.saturating_sub(before);
    eprintln!("memory grew by {} kB", grown >> 10);
    assert!(grown < GROWTH, "memory grew by {grown} bytes");
}

/// The number of requests that a client sends and resets on one connection.
const STREAMS: usize = 50;

/// The same over HTTP/2, where each stream is reset at once.
#[test]
fn reset_streams_to_a_stuck_origin_do_not_affect_others() {
    many_descriptors();
    let stuck = Stuck::start();
    let mut daemon = stuck.daemon_by(&["-p", "h2_rapid_reset_limit=0"], "ulimit -n 1024; exec \"$@\"");
    assert_eq!(get(daemon.address, "/kept/a").expect("a response arrives").status, 200);
    let before = daemon.resident().memory;
    for (attack, page) in [("passes", "/head/"), ("misses of one page", "/miss/"), ("misses", "/miss/N")] {
        let watch = Watch::begin(&mut daemon);
        for connection in 0..effort(30, 400) {
            let mut client = H2Client::connect(daemon.address, &[]).expect("connections are accepted");
            for number in 0..STREAMS {
                let number = connection * STREAMS + number;
                let stream =
                    client.get(&page.replace('N', &number.to_string())).expect("requests can be sent");
                client.reset(stream).expect("streams can be reset");
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        watch.end(attack);
    }
    let grown = daemon.resident().memory.saturating_sub(before);
    eprintln!("memory grew by {} kB", grown >> 10);
    assert!(grown < GROWTH, "memory grew by {grown} bytes");
}

/// Pipes (WebSockets, for example) and slow readers of large passes have their response, so they do not count against
/// the limit of their backend.
#[test]
fn pipes_and_slow_readers_leave_the_backend_to_others() {
    many_descriptors();
    let origin = Origin::start(sized);
    let subs = "sub vcl_recv {
        if (req.http.Upgrade) { return (pipe); }
        return (pass);
    }";
    let limit = "ulimit -n 1024; exec \"$@\"";
    for (kind, head) in [
        ("pipes", "GET /10/piped HTTP/1.1\r\nHost: robust\r\nUpgrade: x\r\n\r\n"),
        ("slow readers", "GET /4000000/slow HTTP/1.1\r\nHost: robust\r\n\r\n"),
    ] {
        let daemon = Daemon::start_by(&vcl(origin.address, subs), &["-s", "malloc,32M"], limit);
        let fresh = || {
            let asked = Instant::now();
            let answer = get(daemon.address, "/100/fresh").expect("a response arrives");
            assert_eq!(answer.status, 200, "beside {kind}");
            asked.elapsed()
        };
        // The second and third request to a new origin wait until its first connection has proven to be in order.
        (0..4).for_each(|_| assert!(fresh() < MAX_WAIT));
        let clients: Vec<_> = (0..300)
            .map(|_| {
                let mut client = daemon.connect();
                client.write_all(head.as_bytes()).expect("requests can be sent");
                client.set_read_timeout(Some(MAX_WAIT)).expect("sockets have timeouts");
                client.read_exact(&mut [0; 12]).expect("a response begins");
                client
            })
            .collect();
        let mut times: Vec<_> = (0..20).map(|_| fresh()).collect();
        times.sort_unstable();
        // The slowest of them may coincide with a pause of the machine.
        assert!(times[18] < AT_ONCE, "beside {} {kind}: {times:?}", clients.len());
    }
}
