//! `lacquerd`: the daemon. It is the manager, or the worker or the process of the admin listener when the manager starts it
//! with a hidden argument.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use lacquer_cli::admin;
use lacquer_cli::link::WORKER_ARGUMENT;

fn main() -> ExitCode {
    // The names that `ps` shows, which distinguish the processes.
    if let Some(fd) = link(WORKER_ARGUMENT) {
        let _ = std::fs::write("/proc/self/comm", "cache-main");
        lacquer_worker::run(fd)
    } else if let Some(fd) = link(admin::ARGUMENT) {
        let _ = std::fs::write("/proc/self/comm", admin::NAME);
        lacquer_admin::run(fd)
    } else {
        lacquer_manager::main()
    }
}

/// Returns the descriptor of the link to the manager, if the first argument is this one.
fn link(argument: &str) -> Option<i32> {
    std::env::args().nth(1)?.strip_prefix(argument)?.parse().ok()
}
