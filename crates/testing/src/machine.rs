//! The CPU time that other processes use while a test measures time.

use std::fs;
use std::time::Instant;

/// The machine counts as busy if other processes use more than this share of a processor.
const PART: f64 = 0.2;
/// The factor for measured times on a busy machine: a request may wait for a processor several times.
const BUSY: u32 = 5;
const TICKS_PER_SECOND: f64 = 100.0;

/// The use of the processors since a point in time.
pub struct Machine {
    since: Instant,
    /// The daemon's processes; the clients and origins are this process.
    daemon: [u32; 2],
    of_all: u64,
    of_test: u64,
}

impl Machine {
    pub(crate) fn beside(daemon: [u32; 2]) -> Machine {
        Machine { since: Instant::now(), daemon, of_all: of_all(), of_test: of_test(daemon) }
    }

    /// Starts a new measurement.
    pub fn restart(&mut self) {
        *self = Machine::beside(self.daemon);
    }

    /// Returns the factor by which a measured time may be longer: 1 unless other processes used the machine.
    pub fn slack(&self) -> u32 {
        let all = of_all().saturating_sub(self.of_all);
        let others = all.saturating_sub(of_test(self.daemon).saturating_sub(self.of_test));
        let seconds = others as f64 / TICKS_PER_SECOND;
        if seconds > self.since.elapsed().as_secs_f64() * PART { BUSY } else { 1 }
    }
}

fn of_test(daemon: [u32; 2]) -> u64 {
    daemon.into_iter().chain([std::process::id()]).map(ticks).sum()
}

/// Returns the CPU time of all processes, and the time stolen by other virtual machines, in ticks.
fn of_all() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let fields: Vec<u64> = numbers.map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _, _, _, _, stolen, ..] = fields[..] else { return 0 };
    user + nice + system + stolen
}

/// Returns the CPU time of a process, in ticks of 10 ms.
pub fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|word| word.parse::<u64>().ok()).sum()
}
