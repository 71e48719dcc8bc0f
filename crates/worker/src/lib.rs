//! The worker: the process that serves clients and fetches from origins.
//!
//! One reactor per core runs sessions (`lacquer-sessions`) and the engine (`lacquer-engine`). The main thread carries
//! out the manager's requests (`control`). A thread per listening socket accepts connections (`accept`), and helper
//! threads expire objects and test bans (`helpers`). All unsafe code of the crate is in `storages`.
#![deny(unsafe_code)]

mod accept;
mod arrivals;
mod backend_gauges;
mod balancer;
mod boot;
mod control;
mod datagrams;
mod disk_counters;
mod disks;
mod handover;
mod helpers;
mod locks;
mod memory_trimmer;
mod origin_tls;
mod peers;
mod probing;
mod process;
mod program_backends;
mod reactor;
mod runtimes;
#[cfg(feature = "simulated")]
pub mod simulated;
mod storages;
mod successor;
mod tag_counters;
mod udp_handover;
mod vcl_life;
mod watchdog;

use std::os::fd::RawFd;
use std::process::ExitCode;

/// Runs the worker until the manager stops it or exits. `link` is the inherited socket that connects to the manager.
pub fn run(link: RawFd) -> ExitCode {
    match boot::boot(link) {
        Ok((process, entrance, link)) => control::serve(&process, &entrance, link),
        Err(why) => {
            eprintln!("worker: {why}");
            ExitCode::from(2)
        }
    }
}
