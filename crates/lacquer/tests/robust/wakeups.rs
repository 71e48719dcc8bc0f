//! A new connection wakes only the reactor that serves it.

use std::fs;
use std::time::Duration;

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};

const REACTORS: usize = 8;
const CONNECTIONS: usize = 200;
/// The time after which all effects of a connection are over.
const SETTLED: Duration = Duration::from_millis(5);

/// Returns the number of waits of each of the worker's reactors.
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

/// Returns the number of reactors that were woken in each round, summed over all rounds.
fn woken(worker: u32, round: impl Fn()) -> usize {
    let mut before = waits(worker);
    let rounds = (0..CONNECTIONS).map(|_| {
        round();
        std::thread::sleep(SETTLED);
        let now = waits(worker);
        let changed = before.iter().zip(&now).filter(|(before, now)| before != now).count();
        before = now;
        changed
    });
    rounds.sum()
}

#[test]
fn a_connection_wakes_one_reactor_of_eight() {
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &["-p", &format!("reactors={REACTORS}")]);
    get(daemon.address, "/100").expect("the daemon responds");
    let worker = daemon.worker();
    assert_eq!(waits(worker).len(), REACTORS);
    let by_clock = woken(worker, || ());
    let all = woken(worker, || {
        get(daemon.address, "/100").expect("it answers");
    });
    assert!(all >= CONNECTIONS, "{all} wake-ups seen for {CONNECTIONS} connections");
    let by_connections = all.saturating_sub(by_clock);
    assert!(
        by_connections <= CONNECTIONS * 5 / 4,
        "{by_connections} reactors woken by {CONNECTIONS} connections, {by_clock} by the clock"
    );
}
