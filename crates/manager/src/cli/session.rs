//! One connection of the management port: the commands it sends, the answers it takes, and whether it has logged in.
//! Nothing here blocks. A session runs one command at a time and reads no further one while an answer waits for
//! its client, so that what a client makes us hold is one command and one answer.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lacquer_cli::check::check;
use lacquer_cli::collector::{Collector, Command, LONGEST_COMMAND};
use lacquer_cli::{auth, frame, status};
use rustix::event::PollFlags;

use super::admission::{Facts, Standing};
use super::outbox::{Blocking, Outbox};
use super::throttle::Throttle;
use crate::complain::{Level, say_line};
use crate::fault::{Fault, words};
use crate::manager::{Answer, Manager, Reply};
use crate::secret::random;
use crate::vcl::Compilation;

/// A connection that has not logged in is closed after this long.
pub const LOGIN_WITHIN: Duration = Duration::from_secs(10);
const CHUNK: usize = 64 << 10;
/// Limit of the bytes of a command or an answer that go to the system's log.
const LOGGED: usize = 8 << 10;

/// The origin of a connection, which decides on the effect of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Standard input of `-d`: its end is ours.
    Stdin,
    /// A client connected to `-T`.
    Telnet,
    /// We connected to `-M`.
    Master,
    /// The file of `-I`: what fails there is fatal.
    InitFile,
}

/// The outcome of a step for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The session continues.
    Keep,
    /// It ends.
    Close,
    /// The daemon ends.
    Fatal(Fault),
}

/// The descriptors of a connection, its name in the log and the address at its other end.
#[derive(Debug)]
pub struct CliChannel {
    pub input: OwnedFd,
    /// Descriptor that answers go to, if they do not go to where commands come from.
    pub output: Option<OwnedFd>,
    pub ident: String,
    pub peer: Option<IpAddr>,
}

impl CliChannel {
    fn output(&self) -> BorrowedFd<'_> {
        self.output.as_ref().map_or(self.input.as_fd(), |output| output.as_fd())
    }
}

/// The progress of a connection's login.
#[derive(Debug)]
enum Login {
    Known,
    Stranger { challenge: String },
    Checking { challenge: String, given: String, turn: Instant },
    Refused { answered: Instant },
}

/// The events of a connection that are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Its client sends something.
    Input,
    /// Its client takes some of the answer.
    Output,
    /// Nothing but its end: it waits for the clock.
    Hangup,
    /// The program that it loads is compiled.
    Compiled,
}

/// Bytes that were read, and how many of them the collector took.
#[derive(Default)]
struct Input {
    chunk: Vec<u8>,
    taken: usize,
}

/// A connection.
pub struct Session {
    channel: CliChannel,
    origin: Origin,
    collector: Collector,
    input: Input,
    outbox: Outbox,
    /// The program that its command loads. Nothing else is done for it meanwhile.
    compiling: Option<Compilation>,
    login: Login,
    opened: Instant,
    last_heard: Instant,
    /// Its client has sent something, or ended, or its program is compiled.
    readable: bool,
    /// Its client is gone for good.
    gone: bool,
    /// It ends as soon as its client has its answers.
    closing: bool,
}

impl Session {
    /// Greets, or asks who is there.
    pub fn begin(manager: &Manager, channel: CliChannel, origin: Origin, now: Instant) -> Session {
        let wants_secret = matches!(origin, Origin::Telnet | Origin::Master) && manager.secret.is_some();
        let mut bytes = [0; auth::CHALLENGE];
        let login = match wants_secret.then(|| random(&mut bytes)) {
            None => Login::Known,
            Some(Ok(())) => Login::Stranger { challenge: auth::challenge(bytes) },
            // Without randomness nobody can get in.
            Some(Err(_)) => Login::Stranger { challenge: String::new() },
        };
        let greeting = match &login {
            Login::Stranger { challenge } => {
                Reply::no(status::AUTH, format!("{challenge}\n\nAuthentication required.\n"))
            }
            _ => Reply::ok(manager.banner()),
        };
        let mut session = Session {
            channel,
            origin,
            collector: Collector::default(),
            input: Input::default(),
            outbox: Outbox::new(now),
            compiling: None,
            login,
            opened: now,
            last_heard: now,
            readable: false,
            gone: false,
            closing: false,
        };
        session.push(&greeting, now);
        session
    }

