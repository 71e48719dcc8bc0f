//! Faults of the processes: a killed worker is replaced soon and no connection is refused.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lacquer_testing::admin::AdminPort;
use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, children, has_ended, refused, signal, until, vcl};
use lacquer_testing::effort;
use lacquer_testing::management::ManagementPort;
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;

/// The limit for the replacement of a worker: a second, and more for a busy machine.
const BACK_WITHIN: Duration = Duration::from_secs(4);

#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    refused: AtomicUsize,
    ends: AtomicBool,
}

fn ask_all_the_time(address: std::net::SocketAddr, seen: &Seen) {
    while !seen.ends.load(Ordering::Relaxed) {
        match get(address, "/1000/kept/a") {
            Ok(answer) if answer.status == 200 => seen.answered.fetch_add(1, Ordering::SeqCst),
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => seen.refused.fetch_add(1, Ordering::SeqCst),
            // Responses that the killed worker did not complete.
            _ => 0,
        };
    }
}

#[test]
fn a_killed_worker_is_replaced_while_connections_wait() {
    let _slot = shared_slot();
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M"]);
    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (seen, address) = (seen.clone(), daemon.address);
            std::thread::spawn(move || ask_all_the_time(address, &seen))
        })
        .collect();
    assert!(until(|| seen.answered.load(Ordering::SeqCst) > 100), "the load runs");
    for _ in 0..2 {
        let before = daemon.worker();
        let killed = Instant::now();
        signal(before, "-KILL");
        let answer = get(daemon.address, "/1000/kept/b").or_else(|_| get(daemon.address, "/1000/kept/b"));
        assert_eq!(answer.expect("the next worker serves requests").status, 200);
        assert!(killed.elapsed() < BACK_WITHIN, "back after {:?}", killed.elapsed());
        assert_ne!(daemon.worker(), before);
        let so_far = seen.answered.load(Ordering::SeqCst);
        assert!(until(|| seen.answered.load(Ordering::SeqCst) > so_far + 100), "the load continues");
    }
    seen.ends.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("clients do not panic");
    }
    assert_eq!(seen.refused.load(Ordering::SeqCst), 0);
    assert_eq!(daemon.stderr().matches("died signal=9").count(), 2, "{}", daemon.stderr());
}

#[test]
fn a_panic_is_shown() {
    let _slot = shared_slot();
    let mut daemon =
        Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), "sub vcl_recv { return (synth(200)); }"), &[]);
    assert_eq!(daemon.cli("panic.show").0, 300);
    let before = daemon.worker();
    daemon.cli("debug.panic.worker");
    let answer = get(daemon.address, "/");
    assert_eq!(answer.expect("the next worker serves requests").status, 200);
    assert_ne!(daemon.worker(), before);
    let shown = daemon.ok("panic.show");
    assert!(shown.contains("Panic at:") && shown.contains(&format!("({before})")), "{shown}");
}

#[test]
fn a_fatal_signal_leaves_a_panic_text() {
    let _slot = shared_slot();
    let mut daemon = Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), ""), &[]);
    let signals = [
        ("-SEGV", "signal 11 (Segmentation fault)"),
        ("-ABRT", "signal 6 (Aborted)"),
        ("-QUIT", "signal 3 (Quit)"),
    ];
    for (name, words) in signals {
        assert!(until(|| daemon.ok("pid").contains("Worker")), "a worker runs");
        signal(daemon.worker(), name);
        assert!(until(|| daemon.cli("panic.show").1.contains(words)), "{words} is shown");
        let shown = daemon.ok("panic.show");
        for part in [words, ", sent by process ", "version = ", "Backtrace:", "pthread.name = "] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[test]
fn signals_to_the_process_group_do_not_end_the_worker() {
    let _slot = shared_slot();
    let mut daemon =
        Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), "sub vcl_recv { return (synth(200)); }"), &[]);
    let worker = daemon.worker();
    for name in ["-HUP", "-INT", "-PIPE"] {
        signal(worker, name);
        assert_eq!(get(daemon.address, "/").expect("the worker serves requests").status, 200, "after {name}");
    }
    assert_eq!(daemon.worker(), worker);
}

#[test]
fn the_worker_does_not_outlive_the_manager() {
    let _slot = shared_slot();
    let mut daemon = Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), ""), &[]);
    let worker = daemon.worker();
    signal(daemon.manager(), "-KILL");
    assert!(until(|| has_ended(worker)), "the worker still runs");
}

