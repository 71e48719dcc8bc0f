//! The daemon replaces itself under load: no connection is refused, no request fails, and no object is lost.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::client::{Client, get};
use lacquer_testing::daemon::{Daemon, program, signal, vcl};
use lacquer_testing::origin::Origin;
use lacquer_testing::slots::shared_slot;
use lacquer_testing::{LONGEST_HOLD, until, until_within, write_program};
use rustix::process::{Pid, Signal, kill_process};

const PAGES: u64 = 300;
/// The length of the body that is read slowly.
const LONG: usize = 40 << 20;

const SUBS: &str = r#"
import std;
sub vcl_backend_response {
    set beresp.ttl = 1h;
    if (bereq.url == "/slow" || bereq.url == "/gate") { set beresp.uncacheable = true; }
}
sub vcl_deliver {
    set resp.http.hits = obj.hits;
    if (req.url == "/gate") { std.ban("req.url == /5"); }
}
"#;

pub fn body(n: u64) -> Vec<u8> {
    let length = match n % 30 {
        0 => 400_000,
        1..4 => 30_000,
        _ => n as usize * 13 % 4000,
    };
    Random(n).bytes(length)
}

/// An origin of numbered pages, a long one, one that sends its second half after a while, and one that waits for the
/// gate to open.
pub fn origin() -> (Origin, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(false));
    let opens = Arc::clone(&gate);
    let origin = Origin::start(move |path, stream| {
        let send = |stream: &mut dyn Write, body: &[u8]| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(body).is_ok()
        };
        if path == "/long" {
            return send(stream, &Random(1).bytes(LONG));
        }
        if path == "/slow" {
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst";
            let begun = stream.write_all(head.as_bytes()).is_ok();
            thread::sleep(Duration::from_secs(3));
            return begun && stream.write_all(b"other").is_ok();
        }
        if path == "/gate" {
            return until_within(LONGEST_HOLD, || opens.load(Ordering::Relaxed)) && send(stream, b"open");
        }
        send(stream, &body(path[1..].parse().unwrap_or(0)))
    });
    (origin, gate)
}

/// A daemon whose program has a file of its own, which a test may replace.
pub struct Upgradable {
    pub daemon: Daemon,
    file: PathBuf,
}

/// Returns the file of the program, and a script that creates and executes it.
fn file_of(name: &str) -> (PathBuf, String) {
    let file = std::env::temp_dir().join(format!("lacquer-upgrade-{}-{name}", std::process::id()));
    let shown = file.display();
    let script = format!("ln -f \"$1\" {shown} 2>/dev/null || cp \"$1\" {shown}; shift; exec {shown} \"$@\"");
    (file, script)
}

impl Drop for Upgradable {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

impl Upgradable {
    pub fn start(name: &str, origin: &Origin, options: &[&str]) -> Upgradable {
        let file = std::env::temp_dir().join(format!("lacquer-upgrade-{}-{name}", std::process::id()));
        let shown = file.display();
        let script =
            format!("ln -f \"$1\" {shown} 2>/dev/null || cp \"$1\" {shown}; shift; exec {shown} \"$@\"");
        let daemon = Daemon::start_by(&vcl(origin.address, SUBS), options, &script);
        Upgradable { daemon, file }
    }

    /// Starts the daemon in the jail that it chooses: as root, its processes have users of their own.
    pub fn start_jailed(name: &str, origin: &Origin, options: &[&str]) -> Upgradable {
        let (file, script) = file_of(name);
        let daemon = Daemon::start_jailed(&vcl(origin.address, SUBS), options, &script);
        Upgradable { daemon, file }
    }

    /// Upgrades the daemon, and waits until the new worker serves.
    pub fn upgrade(&mut self) {
        let before = self.daemon.worker();
        signal(self.daemon.manager(), "-USR2");
        self.daemon.banner();
        let shown = self.daemon.ok("upgrade.show");
        assert!(shown.starts_with("Upgraded from"), "{shown}\n{}", self.daemon.stderr());
        assert_ne!(self.daemon.worker(), before);
    }

