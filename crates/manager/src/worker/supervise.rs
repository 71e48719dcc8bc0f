//! Starts, stops and restarts the worker.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use lacquer_cli::link::{FromWorker, Request, ToWorker, WorkerConfig};
use lacquer_cli::status;
use lacquer_params::{DebugBits, FeatureBits, Params};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::end::lost_file;
use super::inheritance::Memory;
use super::process::{Worker, panic_file, tool};
use super::retiring::Retiring;
use super::state::State;
use crate::attendant;
use crate::complain::{Level, print_line};
use crate::manager::{Manager, Reply, seconds};
use crate::secret::random;
use crate::shm::{Shm, now};
use crate::storage::Storage;

const REOPEN_TRIES: u32 = 3;

impl Manager {
    pub(crate) fn status_text(&self) -> String {
        self.child.state.name().to_owned()
    }

    /// `start`
    pub(crate) fn start_command(&mut self) -> Reply {
        let waits = self.child.relaunch.due().is_some();
        if self.child.state != State::Stopped && !waits {
            return Reply::no(status::CANT, format!("Child in state {}", self.status_text()));
        }
        if let Some(why) = self.catalogue.unready_reason() {
            return Reply::no(status::CANT, why);
        }
        match self.launch() {
            Ok(()) => Reply::ok(""),
            Err(reply) => reply,
        }
    }

    /// `stop`
    pub(crate) fn stop_command(&mut self) -> Reply {
        if self.child.relaunch.due().is_some() {
            self.child.relaunch.reset();
            self.child.relaunch.inheritance().stopped();
            self.child.state = State::Stopped;
            self.forbid_survival();
            self.refuse_connections();
            return Reply::ok("");
        }
        if !matches!(self.child.state, State::Running | State::Draining) {
            return Reply::no(status::CANT, format!("Child in state {}", self.status_text()));
        }
        self.stop();
        self.forbid_survival();
        Reply::ok("")
    }

    /// Starts a worker and loads the catalogue into it. Reports and returns a failure. If a worker ran before, a failed
    /// launch is repeated later.
    pub(crate) fn launch(&mut self) -> Result<(), Reply> {
        if !matches!(self.child.state, State::Stopped | State::Died) {
            return Ok(());
        }
        let again = self.child.state == State::Died;
        self.child.state = State::Starting;
        let outcome = self.launch_steps(None);
        match &outcome {
            Ok(()) => {
                self.child.relaunch.reset();
                self.tls.warn_of_missing_certificates(&self.instance.workdir, &self.complain);
                self.start_acme();
            }
            Err(reply) => {
                self.complain.report(Level::Error, &reply.text.lossy());
                if self.child.process.is_none() {
                    self.child.relaunch.inheritance().not_started();
                }
                match self.child.process {
                    _ if again => self.launch_later(),
                    Some(_) => self.stop(),
                    None => self.child.state = State::Stopped,
                }
            }
        }
        outcome
    }

    /// Schedules another launch after a failed one. Connections wait in the kernel's queue meanwhile.
    fn launch_later(&mut self) {
        self.clean_up_worker();
        self.child.state = State::Died;
        let pause = self.child.relaunch.failed(Instant::now()).as_secs_f64();
        self.complain.report(Level::Error, &format!("Child launch failed: trying again in {pause:.1}s"));
    }

    /// Repeats a failed launch when it is due.
    pub(crate) fn launch_if_due(&mut self, now: Instant) {
        if self.child.relaunch.due().is_none_or(|due| due > now) {
            return;
        }
        if self.params.values().auto_restart {
            // `launch` has reported a failure and scheduled the next attempt.
            let _ = self.launch();
        } else {
            self.stop_command();
        }
    }