/// A failed launch is retried with growing pauses, without end.
#[test]
fn a_failed_launch_is_retried() {
    let _slot = shared_slot();
    let options = ["-s", "malloc,32M"];
    let mut daemon =
        Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), "sub vcl_recv { return (synth(200)); }"), &options);
    let first = daemon.worker();
    let manager = daemon.manager();
    let start = Instant::now();
    while start.elapsed() < effort(Duration::from_secs(1), Duration::from_secs(30)) {
        for child in children(manager) {
            // It may have ended meanwhile.
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_raw(child as i32).expect("not zero"),
                rustix::process::Signal::KILL,
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let answered = || get(daemon.address, "/").is_ok_and(|answer| answer.status == 200);
    assert!(until(answered), "a worker serves again");
    assert_ne!(daemon.worker(), first);
    let said = daemon.stderr();
    assert!(said.contains("trying again in"), "{said}");
}

/// A removed working directory is recreated: tools find the port and the secret again, a new worker can create its log, and
/// the admin listener reads it.
#[test]
fn a_removed_working_directory_is_recreated() {
    let _slot = shared_slot();
    let options = ["-T", "127.0.0.1:0", "-w", "127.0.0.1:0", "-s", "malloc,32M"];
    let mut daemon =
        Daemon::start(&vcl(([127, 0, 0, 1], 1).into(), "sub vcl_recv { return (synth(200)); }"), &options);
    let directory = daemon.directory();
    let login = || ManagementPort::of(&directory).is_some_and(|port| port.login().is_ok());
    assert!(login());
    let token = AdminPort::when_ready(&daemon).token;
    for _ in 0..2 {
        std::fs::remove_dir_all(&directory).expect("it can be removed");
        assert!(until(login), "{}", daemon.stderr());
        assert!(directory.join("_.pid").exists());
    }
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    let killed = Instant::now();
    signal(daemon.worker(), "-KILL");
    let answered = || get(daemon.address, "/").is_ok_and(|answer| answer.status == 200);
    assert!(until(answered), "a worker serves again");
    assert!(killed.elapsed() < BACK_WITHIN, "back after {:?}", killed.elapsed());
    assert!(until(login), "{}", daemon.stderr());
    assert!(until(|| directory.join("_.vsm_child/_.index").exists()));
    let has_counters = |port: AdminPort| {
        let metrics = port.ask("GET", "/metrics", "");
        metrics.is_ok_and(|metrics| String::from_utf8_lossy(&metrics.body).contains("\nlacquer_main_"))
    };
    let is_seen = || AdminPort::of(&directory).is_some_and(|port| port.token == token && has_counters(port));
    assert!(until(is_seen), "{}", daemon.stderr());
}

/// Both processes start and serve within 600 MB of address space.
#[test]
fn a_limit_on_the_address_space_is_kept() {
    let _slot = shared_slot();
    for storage in ["malloc,64M", "default,100m"] {
        let origin = Origin::start(sized);
        let limits = "ulimit -v 614400; exec \"$@\"";
        let mut daemon = Daemon::start_by(&vcl(origin.address, ""), &["-s", storage], limits);
        let worker = daemon.worker();
        for path in ["/1000/kept/a", "/20000000/kept/b", "/20000000/pass/c"] {
            assert_eq!(get(daemon.address, path).expect("a response arrives").status, 200);
        }
        assert_eq!(daemon.worker(), worker);
    }
}

/// Too little address space, or a tmpfs that is too small for the log, is reported in one line before anything else.
#[test]
fn missing_resources_are_reported_in_one_line() {
    let _slot = shared_slot();
    let said = refused(&[], "ulimit -v 300000; exec \"$@\"");
    assert!(said.starts_with("Error: Address space is limited to 292 MB (RLIMIT_AS)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let mount = "mkdir $dir/name && mount -t tmpfs -o size=20m tmpfs $dir/name && exec \"$@\"";
    let said = refused(&[], &format!("exec unshare -rm sh -c '{mount}' sh \"$@\""));
    if said.contains("unshare") || said.contains("mount") {
        eprintln!("skipped: a tmpfs cannot be mounted: {said}");
        return;
    }
    assert!(said.starts_with("Error: Working directory "), "{said}");
    assert!(said.contains("(tmpfs) has room for 20 MB, but 82 MB are needed"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
