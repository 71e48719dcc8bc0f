//! The manager's event loop: waits for signals, connections, commands, the worker's output and timers, and handles
//! them. It has one thread, which blocks only while it waits for the worker.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};

use crate::admin::Admin;
use crate::cli::{CliChannel, CliSockets, Master, Origin, Sessions};
use crate::complain::{Level, print_line};
use crate::fault::{Fault, Outcome};
use crate::manager::{Manager, seconds};
use crate::notify::{Change, notify};
use crate::worker::{Retiring, State};

/// Seconds until the first check for idle VCL programs. Later checks follow `vcl_cooldown`.
const FIRST_COOLING: f64 = 3.0;
/// The time between checks whether an upgrade can begin.
const UPGRADE_POLL: Duration = Duration::from_millis(20);

/// The signals that end or upgrade the daemon, as descriptors to poll.
#[derive(Debug)]
pub struct Signals {
    terminate: UnixStream,
    interrupt: UnixStream,
    upgrade: UnixStream,
}

impl Signals {
    /// Catches SIGTERM, SIGINT and SIGUSR2 from now on, and ignores SIGHUP.
    pub fn watch() -> std::io::Result<Signals> {
        let watch = |signal| -> std::io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            Ok(ours)
        };
        signal_hook::flag::register(SIGHUP, std::sync::Arc::default())?;
        Ok(Signals { terminate: watch(SIGTERM)?, interrupt: watch(SIGINT)?, upgrade: watch(SIGUSR2)? })
    }

    fn which(&mut self) -> Option<EndSignal> {
        let mut byte = [0];
        let mut got = |stream: &mut UnixStream| stream.read(&mut byte).is_ok_and(|n| n > 0);
        if got(&mut self.interrupt) {
            return Some(EndSignal::Interrupt);
        }
        got(&mut self.terminate).then_some(EndSignal::Terminate)
    }
}

/// A signal that ends the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndSignal {
    /// Requests in progress may end before.
    Terminate,
    Interrupt,
}

impl EndSignal {
    fn name(self) -> &'static str {
        match self {
            EndSignal::Terminate => "SIGTERM",
            EndSignal::Interrupt => "SIGINT",
        }
    }
}

/// A source of events.
#[derive(Clone, Copy, Debug)]
enum Source {
    Terminate,
    Upgrade,
    Worker,
    Retiring,
    Acme,
    CliSocket(usize),
    Session(usize, PollFlags),
    Master,
}

/// The times of the next timeouts.
#[derive(Debug)]
struct Timers {
    uptime: Instant,
    ping: Option<Instant>,
    cooling: Instant,
    /// The end of the worker's drain.
    drained: Option<Instant>,
}

/// The manager and all its connections.
pub struct Service {
    /// The manager.
    pub manager: Manager,
    /// Listening sockets of the CLI.
    pub sockets: CliSockets,
    /// The connection to `-M`.
    pub master: Option<Master>,
    /// The admin listener.
    pub admin: Option<Admin>,
    /// Signals that end the daemon.
    pub signals: Signals,
    sessions: Sessions,
    timers: Timers,
}

impl Service {
    /// Creates the service. Nothing happens until [`Service::run`].
    pub fn new(
        manager: Manager,
        sockets: CliSockets,
        master: Option<Master>,
        admin: Option<Admin>,
        signals: Signals,
    ) -> Service {
        let now = Instant::now();
        let timers = Timers {
            uptime: now,
            ping: None,
            cooling: now + Duration::from_secs_f64(FIRST_COOLING),
            drained: None,
        };
        Service { manager, sockets, master, admin, signals, sessions: Sessions::new(), timers }
    }