    /// Waits until the worker before this one has ended.
    pub fn settle(&self) {
        let count = || self.daemon.stderr().matches(") ended").count();
        let upgrades = self.daemon.stderr().matches("Upgraded from").count();
        assert!(until(|| count() >= upgrades), "{}", self.daemon.stderr());
    }
}

#[derive(Default)]
struct Report {
    complete: u64,
    misses: u64,
    errors: Vec<String>,
    times: Vec<Duration>,
}

/// Requests pages until the end, on connections that stay open or on a new one each time.
fn load(address: SocketAddr, stop: &AtomicBool, seed: u64, keeps: bool) -> Report {
    let (mut random, mut report) = (Random(seed), Report::default());
    while !stop.load(Ordering::Relaxed) {
        let mut client = match Client::connect(address) {
            Ok(client) => client,
            Err(error) => {
                report.errors.push(format!("connect: {error}"));
                continue;
            }
        };
        loop {
            let n = random.below(PAGES);
            let begun = Instant::now();
            match client.get(&format!("/{n}")) {
                Ok(response) => {
                    if response.status != 200 || response.body != body(n) {
                        report.errors.push(format!("page {n}: {}", response.head));
                    }
                    report.times.push(begun.elapsed());
                    report.complete += 1;
                    report.misses += u64::from(response.header("hits") == Some("0"));
                    if response.header("Connection") == Some("close") {
                        break;
                    }
                }
                Err(error) => {
                    report.errors.push(format!("page {n}: {error}"));
                    break;
                }
            }
            if !keeps || stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    report
}

fn fill(address: SocketAddr) {
    let mut client = Client::connect(address).expect("it accepts");
    for n in 0..PAGES {
        assert_eq!(client.get(&format!("/{n}")).expect("a response").status, 200);
    }
}

#[test]
fn no_request_and_no_object_is_lost_under_load() {
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("load", &origin, &["-s", "malloc,200m"]);
    let address = it.daemon.address;
    fill(address);
    assert_eq!(get(address, "/long").expect("a response").body.len(), LONG);
    let filled = origin.requests();
    it.daemon.ok("param.set default_grace 77");
    it.daemon.ok("ban obj.http.nosuch == 1");
    let manager = it.daemon.manager();

    // Downloads in progress: one from memory, one from the origin.
    let mut from_memory = Client::connect(address).expect("it accepts");
    from_memory.send("GET /long HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it is open");
    let mut from_origin = Client::connect(address).expect("it accepts");
    from_origin.send("GET /slow HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it is open");
    assert!(until(|| origin.requests() == filled + 1));

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|seed| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || load(address, &stop, seed, seed < 4))
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    it.upgrade();
    thread::sleep(Duration::from_millis(500));
    stop.store(true, Ordering::Relaxed);
    let mut all = Report::default();
    for client in clients {
        let report = client.join().expect("a client ends");
        all.complete += report.complete;
        all.misses += report.misses;
        all.errors.extend(report.errors);
        all.times.extend(report.times);
    }
    all.times.sort();
    let at = |part: f64| all.times[(all.times.len() as f64 * part) as usize];
    println!("{} requests, p50 {:?}, p99 {:?}, p99.9 {:?}", all.complete, at(0.5), at(0.99), at(0.999));
    assert!(all.errors.is_empty(), "{} of {}: {:?}", all.errors.len(), all.complete, &all.errors[..1]);
    assert_eq!((all.misses, origin.requests()), (0, filled + 1), "all are hits");
    assert!(all.complete > 100);

    // The old worker finishes what it has.
    assert_eq!(from_origin.response().expect("it is complete").body, b"firstother");
    assert!(from_memory.response().expect("it is complete").body == Random(1).bytes(LONG));
    drop((from_memory, from_origin));
    it.settle();
    assert_eq!(it.daemon.manager(), manager);
    assert!(it.daemon.ok("param.show default_grace").contains("Value is: 77"));
    assert!(it.daemon.ok("ban.list").contains("obj.http.nosuch == 1"));
    // Once more, without load.
    it.upgrade();
    it.settle();
    assert_eq!(get(address, "/7").expect("a response").body, body(7));
    assert_eq!(origin.requests(), filled + 1);
}

#[test]
fn a_ban_at_the_old_worker_reaches_the_new_one() {
    let _slot = shared_slot();
    let (origin, gate) = origin();
    let mut it = Upgradable::start("ban", &origin, &[]);
    let address = it.daemon.address;
    fill(address);
    let before = origin.requests();
    let mut old = Client::connect(address).expect("it accepts");
    old.send("GET /gate HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it is open");
    assert!(until(|| origin.requests() == before + 1));
    it.upgrade();
    assert_ne!(get(address, "/5").expect("a response").header("hits"), Some("0"));
    // The old worker bans the page when the origin responds, and answers when the new one has applied that.
    gate.store(true, Ordering::Relaxed);
    assert_eq!(old.response().expect("it is complete").body, b"open");
    assert_eq!(get(address, "/5").expect("a response").header("hits"), Some("0"));
    assert_ne!(get(address, "/6").expect("a response").header("hits"), Some("0"));
    assert_eq!(origin.requests(), before + 2);
}

#[test]
fn a_program_that_cannot_continue_leaves_the_old_one() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("broken", &origin, &[]);
    let address = it.daemon.address;
    fill(address);
    let filled = origin.requests();
    let worker = it.daemon.worker();
    let good = it.file.with_extension("good");
    fs::rename(&it.file, &good).expect("the file can be renamed");
    let replace = |text: Option<&str>| {
        let _ = fs::remove_file(&it.file);
        if let Some(text) = text {
            write_program(&it.file, text);
        }
    };
    let cases = [
        (None, "does not exist"),
        (Some("#!/bin/sh\necho It has a bug >&2\nexit 1\n"), "does not accept the state: It has a bug"),
        (Some("#!/bin/sh\nkill -SEGV $$\n"), "does not accept the state: signal"),
        (Some("nonsense"), "Exec format error"),
    ];
    for (at, (text, reason)) in cases.into_iter().enumerate() {
        replace(text);
        signal(it.daemon.manager(), "-USR2");
        let failures = || it.daemon.stderr().matches("Upgrade failed").count();
        assert!(until(|| failures() > at), "{}", it.daemon.stderr());
        assert!(it.daemon.stderr().contains(reason), "{reason}: {}", it.daemon.stderr());
        assert_eq!(get(address, "/8").expect("a response").body, body(8));
    }
    assert!(it.daemon.ok("upgrade.show").starts_with("The last upgrade failed: "));
    assert_eq!((it.daemon.worker(), origin.requests()), (worker, filled));
    // The program is repaired.
    fs::rename(&good, &it.file).expect("the file can be renamed");
    it.upgrade();
    assert_eq!(get(address, "/8").expect("a response").body, body(8));
    assert_eq!(origin.requests(), filled);
}

/// The checked program must not fail after it has replaced the old one.
#[test]
fn a_secret_that_is_empty_by_now_refuses_the_upgrade() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let secret = std::env::temp_dir().join(format!("lacquer-upgrade-{}.secret", std::process::id()));
    fs::write(&secret, "one").expect("it can be written");
    let mut it = Upgradable::start("secret", &origin, &["-S", &secret.display().to_string()]);
    let worker = it.daemon.worker();
    fs::write(&secret, "").expect("it can be written");
    signal(it.daemon.manager(), "-USR2");
    assert!(until(|| it.daemon.stderr().contains("Upgrade failed")), "{}", it.daemon.stderr());
    assert!(it.daemon.stderr().contains("Empty secret-file"), "{}", it.daemon.stderr());
    assert_eq!(get(it.daemon.address, "/8").expect("a response").body, body(8));
    assert_eq!(it.daemon.worker(), worker);
    fs::write(&secret, "two").expect("it can be written");
    it.upgrade();
    let _ = fs::remove_file(&secret);
}

