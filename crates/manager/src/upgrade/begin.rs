//! The old program's part of an upgrade: it writes its state, lets the new program check it, and executes that.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::io::{FdFlags, fcntl_setfd};

use super::state::{ServiceState, State, VclEntry};
use super::{ARGUMENT, CHECK_ARGUMENT};
use crate::cli::CliSockets;
use crate::complain::Level;
use crate::manager::{Manager, Reply};
use crate::notify::{Change, notify};
use crate::secret::Secret;
use crate::shm::{Shm, now};
use crate::storage::Storage;
use crate::version;
use crate::workdir::PidFile;
use crate::worker::{State as ChildState, Worker};

/// The maximum time of the new program to check the state.
const CHECK_TIME: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(5);
/// The time for which an upgrade waits for the management port: for programs that are compiled, and replies that are not
/// read.
const WAIT: Duration = Duration::from_secs(30);
/// The maximum length of a reason in bytes.
const LONGEST_REASON: u64 = 4096;

/// Guard during whose lifetime programs that are started inherit descriptors.
struct Inherited<'a>(Vec<BorrowedFd<'a>>);

impl Inherited<'_> {
    fn set(&self, flags: FdFlags) {
        for fd in &self.0 {
            // All of them are open.
            let _ = fcntl_setfd(fd, flags);
        }
    }
}

impl Drop for Inherited<'_> {
    fn drop(&mut self) {
        self.set(FdFlags::CLOEXEC);
    }
}

impl Manager {
    /// `upgrade`
    pub(crate) fn upgrade_command(&mut self) -> Reply {
        self.instance.upgrade.want();
        Reply::ok("The upgrade begins. This connection will be closed; upgrade.show shows the result.")
    }

    /// `upgrade.show`
    pub(crate) fn upgrade_show(&self) -> String {
        match self.instance.upgrade.result() {
            None => "There was no upgrade.".to_owned(),
            Some(Ok(text)) => format!("Upgraded {text}"),
            Some(Err(why)) => format!("The last upgrade failed: {why}"),
        }
    }

    fn state(&mut self, cli: &CliSockets) -> State {
        self.listeners.drop_unbound();
        let wants_worker = self.child.state == ChildState::Died;
        let inheritance = *self.child.relaunch.inheritance_ref();
        let service = ServiceState {
            uptime: self.uptime(),
            exit_status: self.exit_status,
            wants_worker,
            panic: self.child.panic.clone(),
            cli: cli.descriptors().map(|fd| fd.as_raw_fd()).collect(),
            secret: self.instance.secret.as_ref().map(Secret::describe),
            locks: self.instance.pid_files.iter().map(PidFile::describe).collect(),
            counters: self.shm.as_ref().map(Shm::counts).unwrap_or_default(),
        };
        let worker = self.child.process.as_ref().map(|worker| {
            let panic = self.child.panic_file.as_ref().map(AsRawFd::as_raw_fd);
            worker.describe(panic, inheritance.is_kept())
        });
        State {
            version: version::SHORT.to_owned(),
            directory: self.instance.upgrade.directory().to_owned(),
            service,
            listeners: self.listeners.describe(),
            storages: self.storages.iter().map(Storage::describe).collect(),
            params: self.params.changed(),
            vcls: self.vcl_entries(),
            active: self.catalogue.active().map(str::to_owned),
            worker,
            left: inheritance.left().filter(|_| wants_worker),
            tls: self.tls.catalogue.secrets(now()),
        }
    }

    fn vcl_entries(&self) -> Vec<VclEntry> {
        let describe = |name: String| {
            let entry = self.catalogue.get(&name)?;
            let compiled = entry.compiled.as_ref();
            let texts = compiled.map(|compiled| compiled.sources.as_slice()).unwrap_or_default();
            Some(VclEntry {
                state: entry.state,
                is_warm: entry.warm,
                target: entry.is_label().then(|| self.catalogue.target(&name).map(str::to_owned)).flatten(),
                sources: texts.iter().map(|(name, text)| (name.clone(), text.0.clone())).collect(),
                name,
            })
        };
        self.catalogue.load_order().into_iter().filter_map(describe).collect()
    }