    /// Starts a worker. `beside` is the one that serves, and from which the new one takes over.
    pub(super) fn launch_steps(&mut self, mut beside: Option<&mut Worker>) -> Result<(), Reply> {
        let pid = self.spawn(beside.as_deref())?;
        self.await_ready()?;
        if !self.complain.is_brief() {
            print_line("Child launched OK");
        }
        let fail = |what: &str, reply: Reply| {
            Reply::no(reply.status, format!("Child ({pid}) {what} failed:\n{}", reply.text))
        };
        self.pass_addresses(beside.as_deref_mut());
        self.push_vcls().map_err(|reply| fail("Pushing vcls", reply))?;
        let certificates = self.tls.catalogue.in_use();
        self.send_certificates(&certificates).map_err(|reply| fail("Pushing certificates", reply))?;
        self.send_challenges().map_err(|reply| fail("Pushing challenges", reply))?;
        if let Some(beside) = beside.as_deref_mut() {
            self.pass_health(beside);
        }
        let depth = self.params.values().listen_depth;
        if let Err(error) = self.listeners.listen(depth, &self.jail) {
            return Err(fail("Acceptor start", Reply::no(status::CANT, error.to_string())));
        }
        if let Some(beside) = beside {
            self.take_datagrams(beside);
        }
        self.request_success(Request::Start).map_err(|reply| fail("Acceptor start", reply))?;
        self.child.state = State::Running;
        Ok(())
    }

    fn spawn(&mut self, beside: Option<&Worker>) -> Result<u32, Reply> {
        let cannot = |what: &str, error: std::io::Error| {
            Reply::no(status::CANT, format!("Child failed on launch: cannot {what}: {error}"))
        };
        let address_space = self
            .address_space()
            .map_err(|fault| Reply::no(status::CANT, format!("Child failed on launch: {fault}")))?;
        let mut secret = [0; 32];
        random(&mut secret).map_err(|error| cannot("make a secret for TLS tickets", error))?;
        let tls = self.tls.catalogue.setup(now(), secret);
        self.renew_workdir();
        let memory = match beside {
            Some(_) => Memory::Shared,
            None => self.prepare_storages().map_err(|error| cannot("clear the storage", error))?,
        };
        let log = self.params.values().vsl_space;
        let vsm = Shm::worker_dir(beside.is_some(), log, &self.jail, &self.complain)
            .map_err(|error| cannot("create its shared memory", error))?;
        let panic = panic_file().map_err(|error| cannot("create its panic buffer", error))?;
        let reactors = self.params.values().reactor_count();
        self.listeners
            .prepare_datagrams(reactors, &self.jail)
            .map_err(|text| Reply::no(status::CANT, format!("Child failed on launch: {text}")))?;
        let mut inherited = vec![vsm.as_fd(), panic.as_fd()];
        inherited.extend(self.listeners.descriptors());
        inherited.extend(self.storages.iter().flat_map(Storage::descriptors));
        inherited.extend(beside.and_then(Worker::peer));
        let retiring = || self.child.retiring.as_ref().map(Retiring::worker);
        let before = beside.or_else(retiring);
        inherited.extend(before.map(Worker::datagrams));
        let number = next_number(self.child.number);
        let (mut worker, successor) = {
            let _root = self.jail.raise();
            let _cores = CoreDumpsDisabled::when(self.params.values().feature.has(FeatureBits::NO_COREDUMP));
            let more = &self.params.values().jail_environment;
            Worker::spawn(&self.instance.program, number, more, &inherited)
                .map_err(|error| cannot("start it", error))?
        };
        let pid = worker.pid();
        self.complain.report(Level::Debug, &format!("Child ({pid}) Started"));
        if let Some(shm) = &mut self.shm {
            shm.counters.child_start.add(1);
            shm.show_worker(Some(pid));
        }
        let config = WorkerConfig {
            identity: self.instance.identity.clone(),
            workdir: self.instance.workdir.clone(),
            sockets: self.listeners.for_worker(),
            storages: self.storages.iter().map(|storage| storage.for_worker(memory)).collect(),
            address_space,
            params: for_worker(self.params.values()),
            credentials: self.jail.worker(),
            vsm_fd: vsm.as_raw_fd(),
            panic_fd: panic.as_raw_fd(),
            manager_pid: std::process::id(),
            tls: tls.map(|setup| setup.encode()),
            peers: successor.describe(number, beside, before),
        };
        // If the worker is already gone, `await_ready` notices.
        let _ =
            worker.notify(&ToWorker::Configure(Box::new(config)), seconds(self.params.values().cli_timeout));
        self.child.process = Some(worker);
        self.child.number = number;
        self.child.panic_file = Some(panic);
        Ok(pid)
    }