    /// Returns the origin of the connection.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Bytes of an unfinished command.
    pub fn held(&self) -> usize {
        self.collector.held()
    }

    /// Returns the facts that decide whether it gives way to another.
    pub fn facts(&self) -> Facts {
        let standing = match self.login {
            _ if self.origin != Origin::Telnet => Standing::Permanent,
            Login::Known => Standing::Known,
            Login::Stranger { .. } => Standing::Stranger,
            Login::Checking { .. } => Standing::Checking,
            Login::Refused { .. } => Standing::Refused,
        };
        let Session { opened, last_heard, .. } = *self;
        Facts { standing, peer: self.channel.peer, opened, last_heard }
    }

    /// Returns the events to poll for.
    pub fn interest(&self) -> (BorrowedFd<'_>, Interest) {
        if !self.outbox.is_empty() {
            return (self.channel.output(), Interest::Output);
        }
        if let Some(compilation) = &self.compiling {
            return (compilation.ended(), Interest::Compiled);
        }
        match self.login {
            Login::Checking { .. } | Login::Refused { .. } => (self.channel.input.as_fd(), Interest::Hangup),
            Login::Known | Login::Stranger { .. } => (self.channel.input.as_fd(), Interest::Input),
        }
    }

    /// Takes note of the events that a poll for its interest found.
    pub fn note(&mut self, events: PollFlags) {
        match self.interest().1 {
            Interest::Input | Interest::Compiled => self.readable = !events.is_empty(),
            Interest::Output | Interest::Hangup => {
                self.gone |= events.intersects(PollFlags::ERR | PollFlags::HUP);
            }
        }
    }

