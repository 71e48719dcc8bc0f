//! The connections of the management port. The manager's single thread serves them in rounds: a round runs at most one
//! command of each session and has a time limit, so that the commands of one client do not delay logins, the
//! worker's restart or other clients.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Resource, getrlimit};

use super::admission::{Admission, Facts, LoginState, MAX_UNAUTHENTICATED, admission};
use super::session::{CliChannel, Interest, Origin, Session, Verdict};
use super::sockets::{CliSockets, ident, prepare};
use super::throttle::Throttle;
use crate::complain::Level;
use crate::fault::{Fault, Outcome, os_error_text};
use crate::manager::Manager;

/// A round ends after the command that exceeds this time.
const ROUND_LIMIT: Duration = Duration::from_millis(20);
const ACCEPTED_PER_ROUND: usize = 64;
/// Pause after a failed accept. It doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);
/// Descriptors that connections may not use: a new worker, a new working directory and VCL files need them.
const RESERVED_DESCRIPTORS: u64 = 24;
/// Maximum number of bytes of unfinished commands, in all connections together.
const MAX_HELD_BYTES: usize = 256 << 20;

/// When to accept connections again after a failure or a full table.
#[derive(Debug)]
struct Accepting {
    paused_until: Option<Instant>,
    pause: Duration,
    complained: Option<Instant>,
    most_descriptors: u64,
}

/// All connections.
pub struct Sessions {
    all: Vec<Session>,
    throttle: Throttle,
    accepting: Accepting,
    /// The session that the next round begins with.
    next: usize,
}

impl Sessions {
    pub fn new() -> Sessions {
        let accepting = Accepting {
            paused_until: None,
            pause: FIRST_PAUSE,
            complained: None,
            most_descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        };
        Sessions { all: Vec::new(), throttle: Throttle::default(), accepting, next: 0 }
    }

    /// Starts a session on a connection and adds it. If the client has gone already, it ends in the next round, which returns
    /// its origin.
    pub fn add(&mut self, manager: &Manager, channel: CliChannel, origin: Origin) {
        let now = Instant::now();
        let mut session = Session::begin(manager, channel, origin, now);
        session.flush(now);
        self.all.push(session);
    }

    /// Adds a connection made to the address of `-M`.
    pub fn connected(&mut self, manager: &Manager, stream: TcpStream) {
        self.add_stream(manager, stream, Origin::Master, "master");
    }

    fn add_stream(&mut self, manager: &Manager, stream: TcpStream, origin: Origin, kind: &str) {
        let ident = ident(kind, &stream);
        let peer = stream.peer_addr().ok().map(|address| address.ip());
        let channel = CliChannel { input: OwnedFd::from(stream), output: None, ident, peer };
        self.add(manager, channel, origin);
    }

