//! The companion of `lacquer run`: a child of this process that reads the log and the counters of the worker.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::jail::Jail;

/// The variable with the process id of the companion.
pub const ATTENDANT: &str = "LACQUER_ATTENDANT";
/// The signal after which the companion reads the last records and counters, reports what was served and ends.
const CONCLUDE: Signal = Signal::USR1;
/// Maximum time for its report.
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

/// Lets the companion report what was served, and waits until it has. The worker has ended, but its files and the terminal
/// are still there, so that nothing is missing.
pub fn conclude(jail: &Jail) {
    let pid = std::env::var(ATTENDANT).ok().and_then(|text| text.parse().ok()).filter(|pid| *pid > 1);
    let Some(pid) = pid.and_then(Pid::from_raw) else { return };
    // Only an own child that has not ended is signalled.
    let has_ended = || !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None));
    if has_ended() {
        return;
    }
    {
        let _root = jail.raise();
        let _ = kill_process(pid, CONCLUDE);
    }
    let start = Instant::now();
    while start.elapsed() < PATIENCE && !has_ended() {
        thread::sleep(POLL);
    }
}