#[test]
fn a_replaced_worker_that_hangs_holds_the_management_port_once() {
    let _slot = shared_slot();
    let (origin, gate) = origin();
    let mut it = Upgradable::start("hangs", &origin, &[]);
    let address = it.daemon.address;
    let mut old = Client::connect(address).expect("it accepts");
    old.send("GET /gate HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it is open");
    assert!(until(|| origin.requests() == 1));
    let worker = it.daemon.worker();
    it.upgrade();
    it.daemon.ok("param.set cli_timeout 2");
    signal(worker, "-STOP");
    let is_killed = || it.daemon.stderr().contains(&format!("({worker}) not responding to CLI, killed it"));
    assert!(until(is_killed), "{}", it.daemon.stderr());
    assert!(until(|| it.daemon.stderr().contains(&format!("({worker}) died signal=9"))));
    it.daemon.ok("param.reset cli_timeout");
    assert!(it.daemon.ok("ping").starts_with("PONG"));
    assert_eq!(get(address, "/8").expect("a response").body, body(8));
    gate.store(true, Ordering::Relaxed);
}

#[test]
fn programs_that_are_idle_become_cold_after_an_upgrade() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("cold", &origin, &["-p", "vcl_cooldown=600"]);
    let text = vcl(origin.address, SUBS);
    it.daemon.ok(&format!("vcl.inline idle << %%\n{text}\n%%"));
    it.upgrade();
    it.daemon.ok("param.set vcl_cooldown 1");
    let state_of = |list: String, name: &str| {
        let line = list.lines().find(|line| line.ends_with(name)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(2).map(str::to_owned))
    };
    assert!(until(|| state_of(it.daemon.ok("vcl.list"), "idle").is_some_and(|found| found == "cold")));
    assert!(state_of(it.daemon.ok("vcl.list"), "boot").is_some_and(|found| found == "warm"));
}

