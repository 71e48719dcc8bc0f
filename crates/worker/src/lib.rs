//! The worker: the process that serves clients and fetches from origins.
//!
//! One reactor per core serves clients and fetches from origins (`session`, `client`, `fetch`). The main
//! thread carries out the manager's requests (`control`). Helper threads expire objects and test bans
//! (`helpers`). All unsafe code of the crate is in `sys`.
#![deny(unsafe_code)]

mod accept;
mod account;
mod addresses;
mod admission;
mod arrivals;
mod backends;
mod balancer;
mod bans;
mod boot;
mod client;
mod client_socket;
mod client_transport;
mod control;
mod deadlines;
mod descriptors;
mod exit;
mod faults;
mod fetch;
mod give_back;
mod h2;
mod helpers;
mod jail;
mod linger;
mod live_params;
mod locks;
mod object_attributes;
mod origin_slot;
mod origin_watch;
mod patience;
mod pool_counters;
mod probes;
mod probing;
mod proxy_out;
mod purge;
mod reactor;
mod recycle_pool;
mod req_body;
mod req_filters;
mod runtimes;
mod sender;
mod session;
mod shared;
#[cfg(feature = "simulated")]
pub mod simulated;
mod slices;
mod stevedores;
mod surplus;
mod sys;
mod tag_counters;
mod task;
mod transaction_buffers;
mod transaction_slot;
mod turn;
mod vars;
mod vcl_life;
mod vcl_table;
mod vxids;
mod watchdog;
mod watched;

use std::os::fd::RawFd;
use std::process::ExitCode;

/// Serves until the manager stops the worker or goes away. `link` is the inherited socket towards it.
pub fn run(link: RawFd) -> ExitCode {
    match boot::boot(link) {
        Ok((shared, link)) => control::serve(&shared, link),
        Err(why) => {
            eprintln!("worker: {why}");
            ExitCode::from(2)
        }
    }
}
