//! Work that could hold a reactor. Other clients of the same reactors measure how long they wait meanwhile.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::effort;
use lacquer_testing::machine::Machine;
use lacquer_testing::origin::{Origin, sized};

/// The number of clients with cheap requests, spread over the reactors.
const PROBES: usize = 4;
/// The longest wait on an idle machine: a hold of 2 ms plus the latency of the kernel. The best of several rounds
/// counts. On a busy machine it is sufficient that a wait is short compared with the work, because work that holds a
/// reactor makes the others wait until it is done.
const LONGEST_WAIT: Duration = Duration::from_millis(4);
const SHARE: u32 = 3;
const ROUNDS: usize = 3;

/// Requests `/probe` continuously and records the longest wait.
struct Probes {
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<io::Result<Duration>>>,
}

impl Probes {
    fn start(address: SocketAddr) -> Probes {
        let ends = Arc::new(AtomicBool::new(false));
        let probe = |_| {
            let mut client = Client::connect(address).expect("connections are accepted");
            client.get("/probe").expect("a response arrives");
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
        let waits = self
            .clients
            .into_iter()
            .map(|c| c.join().expect("the thread does not panic").expect("a response arrives"));
        waits.max().unwrap_or_default()
    }
}

/// The longest wait of other clients during some work, and the duration of the work.
#[derive(Clone, Copy, Debug)]
struct Hold {
    longest: Duration,
    work: Duration,
    /// The factor by which the wait may be longer.
    slack: u32,
}

impl Hold {
    fn is_short(self) -> bool {
        self.longest < (LONGEST_WAIT * self.slack).max(self.work / SHARE)
    }
}

/// Prepares and does the work in a few rounds, until it holds no client. Returns the best round.
fn best_round(
    address: SocketAddr,
    mut machine: Machine,
    prepare: &mut dyn FnMut(usize),
    mut work: impl FnMut(usize),
) -> Hold {
    let round = |n| {
        prepare(n);
        machine.restart();
        let probes = Probes::start(address);
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        work(n);
        let work = begun.elapsed();
        Hold { longest: probes.longest_wait(), work, slack: machine.slack() }
    };
    let mut best: Option<Hold> = None;
    for hold in (0..ROUNDS).map(round) {
        best = best.into_iter().chain([hold]).min_by_key(|hold| (!hold.is_short(), hold.longest));
        if hold.longest < LONGEST_WAIT {
            break;
        }
    }
    best.expect("there is at least one")
}

const PROBED: &str = "sub vcl_recv { if (req.url == \"/probe\") { return (synth(200)); } }";

/// Promise: a lookup that has to test many bans does not make other clients wait for more than 2 ms, and tests all of
/// them.
#[test]
fn testing_many_bans_does_not_hold_a_reactor() {
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
    let hold = best_round(daemon.address, daemon.machine(), &mut |_| (), |n| {
        // Several clients request the same object: it is tested once, not once for each.
        let ask = |_| {
            let (address, path) = (daemon.address, path(n));
            std::thread::spawn(move || get(address, &path).expect("a response arrives").status)
        };
        let clients: Vec<_> = (0..4).map(ask).collect();
        assert!(clients.into_iter().all(|c| c.join().expect("the thread does not panic") == 200));
    });
    assert_eq!(origin.requests(), before, "objects that are not banned are served from the cache");
    get(daemon.address, &path(7)).expect("a response arrives");
    assert_eq!(origin.requests(), before + 1, "banned objects are fetched");
    eprintln!("longest wait beside lookups that test {BANS} bans: {hold:?}");
    assert!(hold.is_short(), "{hold:?}");
}

/// Promise: a client that sends many requests in advance does not make other clients wait for more than 2 ms, and gets
/// all responses.
#[test]
fn pipelined_requests_do_not_hold_a_reactor() {
    let requests = effort(30_000, 100_000);
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, PROBED), &["-s", "malloc,64M", "-p", "reactors=1"]);
    let all = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(requests - 1)
        + "GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let hold = best_round(daemon.address, daemon.machine(), &mut |_| (), |_| {
        let mut stream = TcpStream::connect(daemon.address).expect("connections are accepted");
        let mut sending = stream.try_clone().expect("sockets can be cloned");
        std::thread::scope(|scope| {
            scope.spawn(|| sending.write_all(all.as_bytes()).expect("the daemon reads all requests"));
            let mut responses = Vec::new();
            stream.read_to_end(&mut responses).expect("the daemon closes in order");
            let heads = responses.windows(15).filter(|window| *window == b"HTTP/1.1 200 OK").count();
            assert_eq!(heads, requests);
        });
    });
    eprintln!("longest wait beside {requests} pipelined requests: {hold:?}");
    // Without pauses, a fifth of the work is done at once.
    assert!(hold.is_short() && hold.longest < (LONGEST_WAIT * hold.slack).max(hold.work / 10), "{hold:?}");
}

