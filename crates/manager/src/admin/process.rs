//! One process of the admin listener: its start and its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use lacquer_cli::admin::{ARGUMENT, AdminConfig, Collector, NAME};
use lacquer_cli::link;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::arguments::AdminSockets;
use crate::file_identity::FileIdentity;
use crate::jail::Jail;
use crate::manager::Manager;
use crate::spawning::{spawn_with, this_program};

/// The least time in which a process must read its configuration, whatever `cli_timeout` is.
const SHORTEST_LIMIT: Duration = Duration::from_secs(1);

/// Ends the processes of the program that was in this process before an upgrade. Their parent is this process.
pub fn end_former(jail: &Jail) {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    let is_admin = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == NAME)
    };
    let _root = jail.raise();
    for pid in children.split_whitespace().filter_map(|word| word.parse().ok()).filter(is_admin) {
        let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        // It has lost the manager, so it has ended or is about to.
        let _ = kill_process(id, Signal::KILL);
        let _ = waitpid(Some(id), WaitOptions::empty());
    }
}

/// A process.
#[derive(Debug)]
pub struct AdminProcess {
    child: Child,
    /// The connection on which it gets the addresses of the collector.
    addresses: UnixStream,
    /// The working directory at its start, which is all that it may read.
    directory: Option<FileIdentity>,
}

impl AdminProcess {
    /// Starts a process, and sends it its configuration. Also returns our ends of its two connections to the manager.
    pub fn start(manager: &Manager, sockets: &AdminSockets) -> io::Result<(AdminProcess, [UnixStream; 2])> {
        let (mut commands, theirs) = UnixStream::pair()?;
        let (questions, their_questions) = UnixStream::pair()?;
        let (addresses, their_addresses) = UnixStream::pair()?;
        addresses.set_nonblocking(true)?;
        let directory = FileIdentity::of_current_directory();
        let params = manager.params.values();
        let config = AdminConfig {
            sockets: sockets.config().to_vec(),
            collector: sockets.collector().map(|collector| Collector {
                instance: manager.instance.identity.clone(),
                ..collector.clone()
            }),
            questions_fd: their_questions.as_raw_fd(),
            addresses_fd: their_addresses.as_raw_fd(),
            workdir: manager.instance.workdir.clone(),
            credentials: manager.jail.worker(),
            is_dumpable: params.jail_dumpable,
            has_file_rules: params.jail_files,
            has_call_rules: params.jail_syscalls,
        };
        let links = [theirs.as_fd(), their_questions.as_fd(), their_addresses.as_fd()];
        let passed: Vec<_> = sockets.descriptors().chain(links).collect();
        let mut command = this_program(&manager.instance.program, "");
        command.arg(format!("{ARGUMENT}{}", theirs.as_raw_fd())).stdin(Stdio::null()).stdout(Stdio::null());
        let child = {
            let _root = manager.jail.raise();
            spawn_with(&mut command, &passed)?
        };
        let process = AdminProcess { child, addresses, directory };
        // With our copies of its ends closed, its death is an error here.
        drop((theirs, their_questions, their_addresses));
        // The authorities of the system do not fit into the buffer of the socket, so the process must read meanwhile.
        let limit = manager.cli_timeout().max(SHORTEST_LIMIT);
        let sent = commands.set_write_timeout(Some(limit)).and_then(|()| link::send(&mut commands, &config));
        if let Err(error) = sent {
            let how = process.end(&manager.jail);
            return Err(io::Error::other(format!("it does not take its configuration ({error}): {how}")));
        }
        Ok((process, [commands, questions]))
    }

    /// Sends the process other addresses of the collector. If it does not take them, it ends, or reads nothing at all.
    pub fn send_addresses(&mut self, addresses: &[SocketAddr]) {
        let _ = link::send(&mut self.addresses, &addresses);
    }

    /// Returns whether the working directory is another one than at its start.
    pub fn is_outside(&self) -> bool {
        let now = FileIdentity::of_current_directory();
        now.is_some() && self.directory.is_some() && now != self.directory
    }

    /// Ends the process. Returns how it ended.
    pub fn end(mut self, jail: &Jail) -> String {
        // It is another user's, and has no state to save. If it has ended already, that is its end.
        let _root = jail.raise();
        let _ = self.child.kill();
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}
