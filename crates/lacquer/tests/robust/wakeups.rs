//! A new connection wakes only the reactor that serves it.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::until;

const REACTORS: usize = 8;
const CONNECTIONS: usize = 200;
/// The time from the first effect of a connection to the end of the last one.
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

/// Returns the number of reactors that were woken between two calls of `waits`.
fn woken(before: &[u64], after: &[u64]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

#[test]
fn a_connection_wakes_one_reactor_of_eight() {
    let origin = Origin::start(sized);
    let mut daemon = Daemon::start(&vcl(origin.address, ""), &["-p", &format!("reactors={REACTORS}")]);
    get(daemon.address, "/100").expect("the daemon responds");
    let worker = daemon.worker();
    assert_eq!(waits(worker).len(), REACTORS);
    let (mut all, mut by_clock) = (0, 0);
    // A pause that takes as long as each connection has the same number of wake-ups by the clock.
    for _ in 0..CONNECTIONS {
        let (begun, before) = (Instant::now(), waits(worker));
        get(daemon.address, "/100").expect("it answers");
        assert!(until(|| woken(&before, &waits(worker)) > 0), "a connection wakes a reactor");
        sleep(SETTLED);
        let after = waits(worker);
        sleep(begun.elapsed());
        all += woken(&before, &after);
        by_clock += woken(&after, &waits(worker));
    }
    assert!(all >= CONNECTIONS, "{all} wake-ups seen for {CONNECTIONS} connections");
    let by_connections = all.saturating_sub(by_clock);
    assert!(
        by_connections <= CONNECTIONS * 5 / 4,
        "{by_connections} reactors woken by {CONNECTIONS} connections, {by_clock} by the clock"
    );
}
