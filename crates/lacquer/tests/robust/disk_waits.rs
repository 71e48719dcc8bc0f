//! Waits for the work of stores on disks, which takes long on a busy machine.

use std::process::Command;
use std::thread;
use std::time::Duration;

use lacquer_testing::daemon::{Daemon, program};
use lacquer_testing::until;

/// Returns the lines of the counters that a pattern of names matches.
fn lines(daemon: &Daemon, names: &str) -> String {
    let mut command = Command::new(program().with_file_name("lacquer"));
    let output = command.args(["stat", "-n"]).arg(daemon.directory()).arg(names).output();
    String::from_utf8(output.expect("the program can be started").stdout).expect("text")
}

/// Returns all counters of disks, for the message of a failed assertion.
pub(crate) fn disk_counters(daemon: &Daemon) -> String {
    lines(daemon, "DISK.*")
}

/// Returns the values of the counters that a pattern of names matches.
fn counters(daemon: &Daemon, names: &str) -> Vec<u64> {
    let value = |line: &str| line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    lines(daemon, names).lines().filter_map(value).collect()
}

pub(crate) fn counter(daemon: &Daemon, name: &str) -> Option<u64> {
    counters(daemon, name).first().copied()
}

/// Waits until the index of every disk is read: until then, requests are misses.
pub(crate) fn wait_for_index(daemon: &mut Daemon) {
    assert!(until(|| !daemon.ok("storage.list").contains("reading the index")), "{}", daemon.stderr());
}

/// Returns the number of objects that the disks have refused, because too many waited.
pub(crate) fn refusals(daemon: &Daemon) -> u64 {
    counters(daemon, "DISK.*.c_refused").iter().sum()
}

/// Waits until no object waits to be written.
pub(crate) fn wait_for_writes(daemon: &Daemon) {
    let uptime = || counter(daemon, "MAIN.uptime");
    let before = uptime();
    thread::sleep(Duration::from_millis(1500));
    // A busy machine may have delayed the thread that publishes the counters.
    assert!(until(|| uptime().is_some() && uptime() != before), "no counters: {}", daemon.stderr());
    wait_for_queue(daemon);
}

/// Waits until the counters show that no object waits to be written.
pub(crate) fn wait_for_queue(daemon: &Daemon) {
    let is_written = || {
        let queued = counters(daemon, "DISK.*.g_queued_bytes");
        !queued.is_empty() && queued.iter().all(|&bytes| bytes == 0)
    };
    assert!(until(is_written), "objects wait to be written: {}", daemon.stderr());
}
