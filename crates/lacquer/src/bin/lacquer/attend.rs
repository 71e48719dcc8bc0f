//! The companion of `lacquer run`: a process beside the daemon that writes the access log to standard output, and at the
//! end what was served to standard error. It reads both from shared memory, so that the daemon never waits for it. Its parent,
//! the supervisor, starts it again if it is killed, and it continues without the supervisor.

use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_cli::access_log::Counts;
use lacquer_inspect::access_log::Format;
use lacquer_inspect::counters::{self, Set};
use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_sink::{Sink, Target};
use lacquer_inspect::request_log::RequestLog;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::low_level::pipe;

use crate::colors;
use crate::failure::Failure;
use crate::log_counts::LogCounts;
use crate::losses::Losses;

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
    complaints: Complaints,
}

/// The reports about lines that the access log lacks.
#[derive(Default)]
struct Complaints {
    dropped: Losses,
    missed: Losses,
    /// Why lines were dropped.
    why: String,
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
            complaints: Complaints::default(),
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
        let (has_colors, sink, seen) = (self.has_colors, &mut self.sink, &mut self.seen);
        let (mut line, before) = (String::new(), (sink.written(), sink.dropped()));
        let (mut failure, mut unwritten) = (None, 0);
        // A worker that ends takes its log with it.
        let _ = requests.read_with(&mut |parts, records| {
            *seen += 1;
            if is_end(failure.as_ref()) {
                unwritten += 1;
                return;
            }
            line.clear();
            format.add_line(&mut line, parts, records, has_colors);
            failure = sink.write(&line).err().or(failure.take());
        });
        if !is_end(failure.as_ref()) {
            failure = sink.flush().err().or(failure);
        }
        let has_ended = is_end(failure.as_ref());
        let (written, lost) = (sink.written() - before.0, sink.dropped() - before.1);
        self.counts.written += written;
        self.counts.dropped += lost;
        self.counts.missed += unwritten + if has_ended { sink.waiting() } else { 0 };
        let overruns = requests.missed();
        if overruns > self.overruns {
            self.overruns = overruns;
            self.count_missing();
        }
        if let Some(published) = &mut self.published {
            published.publish(self.counts);
        }
        if has_ended {
            report("lacquer: the access log has ended: nobody reads standard output any more\n");
            (self.format, self.requests) = (None, None);
        } else {
            self.complain(written, lost, failure.as_ref());
        }
    }

    /// Reports lines that were lost, unless that was done just now.
    fn complain(&mut self, written: u64, lost: u64, failure: Option<&io::Error>) {
        let (now, has_backlog) = (Instant::now(), self.sink.waiting() > 0);
        let Complaints { dropped, missed, why } = &mut self.complaints;
        if lost > 0 {
            *why = match failure {
                Some(error) => format!("standard output cannot be written: {error}"),
                None if *self.sink.target() == Target::Stdout => "nobody reads standard output".to_owned(),
                None => "--log-to does not read them".to_owned(),
            };
        }
        dropped.add(now, lost);
        if let Some(total) = dropped.due(now) {
            report_dropped(total, why);
        }
        if written > 0
            && lost == 0
            && !has_backlog
            && let Some(total) = dropped.recovery(now)
        {
            report(&format!("lacquer: the access log is written again; {total} of its lines were dropped\n"));
        }
        if let Some(total) = missed.due(now) {
            report_missed(total);
        }
    }

    /// Counts requests that were overwritten before they were read. Their number is the daemon's, without those that were
    /// written.
    fn count_missing(&mut self) {
        self.count();
        let all = self.served.map_or(0, |served| served.requests);
        let missed = all.saturating_sub(self.seen).max(1);
        self.counts.missed += missed;
        self.complaints.missed.add(Instant::now(), missed);
        self.seen = self.seen.max(all);
    }

    fn count(&mut self) {
        let all = self.directory.as_ref().and_then(|directory| counters::read_sets(directory).ok());
        // The counters of a worker that has ended are gone.
        if let Some(served) = all.map(|all| Served::of_sets(&all)).filter(|served| served.requests > 0) {
            if self.served.is_some_and(|before| before.requests > served.requests) {
                // Another worker counts from 0.
                self.seen = 0;
                self.counts.earlier = self.counts.requests() + self.sink.waiting();
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
        let (now, complaints) = (Instant::now(), &mut self.complaints);
        if let Some(total) = complaints.dropped.rest(now) {
            report_dropped(total, &complaints.why);
        }
        complaints.missed.rest(now).into_iter().for_each(report_missed);
        if self.directory.is_some() {
            report(&self.served.unwrap_or_default().text());
        }
    }
}

/// Returns whether nobody will read the log again. Other failures of standard output, such as a full disk, may end.
fn is_end(failure: Option<&io::Error>) -> bool {
    failure.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn report_dropped(total: u64, why: &str) {
    report(&format!("lacquer: lines of the access log were dropped, {total} so far: {why}\n"));
}

fn report_missed(total: u64) {
    let requests = if total == 1 { "one request".to_owned() } else { format!("{total} requests") };
    report(&format!(
        "lacquer: the access log lacks about {requests} so far, because the log was overwritten before it was read\n         \
         its reader is too slow; -p vsl_space=1G makes room\n"
    ));
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
    fn of_sets(sets: &[Set]) -> Served {
        Served::of(sets.iter().flat_map(|set| {
            set.counters().map(|(counter, value)| (set.ident.as_str(), counter.name.as_str(), value))
        }))
    }

    /// Takes the names of sets and counters, and their values.
    fn of<'a>(counters: impl Iterator<Item = (&'a str, &'a str, u64)>) -> Served {
        let (mut served, mut fetched) = (Served::default(), 0_u64);
        for (set, name, value) in counters {
            match (set, name) {
                ("MAIN", "client_req") => served.requests = value,
                ("MAIN", "cache_hit") => served.hits = value,
                ("MAIN", "s_resp_bodybytes") => served.saved = value,
                (_, "beresp_bodybytes") if set.starts_with("VBE.") => fetched = fetched.saturating_add(value),
                _ => {}
            }
        }
        served.saved = served.saved.saturating_sub(fetched);
        served
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
        let all = [
            ("MAIN", "client_req", 8),
            ("MAIN", "cache_hit", 7),
            ("MAIN", "s_resp_bodybytes", 8_000_000),
            ("VBE.boot.default", "beresp_bodybytes", 1_000_000),
        ];
        let served = Served::of(all.into_iter());
        assert_eq!(
            served.text(),
            "\nLacquer served 8 requests, 87 % from the cache; your web server sent 7 MB less.\n"
        );
        assert_eq!(Served::of(all[3..].iter().copied()).text(), "\nLacquer served no requests.\n");
        assert!(Served { requests: 1, hits: u64::MAX, saved: 9 }.text().contains("1 request,"));
    }
}