/// Writes a cacheable response with the tag `all`.
fn tagged(_: &str, stream: &mut TcpStream) -> bool {
    let text = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nxkey: all\r\nContent-Length: 2\r\n\r\nok";
    stream.write_all(text.as_bytes()).is_ok()
}

/// Promise: a purge of many objects by a tag does not make other clients wait for more than 2 ms, and the objects are
/// gone when its response arrives.
#[test]
fn purging_many_objects_does_not_hold_a_reactor() {
    let objects = effort(8_000, 300_000);
    let origin = Origin::start(tagged);
    let subs = "import xkey;
        sub vcl_recv {
            if (req.url == \"/probe\") { return (synth(200)); }
            if (req.method == \"PURGE\") { xkey.purge(\"all\"); return (synth(200)); }
        }";
    let mut daemon = Daemon::start(&vcl(origin.address, subs), &["-s", "malloc,1G"]);
    let hold = best_round(daemon.address, daemon.machine(), &mut |n| fill(daemon.address, n, objects), |n| {
        let purged =
            Client::connect(daemon.address).and_then(|mut c| c.ask("PURGE / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(purged.expect("a response arrives").status, 200);
        let before = origin.requests();
        for object in [0, objects / 2, objects - 1] {
            get(daemon.address, &format!("/{n}/{object}")).expect("a response arrives");
        }
        assert_eq!(origin.requests(), before + 3, "purged objects are fetched again");
    });
    eprintln!("longest wait beside a purge of {objects} objects: {hold:?}");
    assert!(hold.is_short(), "{hold:?}");
}

/// Fetches a number of objects.
fn fill(address: SocketAddr, round: usize, objects: usize) {
    let fetch = |from: usize| {
        std::thread::spawn(move || {
            let mut client = Client::connect(address).expect("connections are accepted");
            for n in (from..objects).step_by(4) {
                assert_eq!(client.get(&format!("/{round}/{n}")).expect("a response arrives").status, 200);
            }
        })
    };
    (0..4)
        .map(fetch)
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|c| c.join().expect("the thread does not panic"));
}

/// Returns a VCL that takes long to compile and to free.
fn large_vcl(origin: SocketAddr) -> String {
    let mut subs = PROBED.to_owned();
    for n in 0..effort(300, 3000) {
        let _ = write!(
            subs,
            "backend b{n} {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}
            sub part_{n} {{
                if (req.url ~ \"^/(foo|bar)+{n}/[a-z]*$\") {{ set req.http.x-{n} = req.url + \"{n}\"; }}
                set req.backend_hint = b{n};
            }}
            sub vcl_recv {{ if (req.url == \"/{n}\") {{ call part_{n}; }} }}\n",
            origin.port()
        );
    }
    vcl(origin, &subs)
}

/// Promise: management commands, including the loading and discarding of VCL, do not make clients wait.
#[test]
fn management_commands_do_not_hold_a_reactor() {
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, PROBED), &[]);
    let file = std::env::temp_dir().join(format!("lacquer-large-{}.vcl", std::process::id()));
    std::fs::write(&file, large_vcl(origin.address)).expect("a file can be written");
    let address = daemon.address;
    let hold = best_round(address, daemon.machine(), &mut |_| (), |n| {
        let begun = Instant::now();
        daemon.ok(&format!("vcl.load large{n} {}", file.display()));
        daemon.ok(&format!("vcl.use large{n}"));
        for command in ["param.show -j", "param.show", "backend.list -j", "vcl.list -j", "ban.list -j"] {
            daemon.cli(command);
        }
        daemon.ok("vcl.use boot");
        daemon.ok(&format!("vcl.discard large{n}"));
        // It is freed once the reactors have released it.
        std::thread::sleep(Duration::from_millis(250).max(begun.elapsed() / 4));
    });
    let _ = std::fs::remove_file(&file);
    eprintln!("longest wait beside management commands: {hold:?}");
    assert!(hold.longest < LONGEST_WAIT * 5 * hold.slack, "{hold:?}");
}

/// Promise: passwords with slow hashes delay neither other clients nor users whose password was verified before.
#[test]
fn slow_passwords_do_not_hold_a_reactor() {
    // A cost of 12 takes a large part of a second. The stored password differs from those that are sent.
    const STORED: &str = "joe:$2y$12$abcdefghijklmnopqrstuuhKF09ZYWwH2zP/0fwE1X8e/Q1YNx/hO\n";
    let file = std::env::temp_dir().join(format!("lacquer-htpasswd-{}", std::process::id()));
    std::fs::write(&file, STORED).expect("a file can be written");
    let subs = format!(
        "import basicauth;
        sub vcl_recv {{
            if (req.url == \"/probe\") {{ return (synth(200)); }}
            if (!basicauth.match(\"{}\", req.http.Authorization)) {{ return (synth(401)); }}
        }}",
        file.display()
    );
    let mut daemon = Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), &subs), &[]);
    let hold = best_round(daemon.address, daemon.machine(), &mut |_| (), |n| {
        // "joe:" and a password that is different in each round.
        let credentials = ["am9lOmE=", "am9lOmI=", "am9lOmM="][n];
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic {credentials}\r\n\r\n");
        let refused = Client::connect(daemon.address).and_then(|mut client| client.ask(&request));
        assert_eq!(refused.expect("a response arrives").status, 401);
    });
    let _ = std::fs::remove_file(&file);
    eprintln!("longest wait beside a slow password: {hold:?}");
    assert!(hold.work > Duration::from_millis(30), "the password was tested: {hold:?}");
    assert!(hold.is_short(), "{hold:?}");
}

/// Promise: a large body of a request that VCL matches delays no other clients.
#[test]
fn matching_a_large_body_does_not_hold_a_reactor() {
    // Each position takes 200 steps, and only the last ones match.
    let body = "a".repeat(effort(2_000_000, 4_000_000)) + "b";
    let subs = "import bodyaccess;
        import std;
        sub vcl_recv {
            if (req.url == \"/probe\") { return (synth(200)); }
            if (!std.cache_req_body(16MB)) { return (synth(400)); }
            if (bodyaccess.len_req_body() < 2000000) { return (synth(400)); }
            if (bodyaccess.rematch_req_body(\"a{200}[bc]\") == 1) { return (synth(200)); }
            return (synth(404));
        }";
    let mut daemon = Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), subs), &[]);
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let hold = best_round(daemon.address, daemon.machine(), &mut |_| (), |_| {
        let matched = Client::connect(daemon.address).and_then(|mut client| client.ask(&request));
        assert_eq!(matched.expect("a response arrives").status, 200);
    });
    eprintln!("longest wait beside a match of {} bytes: {hold:?}", body.len());
    assert!(hold.work > Duration::from_millis(30), "the body was matched: {hold:?}");
    assert!(hold.is_short(), "{hold:?}");
}

/// Promise: a large object that evicts many small ones does not make other clients wait for more than 2 ms.
#[test]
fn evicting_many_objects_does_not_hold_a_reactor() {
    let objects = effort(10_000, 100_000);
    let origin = Origin::start(sized);
    let storage = format!("malloc,{}M", objects * 4 / 1024);
    let options = ["-s", &storage, "-p", "nuke_limit=1000000"];
    let mut daemon = Daemon::start(&vcl(origin.address, PROBED), &options);
    let large = objects * 1024;
    let mut client = Client::connect(daemon.address).expect("connections are accepted");
    let mut fill = |round: usize| {
        for n in 0..objects * 2 {
            let path = format!("/1400/kept/{round}/{n}");
            assert_eq!(client.get(&path).expect("a response arrives").status, 200);
        }
    };
    let hold = best_round(daemon.address, daemon.machine(), &mut fill, |n| {
        let answer = get(daemon.address, &format!("/{large}/kept/large{n}")).expect("a response arrives");
        assert_eq!((answer.status, answer.body.len()), (200, large));
    });
    eprintln!("longest wait beside {large} bytes that evict small objects: {hold:?}");
    assert!(hold.longest < (LONGEST_WAIT * 2 * hold.slack).max(hold.work / (2 * SHARE)), "{hold:?}");
}
