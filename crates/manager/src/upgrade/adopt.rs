//! The new program's part of an upgrade: it continues with the state of the old one.

use std::ffi::OsStr;
use std::fs::File;
use std::time::{Duration, Instant};

use lacquer_cli::link::VclState;
use lacquer_params::ParamSet;

use super::state::{ListenerState, State, StorageState, take};
use super::{ARGUMENT, CHECK_ARGUMENT};
use crate::cli::CliSockets;
use crate::complain::Level;
use crate::fault::{Fault, Outcome, os_error_text};
use crate::manager::Manager;
use crate::secret::Secret;
use crate::vcl::compile::Input;
use crate::version;
use crate::workdir::PidFile;
use crate::worker::{State as ChildState, Worker};

/// The state of the old program.
#[derive(Debug)]
pub struct Adopted {
    state: State,
    /// Whether the state is only checked: nothing must change.
    pub is_check: bool,
}

fn fault(text: impl std::fmt::Display) -> Fault {
    Fault::plain(format!("Cannot continue with the state of the old program: {text}"))
}

impl Adopted {
    /// Reads the state if the argument is one of those that name it.
    pub fn from_argument(argument: &OsStr) -> Outcome<Option<Adopted>> {
        let Some(argument) = argument.to_str() else { return Ok(None) };
        let (number, is_check) =
            match (argument.strip_prefix(ARGUMENT), argument.strip_prefix(CHECK_ARGUMENT)) {
                (Some(number), _) => (number, false),
                (None, Some(number)) => (number, true),
                (None, None) => return Ok(None),
            };
        let fd =
            number.parse().ok().filter(|fd| *fd > 2).ok_or_else(|| fault("its descriptor is missing"))?;
        let file = File::open(format!("/proc/self/fd/{fd}")).map_err(|error| fault(os_error_text(&error)))?;
        let state = State::read(&file).map_err(fault)?;
        drop(take(fd));
        // Relative paths among the options refer to it. If it is gone, they are reported as missing.
        let _ = std::env::set_current_dir(&state.directory);
        Ok(Some(Adopted { state, is_check }))
    }

    pub fn take_listeners(&mut self) -> Vec<ListenerState> {
        std::mem::take(&mut self.state.listeners)
    }

    pub fn take_storages(&mut self) -> Vec<StorageState> {
        std::mem::take(&mut self.state.storages)
    }

    /// Sets the parameters as the old program had them. Returns those that this program does not support.
    pub fn restore_params(&self, params: &mut ParamSet) -> Vec<String> {
        params.restore(&self.state.params)
    }

    pub fn secret(&mut self) -> Option<Secret> {
        let (path, made) = self.state.service.secret.take()?;
        Some(Secret::adopt(path, made))
    }

    pub fn pid_files(&mut self) -> Outcome<Vec<PidFile>> {
        let all = std::mem::take(&mut self.state.service.locks).into_iter();
        all.map(|(path, fd)| Ok(PidFile::adopt(path, take(fd).map_err(fault)?))).collect()
    }

    /// Takes over the sockets of the management port. Also returns their addresses for the shared memory.
    pub fn cli(&mut self) -> Outcome<(CliSockets, String)> {
        let all = std::mem::take(&mut self.state.service.cli).into_iter();
        let all = all.map(take).collect::<std::io::Result<Vec<_>>>().map_err(fault)?;
        Ok(CliSockets::adopt(all))
    }

    /// Compiles the programs of the old program again.
    pub fn restore_vcls(&mut self, manager: &mut Manager) -> Outcome<()> {
        for entry in std::mem::take(&mut self.state.vcls) {
            let now = manager.uptime();
            match entry.target {
                Some(target) => {
                    manager.catalogue.add(&entry.name, VclState::Label, None);
                    manager.catalogue.point(&entry.name, &target, now);
                }
                None => {
                    let compiled = manager.new_vcl(&entry.name, Input::Saved(entry.sources));
                    compiled.map_err(|reply| fault(format!("VCL {}: {}", entry.name, reply.text)))?;
                    manager.catalogue.set_state(&entry.name, entry.state, entry.is_warm);
                }
            }
        }
        if let Some(active) = self.state.active.take() {
            let now = manager.uptime();
            manager.catalogue.activate(&active, now);
        }
        let now = manager.uptime();
        manager.catalogue.update_idle_times(now);
        Ok(())
    }

    /// Takes over the worker, and replaces it by one of this program.
    pub fn replace_worker(mut self, manager: &mut Manager) -> Outcome<()> {
        let start = Instant::now();
        manager.exit_status = self.state.service.exit_status;
        manager.child.panic = self.state.service.panic.take();
        manager.tls.catalogue.adopt_secrets(self.state.tls.take());
        if let Some(shm) = &manager.shm {
            shm.set_counts(&self.state.service.counters);
        }
        let Some(worker) = self.state.worker.take() else {
            if self.state.service.wants_worker {
                manager.child.state = ChildState::Died;
                if let Some(early_deaths) = self.state.left {
                    manager.child.relaunch.inheritance().found(early_deaths);
                }
                // If it fails, it is repeated later.
                let _ = manager.launch();
            }
            manager.instance.upgrade.end(Ok(self.versions(start)), &manager.jail);
            return Ok(());
        };
        manager.child.relaunch.inheritance().adopt(worker.is_kept);
        manager.child.panic_file = worker.panic.map(take).transpose().map_err(fault)?.map(File::from);
        manager.child.number = worker.number;
        manager.child.process = Some(Worker::adopt(worker).map_err(fault)?);
        manager.child.state = ChildState::Running;
        if let (Some(shm), Some(worker)) = (&mut manager.shm, &manager.child.process) {
            shm.show_worker(Some(worker.pid()));
        }
        let result = match manager.replace_worker() {
            Ok(()) => {
                manager.start_acme();
                Ok(self.versions(start))
            }
            Err(why) => {
                manager.resume_survival();
                Err(format!("the manager was replaced ({}), but not the worker: {why}", version::SHORT))
            }
        };
        let (level, text) = match &result {
            Ok(text) => (Level::Info, format!("Upgraded {text}")),
            Err(why) => (Level::Error, format!("Upgrade failed: {why}")),
        };
        manager.complain.report(level, &text);
        manager.instance.upgrade.end(result, &manager.jail);
        Ok(())
    }

    fn versions(&self, start: Instant) -> String {
        let seconds = start.elapsed().as_secs_f64();
        format!("from {} to {} in {seconds:.2} s", self.state.version, version::SHORT)
    }

    /// Returns the time at which the daemon was started.
    pub fn started(&self) -> Instant {
        let now = Instant::now();
        let uptime = Duration::try_from_secs_f64(self.state.service.uptime).unwrap_or_default();
        now.checked_sub(uptime).unwrap_or(now)
    }
}