    /// Prepares the storages for a worker that starts while there is no other.
    fn prepare_storages(&mut self) -> std::io::Result<Memory> {
        let keep = self.params.values().keep_memory;
        let memory = self.child.relaunch.inheritance().begin(Instant::now(), keep);
        if memory != Memory::TakeOver {
            // It may still read the memory that is about to be emptied.
            self.kill_retiring();
            self.storages.iter_mut().try_for_each(Storage::forbid_survival)?;
        }
        for storage in &mut self.storages {
            let is_emptied = memory != Memory::TakeOver || !storage.is_kept();
            storage.prepare(is_emptied, &self.jail, &self.complain)?;
        }
        if memory != Memory::NotKept {
            self.allow_survival()?;
        }
        Ok(memory)
    }

    fn await_ready(&mut self) -> Result<(), Reply> {
        let params = self.params.values();
        let startup = params.startup_timeout >= params.cli_timeout;
        let limit = if startup { params.startup_timeout } else { params.cli_timeout };
        let complain = &self.complain;
        let Some(worker) = self.child.process.as_mut() else { return Ok(()) };
        let pid = worker.pid();
        let start = Instant::now();
        let on_line = |line: &str| Manager::report_output(complain, Level::Error, pid, line);
        if let Some(FromWorker::Ready) = worker.receive(seconds(limit), on_line) {
            return Ok(());
        }
        let in_time = start.elapsed().as_secs_f64() < limit;
        // Varnish's text has this trailing blank.
        let text = if in_time {
            "Child failed on launch ".to_owned()
        } else {
            format!(
                "Child failed on launch within {}_timeout={limit:.2}s{}",
                if startup { "startup" } else { "cli" },
                if startup { "" } else { " (tip: set startup_timeout)" }
            )
        };
        let _ = self.kill_worker();
        Err(Reply::no(status::COMMS, text))
    }

    fn push_vcls(&mut self) -> Result<(), Reply> {
        for name in self.catalogue.load_order() {
            let Some(entry) = self.catalogue.get(&name) else { continue };
            let body = match &entry.compiled {
                Some(compiled) => Request::LoadVcl {
                    name: name.clone(),
                    program: compiled.program.clone(),
                    state: entry.state,
                    warm: entry.warm,
                },
                None => Request::LabelVcl {
                    label: name.clone(),
                    target: self.catalogue.target(&name).unwrap_or_default().to_owned(),
                },
            };
            self.request_success(body)?;
        }
        let name = self.catalogue.active().unwrap_or_default().to_owned();
        self.request_success(Request::UseVcl { name })?;
        Ok(())
    }

    /// Checks that the worker responds, and kills it otherwise.
    pub(crate) fn ping(&mut self) {
        if self.child.state != State::Running {
            return;
        }
        let reply = self.request(Request::Ping);
        if reply.status != status::OK || !reply.text.starts_with(b"PONG ") {
            let text = format!("Unexpected reply from ping: {} {}", reply.status, reply.text);
            self.complain.report(Level::Error, &text);
            if reply.status != status::COMMS {
                self.give_up_on_worker();
            }
        }
    }

    /// Lets the worker end when its connections have ended. It accepts no more of them. Returns false if there is no
    /// worker that could be drained.
    pub(crate) fn drain_worker(&mut self) -> bool {
        if self.child.state != State::Running {
            return false;
        }
        let timeout = self.cli_timeout();
        let Some(worker) = self.child.process.as_mut() else { return false };
        if worker.notify(&ToWorker::Drain, timeout).is_err() {
            return false;
        }
        self.child.state = State::Draining;
        true
    }

    /// Stops the worker without an error.
    pub(crate) fn stop(&mut self) {
        self.stop_as(State::Stopping);
    }

