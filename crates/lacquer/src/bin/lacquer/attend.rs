//! The companion of `lacquer run`: a process beside the daemon that writes the access log to standard output, and at the
//! end what was served to standard error. It reads both from shared memory, so that the daemon never waits for it. Its parent,
//! the supervisor, starts it again if it is killed, and it continues without the supervisor.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lacquer_cli::access_log::Counts;
use lacquer_inspect::access_log::Format;
use lacquer_inspect::counters::{self, Counter};
use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_sink::{Sink, Target};
use lacquer_inspect::request_log::RequestLog;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level::pipe;

use crate::colors;
use crate::failure::Failure;
use crate::log_counts::LogCounts;

/// The name of the command, which users do not type.
pub const NAME: &str = "attend";
const DAEMON: &str = "LACQUER_ATTENDED";
/// Which companion of the daemon a process is; the supervisor has no such variable.
const ROLE: &str = "LACQUER_ATTENDANT_ROLE";
const FIRST: &str = "first";
/// A later companion begins at the end of the log, because an earlier one has written the lines before.
const LATER: &str = "later";
/// The first pause before a companion is started again, and the time between two looks for the daemon's end.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum pause before a companion is started again.
const MAX_LOOK: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(50);
/// Number of pauses between two looks at the counters.
const ROUNDS: u32 = 20;
/// How long the reader of the log may keep this process after the daemon's end.
const LAST_LINES: Duration = Duration::from_secs(3);