    fn inherited<'a>(&'a self, cli: &'a CliSockets, state: &'a File) -> Inherited<'a> {
        let mut all: Vec<BorrowedFd<'a>> = vec![state.as_fd()];
        all.extend(cli.descriptors());
        all.extend(self.instance.pid_files.iter().map(PidFile::descriptor));
        all.extend(self.listeners.descriptors());
        all.extend(self.storages.iter().flat_map(Storage::descriptors));
        all.extend(self.child.process.iter().flat_map(Worker::descriptors));
        all.extend(self.child.panic_file.iter().map(AsFd::as_fd));
        let all = Inherited(all);
        all.set(FdFlags::empty());
        all
    }

    /// Fails if there is a reason not to begin an upgrade now.
    fn may_upgrade(&self) -> Result<(), String> {
        if self.child.retiring.is_some() {
            return Err("the worker before this one still serves its last requests".to_owned());
        }
        if !self.instance.upgrade.program().exists() {
            return Err(format!("{} does not exist", self.instance.upgrade.program().display()));
        }
        if self.child.process.is_some() { self.may_replace_worker() } else { Ok(()) }
    }

    /// Lets the new program check the state.
    fn check_successor(&mut self, cli: &CliSockets) -> Result<(), String> {
        let written = self.state(cli).write();
        let upgrade = &self.instance.upgrade;
        let fault = |error: std::io::Error| format!("{}: {error}", upgrade.program().display());
        let state = written.map_err(fault)?;
        let said =
            File::from(rustix::fs::memfd_create("check", MemfdFlags::CLOEXEC).map_err(|e| fault(e.into()))?);
        let mut command = Command::new(upgrade.program());
        command
            .arg0(&self.instance.program)
            .args(upgrade.command(CHECK_ARGUMENT, &state))
            .stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(said.try_clone().map_err(fault)?);
        let status = {
            let _root = self.jail.raise();
            let mut child = {
                // Programs that other threads start during the check, such as a DNS hook, inherit nothing.
                let _inherited = self.inherited(cli, &state);
                command.spawn().map_err(fault)?
            };
            wait(&mut child).map_err(fault)?
        };
        if status.success() {
            return Ok(());
        }
        let said = text(said);
        let reason = if said.is_empty() { status.to_string() } else { said };
        Err(format!("{} does not accept the state: {reason}", upgrade.program().display()))
    }

    /// Executes the new program in place of this one. Returns only if that fails.
    fn become_successor(&mut self, cli: &CliSockets) -> String {
        let state = match self.state(cli).write() {
            Ok(state) => state,
            Err(error) => return error.to_string(),
        };
        // Until the next worker has taken over, the tables of records may be incomplete.
        self.forbid_survival();
        let error = self.execute_successor(cli, &state);
        self.resume_survival();
        error
    }

    /// Executes the new program with a state. Returns only if that fails.
    fn execute_successor(&mut self, cli: &CliSockets, state: &File) -> String {
        let upgrade = &self.instance.upgrade;
        let c_string = |text: OsString| CString::new(text.into_vec()).unwrap_or_default();
        let program = c_string(upgrade.program().as_os_str().to_owned());
        let mut arguments = vec![c_string(self.instance.program.clone())];
        arguments.extend(upgrade.command(ARGUMENT, state).into_iter().map(c_string));
        let _root = self.jail.raise();
        let _inherited = self.inherited(cli, state);
        notify(&Change::Reloading);
        let error = lacquer_system::exec(&program, &arguments);
        notify(&Change::Ready);
        format!("{}: {error}", String::from_utf8_lossy(upgrade.program().as_os_str().as_bytes()))
    }
}

/// Waits for the end of a program. Kills it when its time is over.
fn wait(child: &mut std::process::Child) -> std::io::Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > CHECK_TIME {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(POLL);
    }
}

/// Returns what a program has written, without line feeds at the end.
fn text(mut said: File) -> String {
    let mut bytes = Vec::new();
    let _ = said.rewind();
    let _ = said.take(LONGEST_REASON).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

impl Manager {
    /// Begins an upgrade that was requested, once the management port is quiet. Returns only if it fails, or not now.
    pub(crate) fn upgrade_if_wanted(&mut self, cli: &CliSockets, is_quiet: bool) {
        let Some(since) = self.instance.upgrade.wanted_since() else { return };
        if !is_quiet && since.elapsed() < WAIT {
            return;
        }
        let checked = self.may_upgrade().and_then(|()| self.check_successor(cli));
        let why = match checked {
            Ok(()) => self.become_successor(cli),
            Err(why) => why,
        };
        self.complain.report(Level::Error, &format!("Upgrade failed: {why}"));
        self.instance.upgrade.end(Err(why), &self.jail);
    }
}
