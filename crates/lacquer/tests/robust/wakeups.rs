//! A new connection wakes only the reactor that serves it.

use std::fs;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};

const REACTORS: usize = 8;
const CONNECTIONS: u64 = 400;
/// A connection may wake its reactor when it is accepted, with its request and when it closes. One more wake-up is for
/// the reactor's timers.
const MAX_PER_CONNECTION: u64 = 4;

/// Returns for each reactor of the worker how often it waited.
fn waits(worker: u32) -> Vec<u64> {
    let threads = fs::read_dir(format!("/proc/{worker}/task")).expect("the worker runs");
    let read = |folder: &fs::DirEntry, name| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let reactors = threads.flatten().filter(|thread| read(thread, "comm").starts_with("reactor-"));
    let waits = reactors.map(|thread| {
        let status = read(&thread, "status");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse().ok()).expect("the kernel counts")
    });
    waits.collect()
}

#[test]
fn a_connection_wakes_one_reactor_of_eight() {
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &["-p", &format!("reactors={REACTORS}")]);
    get(daemon.address, "/100").expect("the daemon responds");
    let worker = daemon.worker();
    let total = || waits(worker).iter().sum::<u64>();
    assert_eq!(waits(worker).len(), REACTORS);
    // Wake-ups by timers.
    let (idle, second) = (total(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (before, idle) = (total(), (total() - idle) as f64 / second.elapsed().as_secs_f64());
    let begun = Instant::now();
    for _ in 0..CONNECTIONS {
        get(daemon.address, "/100").expect("the daemon responds");
    }
    let by_clock = (idle * begun.elapsed().as_secs_f64()) as u64;
    let woken = (total() - before).saturating_sub(by_clock);
    assert!(woken <= CONNECTIONS * MAX_PER_CONNECTION, "{woken} wake-ups for {CONNECTIONS} connections");
}