/// Starts the companion of this process, which becomes the daemon with this working directory. Returns its process id.
pub fn start(name: &str, log: Option<(&str, &str)>) -> Result<u32, Failure> {
    let failed = |error: io::Error| Failure::new(format_args!("cannot start the access log: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command
        .args([NAME, name])
        .args(log.iter().flat_map(|(format, target)| [format, target]))
        .env(DAEMON, std::process::id().to_string())
        .stdin(Stdio::null());
    command.spawn().map(|child| child.id()).map_err(failed)
}

/// A process that may have ended.
#[derive(Clone, Copy)]
struct Process {
    id: u32,
    /// When it began, by which another process with the same number differs.
    since: u64,
}

impl Process {
    fn of(id: u32) -> Option<Process> {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let since = since(&text)?;
        Some(Process { id, since })
    }

    fn has_ended(self) -> bool {
        Process::of(self.id).is_none_or(|present| present.since != self.since)
    }
}

/// Returns when a process began, from its file `stat` (proc_pid_stat(5)). `None` if it has ended and its parent does not
/// know it yet.
fn since(stat: &str) -> Option<u64> {
    // The name of the program is in parentheses, and may contain some.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    words.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    words.nth(18)?.parse().ok()
}

/// Runs until the daemon ends.
pub fn run(words: &[String]) -> ExitCode {
    let daemon = std::env::var(DAEMON).ok().and_then(|pid| Process::of(pid.parse().ok()?));
    let (Some(daemon), Some(name)) = (daemon, words.first()) else {
        return ExitCode::FAILURE;
    };
    // Ctrl-C reaches these processes too. They end when the daemon has stopped its worker and sends SIGUSR1, or has ended.
    let (is_ignored, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    for (signal, flag) in [(SIGINT, &is_ignored), (SIGTERM, &is_ignored), (SIGUSR1, &is_over)] {
        if signal_hook::flag::register(signal, Arc::clone(flag)).is_err() {
            return ExitCode::FAILURE;
        }
    }
    let Ok(role) = std::env::var(ROLE) else { return supervise(daemon, words, &is_over) };
    thread::spawn(move || end_with(daemon));
    let format = words.get(1).and_then(|text| Format::parse(text).ok());
    let target = words.get(2).and_then(|text| Target::parse(text).ok()).unwrap_or(Target::Stdout);
    let mut attendant = Attendant::new(format, Sink::new(target));
    attendant.is_first = role == FIRST;
    for round in 0_u32.. {
        // The worker's last records and counts are complete then, and its files remain until this process ends.
        let is_last = is_over.load(Relaxed) || daemon.has_ended();
        attendant.find(name);
        attendant.write_log();
        if round % ROUNDS == 0 || is_last {
            attendant.count();
        }
        if is_last {
            attendant.conclude();
            // The daemon does not wait long for a socket that is read slowly, nor does this process after the daemon's end.
            while matches!(attendant.sink.flush(), Ok(false)) {
                thread::sleep(PAUSE);
            }
            break;
        }
        thread::sleep(PAUSE);
    }
    ExitCode::SUCCESS
}

/// Starts a companion again that was killed, until the daemon ends, and passes on the signal that all is over.
fn supervise(daemon: Process, words: &[String], is_over: &AtomicBool) -> ExitCode {
    // A byte arrives when the companion has ended, or after the flag was set.
    let mut events = match UnixStream::pair() {
        Ok((events, signals)) => {
            let all = [SIGCHLD, SIGUSR1];
            let register = |signal| pipe::register(signal, signals.try_clone()?);
            if all.into_iter().any(|signal| register(signal).is_err()) {
                return ExitCode::FAILURE;
            }
            events
        }
        Err(_) => return ExitCode::FAILURE,
    };
    let companion = |role| -> io::Result<Child> {
        Command::new(std::env::current_exe()?)
            .arg(NAME)
            .args(words)
            .env(ROLE, role)
            .stdin(Stdio::null())
            .spawn()
    };
    let (mut role, mut pause) = (FIRST, LOOK);
    while !daemon.has_ended() {
        let mut child = match companion(role) {
            Ok(child) => child,
            Err(error) => {
                report(&format!("lacquer: cannot start the access log: {error}\n"));
                return ExitCode::FAILURE;
            }
        };
        let mut is_told = false;
        let status = loop {
            match child.try_wait() {
                // It has ended by itself, after the last lines.
                Ok(Some(status)) if status.success() || is_over.load(Relaxed) => return ExitCode::SUCCESS,
                Ok(Some(status)) => break status,
                Ok(None) if is_over.load(Relaxed) && !is_told => {
                    tell(&child);
                    is_told = true;
                }
                Ok(None) => {}
                Err(_) => return ExitCode::FAILURE,
            }
            if events.read(&mut [0; 64]).is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
                return ExitCode::FAILURE;
            }
        };
        report(&format!(
            "lacquer: the process that writes the access log ended ({status}) and is started again; \
             the log lacks the requests of the meantime\n"
        ));
        role = LATER;
        thread::sleep(pause);
        pause = (pause * 2).min(MAX_LOOK);
    }
    ExitCode::SUCCESS
}

/// Passes on the signal that all is over.
fn tell(companion: &Child) {
    if let Some(pid) = i32::try_from(companion.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::USR1);
    }
}

/// Ends the process after the daemon, although a reader of the log does not read.
fn end_with(daemon: Process) {
    while !daemon.has_ended() {
        thread::sleep(LOOK);
    }
    thread::sleep(LAST_LINES);
    std::process::exit(0);
}

struct Attendant {
    directory: Option<Directory>,
    requests: Option<RequestLog>,
    format: Option<Format>,
    sink: Sink,
    has_colors: bool,
    /// Whether it also writes the requests that the log already has.
    is_first: bool,
    /// Requests whose lines were written, or reported as missing.
    seen: u64,
    /// How often records were overwritten before they were read.
    overruns: u64,
    counts: Counts,
    published: Option<LogCounts>,
    served: Option<Served>,
}

impl Attendant {
    fn new(format: Option<Format>, sink: Sink) -> Attendant {
        Attendant {
            directory: None,
            requests: None,
            format,
            sink,
            has_colors: colors::wanted(io::stdout().is_terminal()),
            is_first: true,
            seen: 0,
            overruns: 0,
            counts: Counts::default(),
            published: None,
            served: None,
        }
    }

    /// Finds the daemon once it serves, and its log.
    fn find(&mut self, name: &str) {
        if self.directory.is_none() {
            let found = Directory::find(Some(name)).ok();
            self.directory =
                found.filter(|found| found.worker_blocks("Log").is_ok_and(|all| !all.is_empty()));
        }
        let (Some(directory), Some(format)) = (self.directory.as_ref(), &self.format) else { return };
        if self.requests.is_some() {
            return;
        }
        self.requests = RequestLog::open(directory, format.needs()).ok();
        if self.requests.is_some() && self.published.is_none() {
            self.published = LogCounts::open(directory.path(), self.is_first).ok();
            self.counts = self.published.as_ref().map_or(Counts::default(), LogCounts::counts);
        }
        if let Some(requests) = self.requests.as_mut().filter(|_| !self.is_first) {
            let _ = requests.read(&mut |_| {});
            self.overruns = requests.missed();
            self.count();
            self.seen = self.served.map_or(0, |served| served.requests);
            // Those of the time between two companions.
            let of_this_worker = self.counts.requests().saturating_sub(self.counts.earlier);
            self.counts.missed += self.seen.saturating_sub(of_this_worker);
        }
    }

    fn write_log(&mut self) {
        let (Some(requests), Some(format)) = (&mut self.requests, &self.format) else { return };
        let (mut failure, mut unwritten) = (None, 0);
        let (has_colors, sink, seen) = (self.has_colors, &mut self.sink, &mut self.seen);
        let (mut line, before) = (String::new(), (*seen, sink.dropped()));
        // A worker that ends takes its log with it.
        let _ = requests.read_with(&mut |parts, records| {
            *seen += 1;
            if failure.is_none() {
                line.clear();
                format.add_line(&mut line, parts, records, has_colors);
                failure = sink.write(&line).err();
            }
            unwritten += u64::from(failure.is_some());
        });
        let failure = failure.or_else(|| sink.flush().err());
        let (lines, lost) = (*seen - before.0, sink.dropped() - before.1);
        self.counts.written = (self.counts.written + lines).saturating_sub(lost + unwritten);
        self.counts.dropped += lost;
        self.counts.missed += unwritten;
        if lost > 0 {
            report(&format!(
                "lacquer: {lost} lines of the access log were dropped: --log-to does not read them\n"
            ));
        }
        let overruns = requests.missed();
        if overruns > self.overruns {
            self.overruns = overruns;
            self.report_missing();
        }
        if let Some(published) = &mut self.published {
            published.publish(self.counts);
        }
        if let Some(error) = failure {
            report(&match error.kind() {
                ErrorKind::BrokenPipe => {
                    "lacquer: the access log has ended: nobody reads standard output any more\n".to_owned()
                }
                _ => format!("lacquer: the access log has ended: it cannot be written: {error}\n"),
            });
            (self.format, self.requests) = (None, None);
        }
    }

    /// Reports requests that were overwritten before they were read. Their number is the daemon's, without those that were
    /// written.
    fn report_missing(&mut self) {
        self.count();
        let all = self.served.map_or(0, |served| served.requests);
        let missed = all.saturating_sub(self.seen);
        self.counts.missed += missed.max(1);
        let lacking = match missed {
            0 => "some requests".to_owned(),
            1 => "about one request".to_owned(),
            lacking => format!("about {lacking} requests"),
        };
        self.seen = self.seen.max(all);
        report(&format!(
            "lacquer: the access log lacks {lacking}, because the log was overwritten before it was read\n         \
             its reader is too slow; -p vsl_space=1G makes room\n"
        ));
    }

    fn count(&mut self) {
        let all = self.directory.as_ref().and_then(|directory| counters::read(directory).ok());
        // The counters of a worker that has ended are gone.
        if let Some(served) = all.map(|all| Served::of(&all)).filter(|served| served.requests > 0) {
            if self.served.is_some_and(|before| before.requests > served.requests) {
                // Another worker counts from 0.
                self.seen = 0;
                self.counts.earlier = self.counts.requests();
            }
            self.served = Some(served);
            self.count_after_end(served.requests);
        }
    }

    /// Counts the requests since the access log has ended as missing.
    fn count_after_end(&mut self, requests: u64) {
        let Some(published) = self.published.as_mut().filter(|_| self.format.is_none()) else { return };
        self.counts.missed += requests.saturating_sub(self.seen);
        self.seen = self.seen.max(requests);
        published.publish(self.counts);
    }

    /// Reports what was served, if the daemon has served at all. Its directory becomes empty.
    fn conclude(&mut self) {
        self.published = None;
        if self.directory.is_some() {
            report(&self.served.unwrap_or_default().text());
        }
    }
}

fn report(text: &str) {
    // A failure to report cannot be reported.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The daemon's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Served {
    requests: u64,
    hits: u64,
    /// Bytes of bodies that clients received, without those that origins sent.
    saved: u64,
}

impl Served {
    fn of(all: &[Counter]) -> Served {
        let value = |name: &str| all.iter().find(|c| c.name == name).map_or(0, |counter| counter.value);
        let fetched =
            all.iter().filter(|c| c.name.starts_with("VBE.") && c.name.ends_with(".beresp_bodybytes"));
        let fetched: u64 = fetched.map(|counter| counter.value).fold(0, u64::saturating_add);
        Served {
            requests: value("MAIN.client_req"),
            hits: value("MAIN.cache_hit"),
            saved: value("MAIN.s_resp_bodybytes").saturating_sub(fetched),
        }
    }

    fn text(self) -> String {
        if self.requests == 0 {
            return "\nLacquer served no requests.\n".to_owned();
        }
        let plural = if self.requests == 1 { "" } else { "s" };
        let ratio = self.hits.saturating_mul(100) / self.requests;
        let served = format!("\nLacquer served {} request{plural}, {ratio} % from the cache", self.requests);
        match self.saved {
            0 => format!("{served}.\n"),
            saved => format!("{served}; your web server sent {} less.\n", size(saved)),
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{} kB", bytes / 1000),
        1_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_recognized() {
        let own = Process::of(std::process::id()).expect("it runs");
        assert!(!own.has_ended() && Process { since: own.since + 1, ..own }.has_ended());
        let stat =
            |state: &str| format!("7 (a ) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 20");
        assert_eq!((since(&stat("S")), since(&stat("Z"))), (Some(99), None));
        assert_eq!((since(""), since("7 (a) S 1")), (None, None));
    }

    #[test]
    fn sums_are_a_sentence() {
        let counter = |name: &str, value| Counter {
            name: name.to_owned(),
            value,
            semantics: String::new(),
            oneliner: String::new(),
        };
        let all = [
            counter("MAIN.client_req", 8),
            counter("MAIN.cache_hit", 7),
            counter("MAIN.s_resp_bodybytes", 8_000_000),
            counter("VBE.boot.default.beresp_bodybytes", 1_000_000),
        ];
        let served = Served::of(&all);
        assert_eq!(
            served.text(),
            "\nLacquer served 8 requests, 87 % from the cache; your web server sent 7 MB less.\n"
        );
        assert_eq!(Served::of(&all[3..]).text(), "\nLacquer served no requests.\n");
        assert!(Served { requests: 1, hits: u64::MAX, saved: 9 }.text().contains("1 request,"));
    }
}