/// The process that checks the state ends, but not the daemon that uses the folder.
#[test]
fn the_counts_of_an_access_log_outlive_the_check() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let script = "for word; do test \"$before\" = -n && export LACQUER_OWN_FOLDER=\"$word\"; before=$word; done; \
                  exec \"$@\"";
    let mut daemon = Daemon::start_by(&vcl(origin.address, SUBS), &[], script);
    let counts = daemon.directory().join("_.access_log");
    fs::write(&counts, "").expect("it can be written");
    signal(daemon.manager(), "-USR2");
    daemon.banner();
    assert!(daemon.ok("upgrade.show").starts_with("Upgraded from"), "{}", daemon.stderr());
    assert!(counts.exists());
    daemon.ok("stop");
    signal(daemon.manager(), "-TERM");
    assert_eq!((daemon.end(), counts.exists()), (Some(0), false), "the end of the daemon removes them");
}

#[test]
fn an_upgrade_that_would_lose_objects_is_refused_by_the_old_program() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let store = std::env::temp_dir().join(format!("lacquer-upgrade-{}.transient", std::process::id()));
    let transient = format!("Transient=file,{},20M", store.display());
    let cases: [(&str, &[&str], &str); 2] = [
        ("not-kept", &["-p", "keep_memory=off"], "keep_memory was off when the worker started"),
        ("transient", &["-s", "malloc,64m", "-s", &transient], "storage Transient is a file"),
    ];
    for (name, options, reason) in cases {
        let mut it = Upgradable::start(name, &origin, options);
        let address = it.daemon.address;
        let worker = it.daemon.worker();
        assert_eq!(get(address, "/5").expect("a response").status, 200);
        signal(it.daemon.manager(), "-USR2");
        assert!(until(|| it.daemon.stderr().contains("Upgrade failed")), "{}", it.daemon.stderr());
        // The management port is still open, and no other program was executed.
        let shown = it.daemon.ok("upgrade.show");
        assert!(shown.starts_with("The last upgrade failed: ") && shown.contains(reason), "{shown}");
        assert!(!shown.contains("was replaced"), "{shown}");
        let page = get(address, "/5").expect("a response");
        assert_eq!((page.header("hits") != Some("0"), page.body), (true, body(5)), "{name}");
        assert_eq!(it.daemon.worker(), worker);
    }
    let _ = fs::remove_file(&store);
}

#[test]
fn an_upgrade_is_possible_again_once_the_worker_keeps_its_memory() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("kept-again", &origin, &["-p", "keep_memory=off"]);
    // The parameter concerns the next worker.
    it.daemon.ok("param.set keep_memory on");
    signal(it.daemon.manager(), "-USR2");
    assert!(until(|| it.daemon.stderr().contains("Upgrade failed")), "{}", it.daemon.stderr());
    it.daemon.ok("stop");
    it.daemon.ok("start");
    it.upgrade();
}

#[test]
fn two_signals_and_a_vcl_that_is_loaded() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("twice", &origin, &[]);
    let manager = i32::try_from(it.daemon.manager()).ok().and_then(Pid::from_raw).expect("it has an id");
    let signals = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        // Not by a program that has to start: the first upgrade may be over then.
        for _ in 0..2 {
            kill_process(manager, Signal::USR2).expect("it runs");
        }
    });
    let text = vcl(origin.address, SUBS);
    let loads = format!("vcl.inline second << %%\n{text}\n%%");
    it.daemon.ok(&loads);
    signals.join().expect("the thread ends");
    it.daemon.banner();
    let list = it.daemon.ok("vcl.list");
    assert!(list.contains("second") && list.contains("boot"), "{list}");
    assert!(it.daemon.ok("upgrade.show").contains("from"));
    it.daemon.ok("vcl.use second");
    assert_eq!(get(it.daemon.address, "/9").expect("a response").body, body(9));
}

