//! The connections of the management port, all of them served by the manager's one thread, in turns: a turn runs
//! at most one command of each and ends after a while, so that nobody's commands hold up logins, the worker's
//! restart or anyone else.

use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Resource, getrlimit};

use super::admission::{Admission, Facts, MOST_STRANGERS, Standing, admission};
use super::session::{CliChannel, Interest, Origin, Session, Verdict};
use super::sockets::{CliSockets, ident, prepare};
use super::throttle::Throttle;
use crate::complain::Level;
use crate::fault::{Fault, Outcome, words};
use crate::manager::Manager;

/// A turn ends after the command that passes this.
const TURN: Duration = Duration::from_millis(20);
const ACCEPTED_PER_TURN: usize = 64;
/// Pause after a failure to accept; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);
/// Descriptors that connections may not use: a new worker, a new working directory, VCL files need them.
const RESERVED_DESCRIPTORS: u64 = 24;
/// Most bytes of unfinished commands, all connections together.
const MOST_HELD: usize = 256 << 20;

/// The time when connections are accepted again after there was no room for one.
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
    /// The session that the next turn begins with.
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

    /// Greets a connection and adds it.
    pub fn add(&mut self, manager: &Manager, channel: CliChannel, origin: Origin) {
        let now = Instant::now();
        let mut session = Session::begin(manager, channel, origin, now);
        if session.flush(now) == Verdict::Keep {
            self.all.push(session);
        }
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
                    return Err(Fault::plain("Nobody reads the answers to the -I file"));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Returns the events to poll for, in the order of the indices that [`Sessions::note`] takes.
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

    /// Notes what was polled of a session. Sessions must not have come or gone meanwhile.
    pub fn note(&mut self, at: usize, events: PollFlags) {
        if let Some(session) = self.all.get_mut(at) {
            session.note(events);
        }
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

    fn give_way(&mut self, at: usize, manager: &Manager, now: Instant) {
        self.all.remove(at).give_way(manager, now);
    }

    /// Accepts what waits at a socket. A newcomer takes the place of another if there are too many.
    pub fn accept(&mut self, sockets: &CliSockets, at: usize, manager: &mut Manager) {
        self.hear_strangers(manager);
        let now = Instant::now();
        let secret = manager.secret.is_some();
        self.accepting.paused_until = None;
        for _ in 0..ACCEPTED_PER_TURN {
            let admission = admission(&self.facts(), secret, false, now);
            if let Admission::After(until) = admission {
                self.accepting.paused_until = Some(until);
                return;
            }
            let stream = match sockets.accept(at) {
                Ok(Some(stream)) => stream,
                Ok(None) => return,
                Err(error) => return self.pause(&error, manager, now),
            };
            self.accepting.pause = FIRST_PAUSE;
            if let Admission::InPlaceOf(other) = admission {
                self.give_way(other, manager, now);
            }
            // The lowest free number shows how many are in use.
            if stream.as_raw_fd() as u64 + RESERVED_DESCRIPTORS > self.accepting.most_descriptors {
                match replaced_for_descriptors(&self.facts(), secret, now) {
                    Some(other) => self.give_way(other, manager, now),
                    None => continue,
                }
            }
            prepare(&stream);
            self.add_stream(manager, stream, Origin::Telnet, "telnet");
        }
    }

    /// There are no descriptors or no memory: one who has not logged in goes, and trying again waits.
    fn pause(&mut self, error: &std::io::Error, manager: &Manager, now: Instant) {
        let accepting = &mut self.accepting;
        accepting.paused_until = Some(now + accepting.pause);
        accepting.pause = (accepting.pause * 2).min(LONGEST_PAUSE);
        if accepting.complained.is_none_or(|last| last + COMPLAIN_EVERY <= now) {
            accepting.complained = Some(now);
            let text = format!("Cannot accept on the management port: {}", words(error));
            manager.complain.say(Level::Error, &text);
        }
        if let Some(other) = replaced_for_descriptors(&self.facts(), manager.secret.is_some(), now) {
            self.give_way(other, manager, now);
        }
    }

    /// Hears those who have not logged in, if one may have to give way: the manager may have been busy when they spoke.
    fn hear_strangers(&mut self, manager: &mut Manager) {
        let is_stranger = |session: &Session| session.facts().standing == Standing::Stranger;
        if self.all.iter().filter(|session| is_stranger(session)).count() < MOST_STRANGERS / 2 {
            return;
        }
        let now = Instant::now();
        let throttle = &mut self.throttle;
        self.all.retain_mut(|session| {
            if !is_stranger(session) {
                return true;
            }
            session.note(PollFlags::IN);
            session.serve(manager, throttle, now) == Verdict::Keep
        });
    }

    /// Serves those that have something to do, for the length of a turn. Returns the origins of those that ended.
    pub fn turn(&mut self, manager: &mut Manager) -> Vec<Origin> {
        let start = Instant::now();
        let count = self.all.len();
        let mut ended = Vec::new();
        for offset in 0..count {
            let at = (self.next + offset) % count;
            let now = Instant::now();
            if now.duration_since(start) >= TURN {
                self.next = at;
                break;
            }
            if self.all[at].serve(manager, &mut self.throttle, now) != Verdict::Keep {
                ended.push(at);
            }
        }
        self.refuse_hoarders(manager);
        ended.sort_unstable();
        ended.into_iter().rev().map(|at| self.all.remove(at).origin()).collect()
    }

    /// Ends the connections with the longest unfinished commands while all of them together hold too much.
    fn refuse_hoarders(&mut self, manager: &Manager) {
        while self.all.iter().map(Session::held).sum::<usize>() > MOST_HELD {
            let Some(longest) = self.all.iter_mut().max_by_key(|session| session.held()) else { return };
            longest.refuse_longer(manager, Instant::now());
        }
    }
}

fn replaced_for_descriptors(facts: &[Facts], secret: bool, now: Instant) -> Option<usize> {
    match admission(facts, secret, true, now) {
        Admission::InPlaceOf(at) => Some(at),
        Admission::Beside | Admission::After(_) => {
            facts.iter().position(|facts| facts.standing == Standing::Refused)
        }
    }
}