    /// Reads commands from standard input.
    pub fn attach_stdin(&mut self) -> Outcome<()> {
        let duplicate = |fd: std::os::fd::BorrowedFd<'_>| {
            fd.try_clone_to_owned().map_err(|e| Fault::plain(format!("Cannot use the terminal: {e}")))
        };
        let input = duplicate(std::io::stdin().as_fd())?;
        let output = duplicate(std::io::stdout().as_fd())?;
        let channel = CliChannel { input, output: Some(output), ident: "debug".to_owned(), peer: None };
        self.sessions.add(&self.manager, channel, Origin::Stdin);
        Ok(())
    }

    /// Runs the commands of a file, all of them before anything else happens.
    pub fn run_file(&mut self, file: File) -> Outcome<()> {
        print_line("BEGIN of -I file processing");
        let output = std::io::stderr().as_fd().try_clone_to_owned();
        let output = output.map_err(|e| Fault::plain(format!("Cannot use the terminal: {e}")))?;
        let input = OwnedFd::from(file);
        let channel = CliChannel { input, output: Some(output), ident: "-I file".to_owned(), peer: None };
        self.sessions.run_file(&mut self.manager, channel)?;
        print_line("END of -I file processing");
        Ok(())
    }

    /// Runs until a signal or the end of standard input.
    pub fn run(&mut self) {
        loop {
            if self.is_drained() {
                return;
            }
            self.tick();
            if let Some(master) = &mut self.master {
                master.tick();
            }
            for source in self.wait() {
                if !self.serve(source) {
                    return;
                }
            }
            if !self.serve_sessions() {
                return;
            }
            if self.timers.drained.is_none() {
                self.manager.upgrade_if_wanted(&self.sockets, self.sessions.are_quiet());
            }
        }
    }

    fn next_deadline(&self) -> Instant {
        let master = self.master.as_ref().and_then(Master::deadline);
        let sessions = self.sessions.deadline(Instant::now());
        let relaunch = self.manager.child.relaunch.due();
        let Timers { uptime, ping, cooling, drained } = self.timers;
        let retiring = self.manager.child.retiring.as_ref().map(Retiring::deadline);
        let is_wanted = self.manager.instance.upgrade.is_wanted();
        let upgrade = is_wanted.then(|| Instant::now() + UPGRADE_POLL);
        let admin = self.admin.as_ref().and_then(Admin::deadline);
        let timers =
            [Some(uptime), ping, Some(cooling), drained, master, sessions, relaunch, retiring, upgrade];
        timers.into_iter().chain([admin]).flatten().min().unwrap_or_else(Instant::now)
    }

    /// Sleeps until an event or a timeout. Returns the events, sessions first, because handling the others changes the
    /// indices of sessions.
    fn wait(&self) -> Vec<Source> {
        let (mut sources, mut fds) = (Vec::new(), Vec::new());
        for (at, fd) in self.sessions.poll_fds().enumerate() {
            sources.push(Source::Session(at, PollFlags::empty()));
            fds.push(fd);
        }
        for signal in [&self.signals.terminate, &self.signals.interrupt] {
            sources.push(Source::Terminate);
            fds.push(PollFd::new(signal, PollFlags::IN));
        }
        sources.push(Source::Upgrade);
        fds.push(PollFd::new(&self.signals.upgrade, PollFlags::IN));
        if let Some(worker) = &self.manager.child.process {
            sources.push(Source::Worker);
            fds.push(PollFd::from_borrowed_fd(worker.output(), PollFlags::IN));
        }
        if let Some(retiring) = &self.manager.child.retiring {
            sources.push(Source::Retiring);
            fds.push(PollFd::from_borrowed_fd(retiring.output(), PollFlags::IN));
        }
        if let Some(acme) = &self.manager.tls.acme {
            sources.push(Source::Acme);
            fds.push(PollFd::from_borrowed_fd(acme.descriptor(), PollFlags::IN));
        }
        if self.sessions.accepts(Instant::now()) {
            for (at, fd) in self.sockets.descriptors().enumerate() {
                sources.push(Source::CliSocket(at));
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            }
        }
        if let Some(fd) = self.master.as_ref().and_then(Master::connecting) {
            sources.push(Source::Master);
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
        }
        let left = self.next_deadline().saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut fds, Some(&left)).is_err() {
            return Vec::new();
        }
        let ready = fds.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        ready
            .map(|(fd, source)| match source {
                Source::Session(at, _) => Source::Session(at, fd.revents()),
                other => other,
            })
            .collect()
    }

    /// Handles an event. Returns false when the daemon ends.
    fn serve(&mut self, source: Source) -> bool {
        match source {
            Source::Terminate => {
                if let Some(signal) = self.signals.which() {
                    let complain = &self.manager.complain;
                    // For a user at a terminal, Ctrl-C is a usual end.
                    let level = if complain.is_brief() { Level::Routine } else { Level::Error };
                    complain.report(level, &format!("Manager got {}", signal.name()));
                    return signal == EndSignal::Terminate && self.drain();
                }
            }
            Source::Upgrade => {
                if self.signals.upgrade.read(&mut [0; 64]).is_ok_and(|n| n > 0) {
                    self.manager.complain.report(Level::Info, "Manager got SIGUSR2");
                    self.manager.instance.upgrade.want();
                }
            }
            Source::Worker => self.manager.listen_to_worker(),
            Source::Retiring => self.manager.listen_to_retiring(),
            Source::Acme => self.manager.serve_acme(),
            Source::CliSocket(at) => self.sessions.accept(&self.sockets, at, &mut self.manager),
            Source::Master => match self.master.as_mut().map(Master::finish) {
                Some(Ok(stream)) => self.sessions.connected(&self.manager, stream),
                Some(Err(error)) => {
                    let text =
                        format!("Could not connect to CLI-master: {}", crate::fault::os_error_text(&error));
                    self.manager.complain.report(Level::Info, &text);
                }
                None => {}
            },
            Source::Session(at, events) => self.sessions.note(at, events),
        }
        true
    }

    /// Begins to drain the worker. Returns false if the daemon ends at once: there is no worker to drain, or it is being
    /// drained already.
    fn drain(&mut self) -> bool {
        let limit = self.manager.params.values().drain_timeout;
        if limit <= 0.0 || self.timers.drained.is_some() || !self.manager.drain_worker() {
            return false;
        }
        let text = format!("Draining: requests in progress have {limit:.0} s to end");
        self.manager.complain.report(Level::Routine, &text);
        notify(&Change::Stopping(text));
        self.timers.drained = Some(Instant::now() + seconds(limit));
        true
    }

    /// Returns whether the worker has ended after a drain, or the time for that is over.
    fn is_drained(&self) -> bool {
        let Some(limit) = self.timers.drained else { return false };
        let child = &self.manager.child;
        (child.process.is_none() && child.retiring.is_none()) || limit <= Instant::now()
    }

    /// Serves the sessions for a round. Returns false when the daemon ends.
    fn serve_sessions(&mut self) -> bool {
        let ended = self.sessions.serve_round(&mut self.manager);
        if ended.contains(&Origin::Master)
            && let Some(master) = &mut self.master
        {
            master.disconnected();
        }
        for origin in &ended {
            if let (Origin::Admin(number), Some(admin)) = (origin, &mut self.admin) {
                admin.disconnected(*number, &self.manager, Instant::now());
            }
        }
        !ended.contains(&Origin::Stdin)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.timers.uptime <= now {
            self.timers.uptime = now + Duration::from_secs(1);
            if let Some(shm) = &self.manager.shm {
                shm.counters.uptime.set(self.manager.uptime() as u64);
            }
            self.manager.renew_workdir();
            self.manager.serve_wanted_names();
            self.manager.keep_addresses(now);
        }
        if let Some(admin) = &mut self.admin {
            admin.tick(&self.manager, &mut self.sessions, now);
        }
        self.manager.launch_if_due(now);
        self.manager.follow_retiring(now);
        if self.timers.cooling <= now {
            self.manager.cool_vcls();
            let pause = (self.manager.params.values().vcl_cooldown * 0.45).clamp(0.1, 86_400.0);
            self.timers.cooling = now + Duration::from_secs_f64(pause);
        }
        let interval = u64::from(self.manager.params.values().ping_interval);
        if interval == 0 || self.manager.child.state != State::Running {
            self.timers.ping = None;
            return;
        }
        match self.timers.ping {
            Some(due) if due > now => {}
            due => {
                self.timers.ping = Some(now + Duration::from_secs(interval));
                if due.is_some() {
                    self.manager.ping();
                }
            }
        }
    }
}
