//! Messages of the manager, to stderr with their level, and to syslog.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong.
    Error,
    /// Worth knowing.
    Info,
    /// Of interest in the foreground only.
    Debug,
    /// A client was refused.
    Security,
    /// Traffic of the CLI; never on stderr.
    Cli,
}

const LOCAL0: u8 = 16 << 3;
const AUTHPRIV: u8 = 10 << 3;

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Error => "Error:",
            Level::Info => "Info:",
            Level::Debug => "Debug:",
            Level::Security => "Security:",
            Level::Cli => "Cli:",
        }
    }

    fn priority(self) -> u8 {
        match self {
            Level::Error => LOCAL0 | 3,
            Level::Info | Level::Cli => LOCAL0 | 6,
            Level::Debug => LOCAL0 | 7,
            Level::Security => AUTHPRIV | 4,
        }
    }
}

/// A pipe that polls as writable takes this much without blocking.
const PIECE: usize = 4096;
/// A reader of stderr that is slow is waited for once; after that its lines are lost until it reads again.
const SLOW_READER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes a line to stderr, whole: others write there too. Never blocks for long.
pub fn say_line(text: &str) {
    let line = format!("{text}\n");
    let mut stderr = std::io::stderr();
    for piece in line.as_bytes().chunks(PIECE) {
        // There is nowhere to report that even this fails.
        if !stderr_has_room() || stderr.write_all(piece).is_err() {
            return;
        }
    }
}

fn stderr_has_room() -> bool {
    let patience = if STUCK.load(Relaxed) { Timespec { tv_sec: 0, tv_nsec: 0 } } else { SLOW_READER };
    let stderr = std::io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let stuck = poll(&mut fds, Some(&patience)) == Ok(0);
    STUCK.store(stuck, Relaxed);
    !stuck
}

/// The destinations of messages.
#[derive(Debug)]
pub struct Complain {
    /// True in the foreground, where all is reported; in the background debugging is not.
    verbose: bool,
    name: String,
    socket: Option<UnixDatagram>,
    /// Tests do not write to the system's log.
    quiet: Cell<bool>,
    cli_traffic: Cell<bool>,
}

impl Complain {
    /// `name` is what the program is called.
    pub fn new(verbose: bool, name: &str) -> Complain {
        let socket = UnixDatagram::unbound()
            .ok()
            .filter(|socket| socket.set_nonblocking(true).is_ok() && socket.connect("/dev/log").is_ok());
        Complain {
            verbose,
            name: name.to_owned(),
            socket,
            quiet: Cell::new(false),
            cli_traffic: Cell::new(true),
        }
    }

    /// Follows the parameters: whether syslog is to be used, and for CLI traffic.
    pub fn tune(&self, params: &lacquer_params::Params) {
        self.quiet.set(params.debug.has(lacquer_params::DebugBits::VTC_MODE));
        self.cli_traffic.set(params.syslog_cli_traffic);
    }

    /// Reports a text.
    pub fn say(&self, level: Level, text: &str) {
        if text.is_empty() || (level == Level::Cli && !self.cli_traffic.get()) {
            return;
        }
        if level != Level::Cli && (self.verbose || level != Level::Debug) {
            say_line(&format!("{} {text}", level.word()));
        }
        if let Some(socket) = self.socket.as_ref().filter(|_| !self.quiet.get()) {
            let line = format!("<{}>{}[{}]: {text}", level.priority(), self.name, std::process::id());
            // The log may be full or gone; nobody is served by failing for that.
            let _ = socket.send(line.as_bytes());
        }
    }
}
