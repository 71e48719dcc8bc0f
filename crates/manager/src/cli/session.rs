//! One connection of the management port: its commands, its replies and its login. Nothing here blocks. A session runs
//! one command at a time and reads no further command while a reply is unsent, so that a client makes us hold at
//! most one command and one reply.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use lacquer_cli::check::check;
use lacquer_cli::collector::{Collector, Command, MAX_COMMAND};
use lacquer_cli::{auth, frame, status};
use rustix::event::PollFlags;

use super::admission::{Facts, LoginState};
use super::outbox::{Blocking, Outbox};
use super::throttle::Throttle;
use crate::commands::CommandResult;
use crate::complain::{Level, print_line};
use crate::fault::{Fault, os_error_text};
use crate::manager::{Manager, Reply};
use crate::secret::random;
use crate::vcl::Compilation;

/// A connection that has not logged in is closed after this long.
pub const LOGIN_WITHIN: Duration = Duration::from_secs(10);
const CHUNK: usize = 64 << 10;
/// Maximum length of a reply to the admin process, which reads no longer ones. `cli_limit` is for users of the port.
const LONGEST_ADMIN_REPLY: usize = 64 << 20;
/// Maximum number of bytes of a command or reply that are written to syslog.
const LOGGED: usize = 8 << 10;

/// The origin of a connection, which determines the effect of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Standard input of `-d`: its end is the end of the daemon.
    Stdin,
    /// A client connected to `-T`.
    Telnet,
    /// We connected to `-M`.
    Master,
    /// The file of `-I`: a failed command is fatal.
    InitFile,
    /// The process of the admin listener with this number, which we have started.
    Admin(u64),
}

/// The result of a step of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The session continues.
    Keep,
    /// The session ends.
    Close,
    /// The daemon ends.
    Fatal(Fault),
}

/// The descriptors of a connection, its name in the log and its peer's address.
#[derive(Debug)]
pub struct CliChannel {
    pub input: OwnedFd,
    /// Descriptor for replies, if it is not `input`.
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
    Authenticated,
    Unauthenticated { challenge: String },
    Checking { challenge: String, given: String, try_at: Instant },
    Refused { reply_at: Instant },
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The client sends something.
    Input,
    /// The client reads some of the reply.
    Output,
    /// The client closes. The session itself waits for a timer.
    Hangup,
    /// The compilation of the VCL program that it loads ends.
    Compiled,
}

/// Bytes that were read, and the number of them that the collector has consumed.
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
    /// The VCL program that its command loads. The session does nothing else meanwhile.
    compiling: Option<Compilation>,
    login: Login,
    opened: Instant,
    last_heard: Instant,
    /// The client has sent something or closed, or the compilation has ended.
    readable: bool,
    /// The client has closed the connection.
    gone: bool,
    /// The session ends when all replies are sent.
    closing: bool,
}