    /// Runs the commands of a file, all of them before anything else happens.
    pub fn run_file(&mut self, manager: &mut Manager, channel: CliChannel) -> Outcome<()> {
        let mut session = Session::begin(manager, channel, Origin::InitFile, Instant::now());
        loop {
            let now = Instant::now();
            let verdict = match session.read(now) {
                Verdict::Keep => session.step(manager, &mut self.throttle, now),
                ended => ended,
            };
            match verdict {
                Verdict::Keep => {}
                Verdict::Close => return Ok(()),
                Verdict::Fatal(fault) => return Err(fault),
            }
            while session.flush(Instant::now()) == Verdict::Keep && !session.is_quiet() {
                if session.tick(manager, &mut self.throttle, Instant::now()) != Verdict::Keep {
                    return Err(Fault::plain("The replies to the -I file are not read"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Returns the descriptors to poll, in the order of the indices that [`Sessions::note`] takes.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.all.iter().map(|session| {
            let (fd, interest) = session.interest();
            let flags = match interest {
                // The end of a compilation is a hangup of the other end.
                Interest::Input | Interest::Compiled => PollFlags::IN,
                Interest::Output => PollFlags::OUT,
                Interest::Hangup => PollFlags::empty(),
            };
            PollFd::from_borrowed_fd(fd, flags)
        })
    }

    /// Records the events of a session. Sessions must not have been added or removed since the poll.
    pub fn note(&mut self, at: usize, events: PollFlags) {
        if let Some(session) = self.all.get_mut(at) {
            session.note(events);
        }
    }

    /// Returns whether no session compiles a program, or has an unread reply or an unfinished command.
    pub fn are_quiet(&self) -> bool {
        self.all.iter().all(|session| session.is_quiet() && session.held() == 0)
    }

    /// Returns whether new connections are accepted now.
    pub fn accepts(&self, now: Instant) -> bool {
        self.accepting.paused_until.is_none_or(|until| until <= now)
    }

    /// Returns the time of the next work that needs no event.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.all.iter().any(Session::has_work) {
            return Some(now);
        }
        let sessions = self.all.iter().filter_map(Session::deadline).min();
        let paused = self.accepting.paused_until.filter(|until| *until > now);
        [sessions, paused].into_iter().flatten().min()
    }

    fn facts(&self) -> Vec<Facts> {
        self.all.iter().map(Session::facts).collect()
    }

    fn replace(&mut self, at: usize, manager: &Manager, now: Instant) {
        self.all.remove(at).replace(manager, now);
    }

    /// Accepts the connections that wait at a socket. A new one replaces another if there are too many.
    pub fn accept(&mut self, sockets: &CliSockets, at: usize, manager: &mut Manager) {
        self.serve_unauthenticated(manager);
        let now = Instant::now();
        let secret = manager.instance.secret.is_some();
        self.accepting.paused_until = None;
        for _ in 0..ACCEPTED_PER_ROUND {
            let admission = admission(&self.facts(), secret, false, now);
            if let Admission::NotBefore(until) = admission {
                self.accepting.paused_until = Some(until);
                return;
            }
            let stream = match sockets.accept(at) {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => return self.pause(&error, manager, now),
            };
            self.accepting.pause = FIRST_PAUSE;
            if let Admission::Replace(other) = admission {
                self.replace(other, manager, now);
            }
            // The kernel assigns the lowest free number, which thus shows how many are in use.
            if stream.as_raw_fd() as u64 + RESERVED_DESCRIPTORS > self.accepting.most_descriptors {
                match replaced_for_descriptors(&self.facts(), secret, now) {
                    Some(other) => self.replace(other, manager, now),
                    None => continue,
                }
            }
            prepare(&stream);
            self.add_stream(manager, stream, Origin::Telnet, "telnet");
        }
    }

    /// Handles the lack of descriptors or memory: closes an unauthenticated connection and pauses accepting.
    fn pause(&mut self, error: &std::io::Error, manager: &Manager, now: Instant) {
        let accepting = &mut self.accepting;
        accepting.paused_until = Some(now + accepting.pause);
        accepting.pause = (accepting.pause * 2).min(LONGEST_PAUSE);
        if accepting.complained.is_none_or(|last| last + COMPLAIN_EVERY <= now) {
            accepting.complained = Some(now);
            let text = format!("Cannot accept on the management port: {}", os_error_text(error));
            manager.complain.report(Level::Error, &text);
        }
        if let Some(other) = replaced_for_descriptors(&self.facts(), manager.instance.secret.is_some(), now) {
            self.replace(other, manager, now);
        }
    }

    /// Serves unauthenticated sessions if one of them may be replaced soon: the manager may have been busy when they
    /// sent their secret.
    fn serve_unauthenticated(&mut self, manager: &mut Manager) {
        let is_unauthenticated = |session: &Session| session.facts().login == LoginState::Unauthenticated;
        if self.all.iter().filter(|session| is_unauthenticated(session)).count() < MAX_UNAUTHENTICATED / 2 {
            return;
        }
        let now = Instant::now();
        let throttle = &mut self.throttle;
        self.all.retain_mut(|session| {
            if !is_unauthenticated(session) {
                return true;
            }
            session.note(PollFlags::IN);
            session.serve(manager, throttle, now) == Verdict::Keep
        });
    }

    /// Serves the sessions that have something to do, until the round's time limit. Returns the origins of those that
    /// ended.
    pub fn serve_round(&mut self, manager: &mut Manager) -> Vec<Origin> {
        let start = Instant::now();
        let count = self.all.len();
        let mut ended = Vec::new();
        for offset in 0..count {
            let at = (self.next + offset) % count;
            let now = Instant::now();
            if now.duration_since(start) >= ROUND_LIMIT {
                self.next = at;
                break;
            }
            if self.all[at].serve(manager, &mut self.throttle, now) != Verdict::Keep {
                ended.push(at);
            }
        }
        self.limit_held_bytes(manager);
        ended.sort_unstable();
        ended.into_iter().rev().map(|at| self.all.remove(at).origin()).collect()
    }

    /// Closes the sessions with the longest unfinished commands while all sessions together hold too many bytes.
    fn limit_held_bytes(&mut self, manager: &Manager) {
        while self.all.iter().map(Session::held).sum::<usize>() > MAX_HELD_BYTES {
            let Some(longest) = self.all.iter_mut().max_by_key(|session| session.held()) else { return };
            longest.refuse_longer(manager, Instant::now());
        }
    }
}

fn replaced_for_descriptors(facts: &[Facts], secret: bool, now: Instant) -> Option<usize> {
    match admission(facts, secret, true, now) {
        Admission::Replace(at) => Some(at),
        Admission::Admit | Admission::NotBefore(_) => {
            facts.iter().position(|facts| facts.login == LoginState::Refused)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use lacquer_params::ParamSet;

    use super::*;
    use crate::complain::Complain;
    use crate::jail::Jail;
    use crate::listen::Listeners;
    use crate::manager::{Child, Instance};
    use crate::tls::Tls;
    use crate::upgrade::Upgrade;
    use crate::vcl::Catalogue;
    use crate::workdir::Renewal;

    /// Returns a manager without listeners, storages, a working directory or a worker.
    fn manager() -> Manager {
        Manager {
            complain: Complain::new(false, "test"),
            jail: Jail::none(),
            params: ParamSet::new(),
            listeners: Listeners::default(),
            storages: Vec::new(),
            tls: Tls::default(),
            instance: Instance {
                program: "test".into(),
                identity: "test".to_owned(),
                platform: "test".to_owned(),
                workdir: "/nowhere".into(),
                secret: None,
                pid_files: Vec::new(),
                started: Instant::now(),
                upgrade: Upgrade::new(&[]),
            },
            renewal: Renewal::default(),
            shm: None,
            catalogue: Catalogue::default(),
            child: Child::default(),
            exit_status: 0,
        }
    }

    /// The end of a connection that the manager has made is reported, so that another one is made.
    #[test]
    fn a_session_whose_client_has_gone_before_the_banner_ends_in_the_next_round() {
        let (mut manager, mut sessions) = (manager(), Sessions::new());
        let pair = || {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            (CliChannel { input: ours.into(), output: None, ident: "test".to_owned(), peer: None }, theirs)
        };
        let (channel, _stays) = pair();
        sessions.add(&manager, channel, Origin::Telnet);
        assert_eq!(sessions.serve_round(&mut manager), []);
        assert!(sessions.deadline(Instant::now()).is_none());
        for origin in [Origin::Master, Origin::Admin(7)] {
            let (channel, theirs) = pair();
            drop(theirs);
            sessions.add(&manager, channel, origin);
            let now = Instant::now();
            assert!(sessions.deadline(now).is_some_and(|due| due <= now), "nothing has to wake the manager");
            assert_eq!(sessions.serve_round(&mut manager), [origin]);
            assert_eq!(sessions.serve_round(&mut manager), []);
        }
    }
}