    /// Returns whether its client has taken all answers and nothing ends it.
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.compiling.is_none() && !self.closing
    }

    /// Returns whether there is something to do without any event: a command that was read already, or the end.
    pub fn has_work(&self) -> bool {
        let may_run = matches!(self.login, Login::Known | Login::Stranger { .. });
        let is_free = self.outbox.is_empty() && self.compiling.is_none();
        is_free && (self.closing || may_run && self.input.taken < self.input.chunk.len())
    }

    /// Returns the time of the next timeout.
    pub fn deadline(&self) -> Option<Instant> {
        let login = match self.login {
            _ if self.closing => None,
            Login::Known => None,
            Login::Stranger { .. } => self.login_deadline(),
            Login::Checking { turn, .. } => Some(turn),
            Login::Refused { answered } => Some(answered),
        };
        [login, self.outbox.deadline()].into_iter().flatten().min()
    }

    /// Returns the time by which the client must have logged in. There is no limit for an address that the
    /// manager itself connects to.
    fn login_deadline(&self) -> Option<Instant> {
        (self.origin == Origin::Telnet).then(|| self.opened + LOGIN_WITHIN)
    }

    fn push(&mut self, reply: &Reply, now: Instant) {
        self.outbox.push(frame::encode(reply.status, &reply.text), now);
    }

    /// Writes what the client takes.
    pub fn flush(&mut self, now: Instant) -> Verdict {
        let blocking = match self.origin {
            Origin::Telnet | Origin::Master => Blocking::Never,
            Origin::Stdin | Origin::InitFile => Blocking::IfFull,
        };
        let written = self.outbox.flush(self.channel.output(), blocking, now);
        if self.gone || written.is_err() || self.closing && self.outbox.is_empty() {
            return Verdict::Close;
        }
        Verdict::Keep
    }

    /// Does what the clock asks for.
    pub fn tick(&mut self, manager: &Manager, throttle: &mut Throttle, now: Instant) -> Verdict {
        if self.outbox.deadline().is_some_and(|until| until <= now) {
            let text = format!("CLI {} does not read its answer: closed", self.channel.ident);
            manager.complain.say(Level::Info, &text);
            return Verdict::Close;
        }
        match &self.login {
            Login::Stranger { .. } if self.login_deadline().is_some_and(|until| until <= now) => {
                return Verdict::Close;
            }
            Login::Checking { turn, .. } if *turn <= now => self.check_secret(manager, throttle, now),
            Login::Refused { answered } if *answered <= now => self.refuse(manager, now),
            _ => {}
        }
        Verdict::Keep
    }

    /// Sends the answer to a wrong secret, its last one.
    fn refuse(&mut self, manager: &Manager, now: Instant) {
        if !self.closing {
            self.answer(manager, Reply::no(status::CLOSE, ""), now);
            self.closing = true;
        }
    }

    /// Ends to make room for another. A refused client gets its last answer, as far as that can be sent at once.
    pub fn give_way(mut self, manager: &Manager, now: Instant) {
        if matches!(self.login, Login::Refused { .. }) {
            self.refuse(manager, now);
            self.flush(now);
        }
    }

    /// Serves it for its part of a turn: one command at most.
    pub fn serve(&mut self, manager: &mut Manager, throttle: &mut Throttle, now: Instant) -> Verdict {
        let mut verdict = self.tick(manager, throttle, now);
        if verdict == Verdict::Keep {
            verdict = self.flush(now);
        }
        if verdict == Verdict::Keep && self.readable {
            verdict = match self.compiling.take() {
                Some(compilation) => self.compiled(manager, compilation),
                None => self.read(now),
            };
        }
        if verdict == Verdict::Keep {
            verdict = self.step(manager, throttle, now);
        }
        if verdict == Verdict::Keep {
            verdict = self.flush(Instant::now());
        }
        verdict
    }

    /// Reads what has come, unless some of it is still to be done.
    pub fn read(&mut self, now: Instant) -> Verdict {
        if self.input.taken < self.input.chunk.len() || !self.is_quiet() {
            return Verdict::Keep;
        }
        self.readable = false;
        self.input.chunk.resize(CHUNK, 0);
        self.input.taken = 0;
        let length = match rustix::io::read(&self.channel.input, &mut self.input.chunk) {
            Ok(length) => length,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {
                self.input.chunk.clear();
                return Verdict::Keep;
            }
            Err(_) => 0,
        };
        self.input.chunk.truncate(length);
        if length == 0 {
            return self.ended();
        }
        self.last_heard = now;
        Verdict::Keep
    }

    fn ended(&self) -> Verdict {
        if self.origin == Origin::InitFile && self.collector.unfinished().is_some() {
            return Verdict::Fatal(Fault::usage("-I file had incomplete CLI command at the end"));
        }
        Verdict::Close
    }

    /// Runs the next command, if it is there and the client has the answer to the one before.
    pub fn step(&mut self, manager: &mut Manager, throttle: &mut Throttle, now: Instant) -> Verdict {
        while self.has_work() && !self.closing {
            let knows_secret = matches!(self.login, Login::Known);
            let byte = self.input.chunk[self.input.taken];
            self.input.taken += 1;
            if self.input.taken == self.input.chunk.len() {
                self.input.chunk = Vec::new();
                self.input.taken = 0;
            }
            if let Some(command) = self.collector.feed(byte, knows_secret) {
                return self.execute(manager, throttle, &command, now);
            }
            if self.collector.held() > LONGEST_COMMAND {
                self.refuse_longer(manager, now);
            }
        }
        Verdict::Keep
    }

    /// Ends a connection whose command is too long.
    pub fn refuse_longer(&mut self, manager: &Manager, now: Instant) {
        self.collector = Collector::default();
        let text = format!("Command too long: at most {} MB are taken\n", LONGEST_COMMAND >> 20);
        self.answer(manager, Reply::no(status::SYNTAX, text), now);
        self.closing = true;
    }

    fn execute(
        &mut self,
        manager: &mut Manager,
        throttle: &mut Throttle,
        command: &Command,
        now: Instant,
    ) -> Verdict {
        let from_file = self.origin == Origin::InitFile;
        if from_file {
            say_line(&format!("> {}", command.line));
        }
        let heard = format!("CLI {} Rd {}", self.channel.ident, beginning(&command.line));
        manager.complain.say(Level::Cli, &heard);
        let stranger = matches!(self.login, Login::Stranger { .. });
        let reply = match check(&command.words, !stranger) {
            Ok(Some(found)) if found.spec.name == "auth" && manager.secret.is_some() => {
                self.offer(manager, throttle, command, now);
                return Verdict::Keep;
            }
            Ok(Some(found)) if found.spec.name == "auth" => {
                Reply::no(status::CANT, "Secret file not configured\n")
            }
            checked => match manager.run(checked, command, !stranger) {
                Answer::Now(reply) => reply,
                Answer::Compiling(compilation) if from_file => manager.finish_load(compilation),
                Answer::Compiling(compilation) => {
                    self.compiling = Some(compilation);
                    return Verdict::Keep;
                }
            },
        };
        if from_file && reply.status != status::OK && !command.line.starts_with('-') {
            let text = format!("-I file CLI command failed ({})\n{}", reply.status, reply.text);
            return Verdict::Fatal(Fault::usage(text));
        }
        // Strangers are not given a second chance.
        self.closing = reply.status == status::CLOSE || stranger && reply.status != status::OK;
        self.answer(manager, reply, now);
        Verdict::Keep
    }

    /// Completes the command that loads a program.
    fn compiled(&mut self, manager: &mut Manager, compilation: Compilation) -> Verdict {
        self.readable = false;
        let reply = manager.finish_load(compilation);
        self.answer(manager, reply, Instant::now());
        Verdict::Keep
    }

    fn answer(&mut self, manager: &Manager, mut reply: Reply, now: Instant) {
        let shown = reply.text.lossy();
        let said = format!("CLI {} Wr {:03} {}", self.channel.ident, reply.status, beginning(&shown));
        manager.complain.say(Level::Cli, &said);
        let limit = manager.params.values().cli_limit as usize;
        if frame::truncate(&mut reply.text.0, limit) && reply.status == status::OK {
            reply.status = status::TRUNCATED;
        }
        self.push(&reply, now);
    }

    /// Takes an offered secret, to be checked when it is this address's turn.
    fn offer(&mut self, manager: &Manager, throttle: &mut Throttle, command: &Command, now: Instant) {
        let given = command.words.as_ref().ok().and_then(|words| words.get(1)).cloned().unwrap_or_default();
        let challenge = match &mut self.login {
            Login::Stranger { challenge } => std::mem::take(challenge),
            _ => String::new(),
        };
        let turn = throttle.turn(self.address(), now);
        self.login = Login::Checking { challenge, given, turn };
        if turn <= now {
            self.check_secret(manager, throttle, now);
        }
    }

    fn address(&self) -> IpAddr {
        self.channel.peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    fn check_secret(&mut self, manager: &Manager, throttle: &mut Throttle, now: Instant) {
        let Login::Checking { challenge, given, .. } = &self.login else { return };
        let Some(secret) = &manager.secret else { return };
        let secret = match secret.read(&manager.jail) {
            Ok(secret) => secret,
            Err(error) => {
                self.closing = true;
                let text = format!("Cannot open secret file ({})\n", words(&error));
                return self.answer(manager, Reply::no(status::CANT, text), now);
            }
        };
        if !challenge.is_empty() && auth::matches(&auth::response(challenge, &secret), given) {
            self.login = Login::Known;
            return self.answer(manager, Reply::ok(manager.banner()), now);
        }
        let text = format!("CLI Authentication failure from {}", self.channel.ident);
        manager.complain.say(Level::Security, &text);
        self.login = Login::Refused { answered: throttle.wrong(self.address(), now) };
    }
}

/// The part of a long text that goes to the system's log.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(LOGGED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