impl Session {
    /// Starts a session: sends the banner, or the challenge if a secret is required.
    pub fn begin(manager: &Manager, channel: CliChannel, origin: Origin, now: Instant) -> Session {
        let wants_secret =
            matches!(origin, Origin::Telnet | Origin::Master) && manager.instance.secret.is_some();
        let mut bytes = [0; auth::CHALLENGE];
        let login = match wants_secret.then(|| random(&mut bytes)) {
            None => Login::Authenticated,
            Some(Ok(())) => Login::Unauthenticated { challenge: auth::challenge(bytes) },
            // Without random bytes no challenge is possible, so nobody can log in.
            Some(Err(_)) => Login::Unauthenticated { challenge: String::new() },
        };
        let greeting = match &login {
            Login::Unauthenticated { challenge } => {
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

    /// Returns the number of bytes of an unfinished command.
    pub fn held(&self) -> usize {
        self.collector.held()
    }

    /// Returns the properties that decide whether it is replaced by a new connection.
    pub fn facts(&self) -> Facts {
        let login = match self.login {
            _ if self.origin != Origin::Telnet => LoginState::Permanent,
            Login::Authenticated => LoginState::Authenticated,
            Login::Unauthenticated { .. } => LoginState::Unauthenticated,
            Login::Checking { .. } => LoginState::Checking,
            Login::Refused { .. } => LoginState::Refused,
        };
        let Session { opened, last_heard, .. } = *self;
        Facts { login, peer: self.channel.peer, opened, last_heard }
    }

    /// Returns the descriptor to poll and the event to wait for.
    pub fn interest(&self) -> (BorrowedFd<'_>, Interest) {
        if !self.outbox.is_empty() {
            return (self.channel.output(), Interest::Output);
        }
        if let Some(compilation) = &self.compiling {
            return (compilation.ended(), Interest::Compiled);
        }
        match self.login {
            Login::Checking { .. } | Login::Refused { .. } => (self.channel.input.as_fd(), Interest::Hangup),
            Login::Authenticated | Login::Unauthenticated { .. } => {
                (self.channel.input.as_fd(), Interest::Input)
            }
        }
    }

    /// Records the events that a poll for its interest returned.
    pub fn note(&mut self, events: PollFlags) {
        match self.interest().1 {
            Interest::Input | Interest::Compiled => self.readable = !events.is_empty(),
            Interest::Output | Interest::Hangup => {
                self.gone |= events.intersects(PollFlags::ERR | PollFlags::HUP);
            }
        }
    }

    /// Returns whether the client has read all replies and the session is neither compiling nor closing.
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.compiling.is_none() && !self.closing
    }

    /// Returns whether the session can proceed without an event: a buffered command is left, or it is closing.
    pub fn has_work(&self) -> bool {
        let may_run = matches!(self.login, Login::Authenticated | Login::Unauthenticated { .. });
        let is_free = self.outbox.is_empty() && self.compiling.is_none();
        is_free && (self.closing || may_run && self.input.taken < self.input.chunk.len())
    }

    /// Returns the time of the next timeout.
    pub fn deadline(&self) -> Option<Instant> {
        if self.gone {
            return Some(self.opened);
        }
        let login = match self.login {
            _ if self.closing => None,
            Login::Authenticated => None,
            Login::Unauthenticated { .. } => self.login_deadline(),
            Login::Checking { try_at, .. } => Some(try_at),
            Login::Refused { reply_at } => Some(reply_at),
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

    /// Writes as much of the replies as the client accepts.
    pub fn flush(&mut self, now: Instant) -> Verdict {
        let blocking = match self.origin {
            Origin::Telnet | Origin::Master | Origin::Admin(_) => Blocking::Never,
            Origin::Stdin | Origin::InitFile => Blocking::IfFull,
        };
        let written = self.outbox.flush(self.channel.output(), blocking, now);
        // A session that begins is closed in its first round.
        self.gone |= written.is_err();
        if self.gone || self.closing && self.outbox.is_empty() {
            return Verdict::Close;
        }
        Verdict::Keep
    }

    /// Handles timeouts.
    pub fn tick(&mut self, manager: &Manager, throttle: &mut Throttle, now: Instant) -> Verdict {
        if self.outbox.deadline().is_some_and(|until| until <= now) {
            let text = format!("CLI {} does not read its reply: closed", self.channel.ident);
            manager.complain.report(Level::Info, &text);
            return Verdict::Close;
        }
        match &self.login {
            Login::Unauthenticated { .. } if self.login_deadline().is_some_and(|until| until <= now) => {
                return Verdict::Close;
            }
            Login::Checking { try_at, .. } if *try_at <= now => self.check_secret(manager, throttle, now),
            Login::Refused { reply_at } if *reply_at <= now => self.refuse(manager, now),
            _ => {}
        }
        Verdict::Keep
    }

    /// Sends the reply to a wrong secret, which is the last one of the session.
    fn refuse(&mut self, manager: &Manager, now: Instant) {
        if !self.closing {
            self.reply(manager, Reply::no(status::CLOSE, ""), now);
            self.closing = true;
        }
    }

    /// Closes the session to admit another one. A refused client gets its last reply if that can be sent at once.
    pub fn replace(mut self, manager: &Manager, now: Instant) {
        if matches!(self.login, Login::Refused { .. }) {
            self.refuse(manager, now);
            self.flush(now);
        }
    }

    /// Serves the session in its part of a round: at most one command.
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

    /// Reads input, unless some of the previous input is unprocessed.
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

    /// Runs the next command if one is buffered and the previous reply is sent.
    pub fn step(&mut self, manager: &mut Manager, throttle: &mut Throttle, now: Instant) -> Verdict {
        while self.has_work() && !self.closing {
            let authenticated = matches!(self.login, Login::Authenticated);
            let byte = self.input.chunk[self.input.taken];
            self.input.taken += 1;
            if self.input.taken == self.input.chunk.len() {
                self.input.chunk = Vec::new();
                self.input.taken = 0;
            }
            if let Some(command) = self.collector.feed(byte, authenticated) {
                return self.execute(manager, throttle, &command, now);
            }
            if self.collector.held() > MAX_COMMAND {
                self.refuse_longer(manager, now);
            }
        }
        Verdict::Keep
    }

    /// Ends a connection whose command is too long.
    pub fn refuse_longer(&mut self, manager: &Manager, now: Instant) {
        self.collector = Collector::default();
        let text = format!("Command too long: the limit is {} MB\n", MAX_COMMAND >> 20);
        self.reply(manager, Reply::no(status::SYNTAX, text), now);
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
            print_line(&format!("> {}", command.line));
        }
        if !matches!(self.origin, Origin::Admin(_)) || !is_a_look(&command.line) {
            let received = format!("CLI {} Rd {}", self.channel.ident, beginning(&command.line));
            manager.complain.report(Level::Cli, &received);
        }
        let unauthenticated = matches!(self.login, Login::Unauthenticated { .. });
        let reply = match check(&command.words, !unauthenticated) {
            Ok(Some(found)) if found.spec.name == "auth" && manager.instance.secret.is_some() => {
                self.offer(manager, throttle, command, now);
                return Verdict::Keep;
            }
            Ok(Some(found)) if found.spec.name == "auth" => {
                Reply::no(status::CANT, "Secret file not configured\n")
            }
            checked => match manager.run(checked, command, !unauthenticated) {
                CommandResult::Now(reply) => reply,
                CommandResult::Compiling(compilation) if from_file => manager.finish_load(compilation),
                CommandResult::Compiling(compilation) => {
                    self.compiling = Some(compilation);
                    return Verdict::Keep;
                }
            },
        };
        if from_file && reply.status != status::OK && !command.line.starts_with('-') {
            let text = format!("-I file CLI command failed ({})\n{}", reply.status, reply.text);
            return Verdict::Fatal(Fault::usage(text));
        }
        // An unauthenticated client gets a single attempt.
        self.closing = reply.status == status::CLOSE || unauthenticated && reply.status != status::OK;
        self.reply(manager, reply, now);
        Verdict::Keep
    }

    /// Completes the command that loads a VCL program.
    fn compiled(&mut self, manager: &mut Manager, compilation: Compilation) -> Verdict {
        self.readable = false;
        let reply = manager.finish_load(compilation);
        self.reply(manager, reply, Instant::now());
        Verdict::Keep
    }

    fn reply(&mut self, manager: &Manager, mut reply: Reply, now: Instant) {
        let shown = reply.text.lossy();
        if !matches!(self.origin, Origin::Admin(_)) {
            let sent = format!("CLI {} Wr {:03} {}", self.channel.ident, reply.status, beginning(&shown));
            manager.complain.report(Level::Cli, &sent);
        }
        let limit = match self.origin {
            Origin::Admin(_) => LONGEST_ADMIN_REPLY,
            _ => manager.params.values().cli_limit as usize,
        };
        if frame::truncate(&mut reply.text.0, limit) && reply.status == status::OK {
            reply.status = status::TRUNCATED;
        }
        self.push(&reply, now);
    }

    /// Accepts a secret from the client and checks it when the throttle allows.
    fn offer(&mut self, manager: &Manager, throttle: &mut Throttle, command: &Command, now: Instant) {
        let given = command.words.as_ref().ok().and_then(|words| words.get(1)).cloned().unwrap_or_default();
        let challenge = match &mut self.login {
            Login::Unauthenticated { challenge } => std::mem::take(challenge),
            _ => String::new(),
        };
        let try_at = throttle.reserve_attempt(self.address(), now);
        self.login = Login::Checking { challenge, given, try_at };
        if try_at <= now {
            self.check_secret(manager, throttle, now);
        }
    }

    fn address(&self) -> IpAddr {
        self.channel.peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    fn check_secret(&mut self, manager: &Manager, throttle: &mut Throttle, now: Instant) {
        let Login::Checking { challenge, given, .. } = &self.login else { return };
        let Some(secret) = &manager.instance.secret else { return };
        let secret = match secret.read(&manager.jail) {
            Ok(secret) => secret,
            Err(error) => {
                self.closing = true;
                let text = format!("Cannot open secret file ({})\n", os_error_text(&error));
                return self.reply(manager, Reply::no(status::CANT, text), now);
            }
        };
        if !challenge.is_empty() && auth::matches(&auth::response(challenge, &secret), given) {
            self.login = Login::Authenticated;
            return self.reply(manager, Reply::ok(manager.banner()), now);
        }
        let text = format!("CLI Authentication failure from {}", self.channel.ident);
        manager.complain.report(Level::Security, &text);
        self.login = Login::Refused { reply_at: throttle.record_failure(self.address(), now) };
    }
}

/// Returns whether a command changes nothing. The admin process repeats such commands, so they are not logged.
fn is_a_look(line: &str) -> bool {
    let name = line.split(' ').next().unwrap_or_default();
    let is_list = name.split('.').next_back() == Some("list");
    is_list || matches!(name, "status" | "ping" | "param.show" | "vcl.show" | "debug.listen_address")
}

/// Returns the part of a long text that is written to syslog.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(LOGGED);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
