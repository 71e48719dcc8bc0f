//! `lacquerd`: the daemon. It is the manager, or the worker when the manager starts it with a hidden argument.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use lacquer_cli::link::WORKER_ARGUMENT;

fn main() -> ExitCode {
    let link = std::env::args().nth(1).and_then(|first| first.strip_prefix(WORKER_ARGUMENT)?.parse().ok());
    match link {
        Some(fd) => {
            // The name that `ps` shows, which distinguishes the two processes.
            let _ = std::fs::write("/proc/self/comm", "cache-main");
            lacquer_worker::run(fd)
        }
        None => lacquer_manager::main(),
    }
}
