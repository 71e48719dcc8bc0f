//! The worker's jail, which limits a worker that an attacker has taken over. It is closed before the worker has
//! threads, so it holds for all of them.
//!
//! In this order, because each step needs rights that a later one gives up: namespaces, capabilities, user, no new
//! privileges, files (Landlock), system calls (seccomp). A kernel or a container that lacks one of them does not
//! keep the worker from running; [`enter`] returns what is missing, for one line in the log.
//!
//! Not used: a PID namespace (as its first process the worker could not die of its own signals, and readers of
//! the shared memory look for it by its number), a network namespace (it is there to serve), a user namespace (it
//! opens more of the kernel than it closes).
#![forbid(unsafe_code)]

mod bpf;
mod files;
mod rules;

use std::io;

use lacquer_cli::link::WorkerConfig;
use lacquer_params::Params;
use lacquer_system::{self as system, confine};
use rustix::fs::StatVfsMountFlags;
use rustix::process::getpid;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Parts of the jail that are not in force, each with the reason.
#[derive(Debug, Default)]
pub struct Missing(Vec<String>);

impl Missing {
    fn note(&mut self, part: &str, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.0.push(format!("{part} ({error})"));
        }
    }

    fn off(&mut self, part: &str, parameter: &str) {
        self.0.push(format!("{part} (parameter {parameter} is off)"));
    }

    /// Returns a line for the log, unless everything is in force.
    pub fn line(&self) -> Option<String> {
        (!self.0.is_empty())
            .then(|| format!("The worker's jail is incomplete, without: {}", self.0.join(", ")))
    }
}

/// Closes the jail around this process, which must not have other threads yet.
pub fn enter(config: &WorkerConfig) -> Result<Missing, String> {
    let mut missing = Missing::default();
    if let Some(who) = &config.credentials {
        missing.note("namespaces", namespaces());
        confine::drop_bounding_set();
        system::become_user(who.uid, who.gid)?;
    } else {
        confine::drop_bounding_set();
    }
    missing.note("capabilities", drop_capabilities());
    // The change of user has reset both.
    system::die_with_parent();
    system::set_dumpable(config.params.jail_dumpable);
    missing.note("no_new_privs", set_no_new_privs(true).map_err(io::Error::from));
    confine_by_parameters(&config.params, config.vsm_fd, &mut missing);
    Ok(missing)
}

fn confine_by_parameters(params: &Params, vsm: i32, missing: &mut Missing) {
    if params.jail_files {
        missing.note("Landlock", files::restrict(&params.jail_read, vsm));
    } else {
        missing.off("Landlock", "jail_files");
    }
    if params.jail_syscalls {
        let program = rules::program(getpid().as_raw_nonzero().get().cast_unsigned());
        missing.note("seccomp", confine::install_filter(&program));
    } else {
        missing.off("seccomp", "jail_syscalls");
    }
}

/// A service manager that has mounted everything read-only (`ProtectSystem=strict`) has done that part already, and
/// leaves no right to do it again.
fn namespaces() -> io::Result<()> {
    confine::leave_namespaces().or_else(|error| match rustix::fs::statvfs("/") {
        Ok(root) if root.f_flag.contains(StatVfsMountFlags::RDONLY) => Ok(()),
        _ => Err(error),
    })
}

/// Root without its user's change (`-j none`) keeps no capabilities either.
fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
