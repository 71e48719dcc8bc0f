//! The worker's jail, which limits the damage if an attacker controls the worker. It is entered before the worker has
//! threads, so it applies to all of them.
//!
//! The order of the steps matters, because each one needs rights that a later one drops: namespaces, capabilities,
//! user, no new privileges, files (Landlock), system calls (seccomp). If a kernel or a container lacks one of them, the
//! worker runs anyway; [`enter`] returns what is missing, for one line in the log.
//!
//! Not used: a PID namespace (a worker that is its first process could not die from its own signals, and readers of
//! the shared memory look for it by its process id), a network namespace (the worker serves the network), a user
//! namespace (it exposes more of the kernel than it protects).
#![forbid(unsafe_code)]

mod bpf;
mod files;
mod rules;

use std::io;

use lacquer_cli::admin::AdminConfig;
use lacquer_cli::link::{Credentials, WorkerConfig};
use lacquer_params::Params;
use lacquer_system::{self as system, confine};
use rustix::fs::StatVfsMountFlags;
use rustix::process::getpid;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};

/// Parts of the jail that are not in effect, each with the reason.
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

    /// Returns a line for the log, or `None` if everything is in effect.
    pub fn line(&self, process: &str) -> Option<String> {
        (!self.0.is_empty())
            .then(|| format!("The {process}'s jail is incomplete, without: {}", self.0.join(", ")))
    }
}

/// Confines this process, which must not have other threads yet. `has_rings` states whether it uses rings of io_uring that
/// exist already.
pub fn enter(config: &WorkerConfig, has_rings: bool) -> Result<Missing, String> {
    let mut missing = without_rights(config.credentials.as_ref(), config.params.jail_dumpable)?;
    confine_by_parameters(&config.params, config.vsm_fd, has_rings, &mut missing);
    Ok(missing)
}

/// Confines the admin process in the same way, except that it may read the working directory only, and writes nowhere.
pub fn enter_as_reader(config: &AdminConfig) -> Result<Missing, String> {
    let mut missing = without_rights(config.credentials.as_ref(), config.is_dumpable)?;
    if config.has_file_rules {
        missing.note("Landlock", files::restrict_to_reading(&config.workdir));
    }
    if config.has_call_rules {
        missing.note("seccomp", filter_calls(false));
    }
    Ok(missing)
}

/// Takes all rights from this process, and makes it the user of the credentials.
fn without_rights(credentials: Option<&Credentials>, is_dumpable: bool) -> Result<Missing, String> {
    let mut missing = Missing::default();
    if let Some(who) = credentials {
        missing.note("namespaces", namespaces());
        confine::drop_bounding_set();
        system::become_user(who.uid, who.gid, &who.groups)?;
    } else {
        confine::drop_bounding_set();
    }
    missing.note("capabilities", drop_capabilities());
    // The change of user has reset both.
    system::die_with_parent();
    system::set_dumpable(is_dumpable);
    missing.note("no_new_privs", set_no_new_privs(true).map_err(io::Error::from));
    Ok(missing)
}

fn confine_by_parameters(params: &Params, vsm: i32, has_rings: bool, missing: &mut Missing) {
    if params.jail_files {
        missing.note("Landlock", files::restrict(&params.jail_read, vsm));
    } else {
        missing.off("Landlock", "jail_files");
    }
    if params.jail_syscalls {
        missing.note("seccomp", filter_calls(has_rings));
    } else {
        missing.off("seccomp", "jail_syscalls");
    }
}

/// Refuses system calls that this process does not need.
fn filter_calls(has_rings: bool) -> io::Result<()> {
    confine::install_filter(&rules::program(getpid().as_raw_nonzero().get().cast_unsigned(), has_rings))
}

/// Leaves the namespaces. If a service manager has mounted everything read-only (`ProtectSystem=strict`), this step is
/// unnecessary and would not be permitted.
fn namespaces() -> io::Result<()> {
    confine::leave_namespaces().or_else(|error| match rustix::fs::statvfs("/") {
        Ok(root) if root.f_flag.contains(StatVfsMountFlags::RDONLY) => Ok(()),
        _ => Err(error),
    })
}

/// Drops all capabilities, even if root keeps its user (`-j none`).
fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