    /// Stops the worker because the daemon ends.
    pub(crate) fn end(&mut self) {
        self.stop_as(State::Draining);
    }

    fn stop_as(&mut self, state: State) {
        if !matches!(self.child.state, State::Running | State::Starting | State::Draining) {
            return;
        }
        self.child.state = state;
        self.complain.report(Level::Debug, "Stopping Child");
        self.kill_retiring();
        self.reap();
    }

    /// Reads the worker's output and handles its end.
    pub(crate) fn listen_to_worker(&mut self) {
        let complain = &self.complain;
        let Some(worker) = self.child.process.as_mut() else { return };
        let pid = worker.pid();
        if !worker.listen(|line| Manager::report_output(complain, Level::Routine, pid, line)) {
            self.reap();
        }
    }

    /// Waits for the worker's end, records it, and starts another worker if this one died.
    fn reap(&mut self) {
        if self.child.process.is_none() {
            return;
        }
        self.clean_up_worker();
        let died = matches!(self.child.state, State::Running | State::Died);
        let restart = died && self.params.values().auto_restart;
        self.child.state = if restart { State::Died } else { State::Stopped };
        if restart {
            // Connections wait in the kernel's queue for the next worker.
            let _ = self.launch();
        } else {
            self.refuse_connections();
        }
    }

    /// Waits for the worker's end, records it and removes its files.
    fn clean_up_worker(&mut self) {
        let Some(mut worker) = self.child.process.take() else { return };
        let pid = worker.pid();
        worker.hang_up();
        let died = matches!(self.child.state, State::Running | State::Starting | State::Died);
        let end = self.await_end(&mut worker, pid);
        let lost = lost_file(end.signal, self.storages.iter().filter_map(Storage::file_path));
        self.record_end(pid, end);
        if !died {
            self.child.relaunch.inheritance().stopped();
        } else if let Some(text) = lost {
            self.child.relaunch.inheritance().lost();
            self.complain.report(Level::Error, &text);
        } else if self.child.relaunch.inheritance().died(Instant::now()) {
            let text = "Children died within a minute after they had taken over memory: the next one starts without it";
            self.complain.report(Level::Error, text);
        }
        self.record_early_deaths();
        self.record_panic(pid);
        if self.child.state == State::Draining {
            attendant::conclude(&self.jail);
        }
        if !self.params.values().debug.has(DebugBits::VTC_MODE) {
            Shm::remove_worker_dir(self.params.values().vsl_space, &self.jail);
        }
        if let Some(shm) = &mut self.shm {
            shm.show_worker(None);
        }
        self.complain.report(Level::Debug, "Child cleanup complete");
    }

    fn refuse_connections(&mut self) {
        for _ in 0..REOPEN_TRIES {
            match self.listeners.refuse(&self.jail) {
                Ok(()) => return,
                Err(text) => self.complain.report(Level::Error, &text),
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        self.complain.report(Level::Error, "Could not reopen listening sockets. Exiting.");
        std::process::exit(1);
    }
}

/// Returns the number of the worker after this one. It is never 0.
fn next_number(last: u8) -> u8 {
    last.checked_add(1).unwrap_or(1)
}

/// Returns the parameters of a worker. They disable the jail if the worker runs under a tool.
fn for_worker(params: &Params) -> Params {
    let mut params = params.clone();
    if tool().is_some() {
        (params.jail_syscalls, params.jail_files, params.jail_dumpable) = (false, false, true);
    }
    params
}

/// Guard during whose lifetime started processes cannot dump core.
struct CoreDumpsDisabled {
    before: Option<Rlimit>,
}

impl CoreDumpsDisabled {
    fn when(wanted: bool) -> CoreDumpsDisabled {
        let before = wanted.then(|| getrlimit(Resource::Core));
        if let Some(before) = &before {
            let none = Rlimit { current: Some(0), maximum: before.maximum };
            let _ = setrlimit(Resource::Core, none);
        }
        CoreDumpsDisabled { before }
    }
}

impl Drop for CoreDumpsDisabled {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = setrlimit(Resource::Core, before);
        }
    }
}