#[test]
fn the_command_of_the_other_program_waits_for_the_result() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start_jailed("command", &origin, &[]);
    let lacquer = program().with_file_name("lacquer");
    let run = |directory: &Path| {
        let output = Command::new(&lacquer).args(["upgrade", "--name"]).arg(directory).output();
        let output = output.expect("the program runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let directory = it.daemon.directory();
    let (is_done, said) = run(&directory);
    assert!(is_done && said.starts_with("upgraded from varnish-7.7.0 lacquer-"), "{said}");
    it.daemon.banner();
    it.settle();
    fs::remove_file(&it.file).expect("it exists");
    let (is_done, said) = run(&directory);
    assert!(!is_done && said.contains("does not exist"), "{said}");
    let (is_done, said) = run(Path::new("/nonexistent"));
    assert!(!is_done && said.contains("no daemon runs in"), "{said}");
}

#[test]
fn the_new_worker_dies_while_the_old_one_sends() {
    let _slot = shared_slot();
    let (origin, _gate) = origin();
    let mut it = Upgradable::start("dies", &origin, &["-s", "malloc,64m"]);
    let address = it.daemon.address;
    fill(address);
    let mut slow = Client::connect(address).expect("it accepts");
    slow.send("GET /long HTTP/1.1\r\nHost: robust\r\n\r\n").expect("it is open");
    assert!(until(|| origin.requests() == PAGES as usize + 1));
    assert_eq!(get(address, "/long").expect("a response").body.len(), LONG);
    it.upgrade();
    let worker = it.daemon.worker();
    signal(worker, "-KILL");
    assert!(until(|| it.daemon.ok("status").contains("running") && it.daemon.worker() != worker));
    let filled = origin.requests();
    for n in 0..PAGES {
        assert!(get(address, &format!("/{n}")).expect("a response").body == body(n), "page {n}");
    }
    assert_eq!(origin.requests(), filled, "all are hits");
    // More than finds room without the memory that the old worker still sends.
    for n in 1000..1000 + PAGES {
        assert!(get(address, &format!("/{n}")).expect("a response").body == body(n), "page {n}");
    }
    assert!(slow.response().expect("it is complete").body == Random(1).bytes(LONG));
    drop(slow);
    it.settle();
    it.upgrade();
    assert!(get(address, "/7").expect("a response").body == body(7));
}

/// No hit is lost, of objects on the disk and of those that are in memory alone.
#[test]
fn a_store_on_a_disk_passes_to_the_new_worker() {
    let _slot = shared_slot();
    for min in ["0", "1M"] {
        let (origin, _gate) = origin();
        let store = std::env::temp_dir().join(format!("lacquer-upgrade-{}.store", std::process::id()));
        let storage = format!("disk,{},size=64M,memory=16M,min={min}", store.display());
        let mut it = Upgradable::start("disk", &origin, &["-s", &storage]);
        let address = it.daemon.address;
        fill(address);
        let filled = origin.requests();
        for _ in 0..2 {
            it.upgrade();
            for n in 0..PAGES {
                assert!(get(address, &format!("/{n}")).expect("a response").body == body(n), "page {n}");
            }
            it.settle();
        }
        let missed = origin.requests() - filled;
        assert_eq!(missed, 0, "of {} requests: {}", 2 * PAGES, it.daemon.stderr());
        let _ = fs::remove_file(&store);
    }
}

#[test]
fn a_malformed_state_is_refused_in_one_line() {
    let _slot = shared_slot();
    for argument in ["--upgrade-state=", "--check-upgrade-state="] {
        for (number, redirection) in [("", ""), ("9", ""), ("-1", ""), ("9", "9</dev/null"), ("9", "9<$0")] {
            let script = format!("exec \"$0\" {argument}{number} -a 127.0.0.1:0 -b none {redirection}");
            let output = Command::new("sh").args(["-c", &script]).arg(program()).output().expect("sh runs");
            let said = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
            assert!(!output.status.success(), "{script}");
            assert!(
                lines.len() == 1 && lines[0].contains("Cannot continue with the state of the old program"),
                "{script}: {said}"
            );
        }
    }
}
