//! `-w`: the admin listener. The manager binds its sockets and reads its tokens. A process of its own serves HTTP on them:
//! it has the worker's user and fewer rights than the worker, so that a fault in it costs neither traffic nor the rights
//! of the manager. It reaches the manager by connections of the management port that it inherits.

mod arguments;
mod certificate;
mod collector;
mod process;
mod token;

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use arguments::AdminSockets;
use collector::{LOOKUP_POLL, News};
use process::{AdminProcess, end_former};
pub use token::NAME as TOKEN;

use crate::cli::{CliChannel, Origin, Sessions};
use crate::complain::Level;
use crate::fault::{Outcome, os_error_text};
use crate::jail::Jail;
use crate::manager::Manager;
use crate::shm::Shm;

/// The pause before a process that has ended is started again. It doubles each time, until one has run for a minute.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const STABLE: Duration = Duration::from_mins(1);

/// The sockets of the admin listener, and the process that serves them.
#[derive(Debug)]
pub struct Admin {
    sockets: AdminSockets,
    process: Option<AdminProcess>,
    /// The number of the last process, which its sessions have.
    number: u64,
    started: Instant,
    due: Option<Instant>,
    pause: Duration,
}

/// Fails if the words of an argument are wrong.
pub fn check(argument: &str) -> Outcome<()> {
    AdminSockets::parse([argument].into_iter()).map(drop)
}

impl Admin {
    /// Listens on the addresses of `-w`, and publishes them; the process starts at the next tick. A collector without an
    /// address prevents nothing. After an upgrade, a failure is repeated later. Returns `None` without such an option.
    pub fn open<'a>(
        arguments: impl Iterator<Item = &'a str>,
        is_upgrade: bool,
        jail: &Jail,
        shm: &mut Shm,
    ) -> Outcome<Option<Admin>> {
        let Some(mut sockets) = AdminSockets::parse(arguments)? else { return Ok(None) };
        if is_upgrade {
            end_former(jail);
        }
        let now = Instant::now();
        if let Some(exported) = sockets.exported() {
            exported.begin_lookup(now);
        }
        let bound = sockets.bind(jail).and_then(|()| sockets.prepare_collector(jail));
        if !is_upgrade {
            bound?;
        }
        let addresses = sockets.addresses();
        if !addresses.is_empty() {
            shm.publish("-w", &addresses)?;
        }
        Ok(Some(Admin {
            sockets,
            process: None,
            number: 0,
            started: now,
            due: Some(now),
            pause: FIRST_PAUSE,
        }))
    }

    /// Returns the time of the next start, or of the next step of a lookup.
    pub fn deadline(&self) -> Option<Instant> {
        [self.due, self.sockets.next_step()].into_iter().flatten().min()
    }

    /// Starts the process if it is due.
    pub fn tick(&mut self, manager: &Manager, sessions: &mut Sessions, now: Instant) {
        self.follow_collector(manager, now);
        self.follow_directory(manager, now);
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        if self.sockets.exported().is_some_and(|exported| exported.is_awaited(now)) {
            self.due = Some(now + LOOKUP_POLL);
            return;
        }
        self.due = None;
        let jail = &manager.jail;
        if let Err(error) = self.sockets.restore_token(jail) {
            let text =
                format!("The admin listener: its token cannot be written again: {}", os_error_text(&error));
            manager.complain.report(Level::Error, &text);
        }
        let prepared = self.sockets.bind(jail).and_then(|()| self.sockets.prepare_collector(jail));
        let launched = prepared.map_err(|fault| fault.text().to_owned()).and_then(|()| {
            AdminProcess::start(manager, &self.sockets).map_err(|error| format!("cannot be started: {error}"))
        });
        match launched {
            Ok((process, connections)) => {
                self.number += 1;
                for connection in connections {
                    sessions.add(manager, channel(connection), Origin::Admin(self.number));
                }
                self.started = now;
                self.process = Some(process);
            }
            Err(why) => {
                manager.complain.report(Level::Error, &format!("The admin listener: {why}"));
                self.start_later(now);
            }
        }
    }

    /// Looks the collector up now and then, and sends its addresses to the process when they change.
    fn follow_collector(&mut self, manager: &Manager, now: Instant) {
        let Some(exported) = self.sockets.exported() else { return };
        let news = exported.step(now);
        let host = &exported.collector().host;
        match news {
            Some(News::Addresses { is_recovery }) => {
                if is_recovery {
                    manager.complain.report(Level::Info, &format!("The collector {host} has an address now"));
                }
                if let Some(process) = &mut self.process {
                    process.send_addresses(&exported.collector().addresses);
                }
            }
            Some(News::Failure(why)) => {
                let text = format!("The collector {host} has no address: {why}; it is looked up again");
                manager.complain.report(Level::Error, &text);
            }
            None => {}
        }
    }

    /// Ends a process that cannot read the working directory anymore, because that was created again, and starts another one
    /// at once.
    fn follow_directory(&mut self, manager: &Manager, now: Instant) {
        if let Some(process) = self.process.take_if(|process| process.is_outside()) {
            process.end(&manager.jail);
            manager
                .complain
                .report(Level::Info, "The working directory is new: the admin listener is started again");
            self.due = Some(now);
        }
    }

    fn start_later(&mut self, now: Instant) {
        if let Some(exported) = self.sockets.exported() {
            exported.begin_lookup(now);
        }
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Handles the end of a connection of the process with this number: ends it, and starts another one later. The
    /// connections of a process before it may end late, and do not matter.
    pub fn disconnected(&mut self, number: u64, manager: &Manager, now: Instant) {
        if number != self.number {
            return;
        }
        let Some(process) = self.process.take() else { return };
        let how = process.end(&manager.jail);
        manager.complain.report(Level::Error, &format!("The process of the admin listener has ended: {how}"));
        if now.duration_since(self.started) >= STABLE {
            self.pause = FIRST_PAUSE;
        }
        self.start_later(now);
    }

    /// Removes the files that the listener has made.
    pub fn remove(self, manager: &Manager) {
        if let Some(process) = self.process {
            process.end(&manager.jail);
        }
        self.sockets.remove(&manager.jail);
    }
}

fn channel(connection: UnixStream) -> CliChannel {
    let _ = connection.set_nonblocking(true);
    CliChannel { input: connection.into(), output: None, ident: "admin".to_owned(), peer: None }
}
