//! Messages of the manager. They are written to stderr with their level, and to syslog.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong.
    Error,
    /// Information for the operator.
    Info,
    /// Information about a usual step of the start or the end.
    Routine,
    /// Reported in the foreground only.
    Debug,
    /// A client was refused.
    Security,
    /// Commands and replies of the CLI; never on stderr.
    Cli,
}

/// The variable with the text that is written to standard output as soon as clients are served. `lacquer run` sets it for
/// a user at a terminal, for whom the daemon is brief otherwise.
pub const ANNOUNCEMENT: &str = "LACQUER_ANNOUNCEMENT";

/// Returns the text to announce.
pub fn announcement() -> Option<String> {
    std::env::var(ANNOUNCEMENT).ok().filter(|text| !text.is_empty())
}

/// Writes the text to announce, if there is one, to standard output.
pub fn announce() {
    if let Some(text) = announcement() {
        let mut out = std::io::stdout();
        // The reader may close it early.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

const LOCAL0: u8 = 16 << 3;
const AUTHPRIV: u8 = 10 << 3;

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Error => "Error:",
            Level::Info | Level::Routine => "Info:",
            Level::Debug => "Debug:",
            Level::Security => "Security:",
            Level::Cli => "Cli:",
        }
    }

    fn priority(self) -> u8 {
        match self {
            Level::Error => LOCAL0 | 3,
            Level::Info | Level::Routine | Level::Cli => LOCAL0 | 6,
            Level::Debug => LOCAL0 | 7,
            Level::Security => AUTHPRIV | 4,
        }
    }
}

/// Bytes that a pipe accepts without blocking when it polls as writable.
const PIECE: usize = 4096;
/// Time to wait for a slow reader of stderr. Afterwards lines are dropped until it reads again.
const SLOW_READER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes a whole line to stderr, which other processes share. Blocks for [`SLOW_READER`] at most.
pub fn print_line(text: &str) {
    let line = format!("{text}\n");
    let mut stderr = std::io::stderr();
    for piece in line.as_bytes().chunks(PIECE) {
        // A failure to report a failure cannot be reported.
        if !stderr_has_room() || stderr.write_all(piece).is_err() {
            return;
        }
    }
}

fn stderr_has_room() -> bool {
    let timeout = if STUCK.load(Relaxed) { Timespec { tv_sec: 0, tv_nsec: 0 } } else { SLOW_READER };
    let stderr = std::io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let stuck = poll(&mut fds, Some(&timeout)) == Ok(0);
    STUCK.store(stuck, Relaxed);
    !stuck
}

/// The socket of syslog.
const SYSLOG: &str = "/dev/log";
/// The shortest time between two attempts to connect to it.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// The connection to syslog, which may be restarted at any time, or start late.
#[derive(Debug)]
struct Syslog {
    path: PathBuf,
    socket: RefCell<Option<UnixDatagram>>,
    tried: Cell<Instant>,
}

impl Syslog {
    fn connect(path: PathBuf) -> Syslog {
        let socket = RefCell::new(connected(&path).ok());
        Syslog { path, socket, tried: Cell::new(Instant::now()) }
    }

    /// Sends a line. A line is lost if the log is full or gone, because neither may stop the manager.
    fn send(&self, line: &[u8]) {
        let mut socket = self.socket.borrow_mut();
        let sent = socket.as_ref().map(|socket| socket.send(line));
        match sent {
            Some(Ok(_)) => return,
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => return,
            _ if self.tried.get().elapsed() < RECONNECT_AFTER => return,
            _ => self.tried.set(Instant::now()),
        }
        if let Ok(again) = connected(&self.path) {
            let _ = again.send(line);
            *socket = Some(again);
        }
    }
}

fn connected(path: &Path) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect(path)?;
    Ok(socket)
}

/// The destinations of messages.
#[derive(Debug)]
pub struct Complain {
    /// True in the foreground. In the background, debug messages are not written to stderr.
    verbose: bool,
    /// Whether a user watches who does not know the daemon. Usual steps are not written to stderr.
    is_brief: bool,
    name: String,
    syslog: Syslog,
    /// Disables syslog, for tests.
    quiet: Cell<bool>,
    cli_traffic: Cell<bool>,
}

impl Complain {
    /// `name` is the program's name in syslog.
    pub fn new(verbose: bool, name: &str) -> Complain {
        Complain {
            verbose: verbose && announcement().is_none(),
            is_brief: announcement().is_some(),
            name: name.to_owned(),
            syslog: Syslog::connect(SYSLOG.into()),
            quiet: Cell::new(false),
            cli_traffic: Cell::new(true),
        }
    }

    /// Applies the parameters that control syslog and the logging of CLI traffic.
    pub fn tune(&self, params: &lacquer_params::Params) {
        self.quiet.set(params.debug.has(lacquer_params::DebugBits::VTC_MODE));
        self.cli_traffic.set(params.syslog_cli_traffic);
    }

    /// Returns whether a user watches who does not know the daemon.
    pub fn is_brief(&self) -> bool {
        self.is_brief
    }

    /// Reports a text at a level.
    pub fn report(&self, level: Level, text: &str) {
        if text.is_empty() || (level == Level::Cli && !self.cli_traffic.get()) {
            return;
        }
        let is_shown = match level {
            Level::Cli => false,
            Level::Debug => self.verbose,
            Level::Routine => !self.is_brief,
            Level::Error | Level::Info | Level::Security => true,
        };
        if is_shown {
            print_line(&format!("{} {text}", level.word()));
        }
        if !self.quiet.get() {
            let line = format!("<{}>{}[{}]: {text}", level.priority(), self.name, std::process::id());
            self.syslog.send(line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syslog_that_is_restarted_gets_lines_again() {
        let path = std::env::temp_dir().join(format!("lacquer-syslog-{}", std::process::id()));
        let syslog = Syslog::connect(path.clone());
        for text in ["late", "restarted"] {
            let log = UnixDatagram::bind(&path).unwrap();
            log.set_nonblocking(true).unwrap();
            let mut bytes = [0; 32];
            let length = loop {
                syslog.send(text.as_bytes());
                match log.recv(&mut bytes) {
                    Ok(length) => break length,
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            };
            assert_eq!(&bytes[..length], text.as_bytes());
            std::fs::remove_file(&path).unwrap();
        }
    }
}
