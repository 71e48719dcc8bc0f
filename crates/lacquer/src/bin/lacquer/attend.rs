//! The companion of `lacquer run`: a process beside the daemon that writes the access log to standard output, and at the
//! end what was served to standard error. It reads both from shared memory, so that the daemon never waits for it.

use std::io::{self, IsTerminal, Write};
use std::os::unix::process::parent_id;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lacquer_inspect::access_log::Format;
use lacquer_inspect::counters::{self, Counter};
use lacquer_inspect::directory::Directory;
use lacquer_inspect::log_sink::{Sink, Target};
use lacquer_inspect::request_log::RequestLog;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use crate::colors;
use crate::failure::Failure;

/// The name of the command, which users do not type.
pub const NAME: &str = "attend";
const PARENT: &str = "LACQUER_ATTENDED";
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
        .env(PARENT, std::process::id().to_string())
        .stdin(Stdio::null());
    command.spawn().map(|child| child.id()).map_err(failed)
}

/// Runs until the daemon ends.
pub fn run(words: &[String]) -> ExitCode {
    let parent = std::env::var(PARENT).ok().and_then(|pid| pid.parse().ok());
    let (Some(parent), Some(name)) = (parent, words.first()) else {
        return ExitCode::FAILURE;
    };
    // Ctrl-C reaches this process too. It ends when the daemon has stopped its worker, and says so.
    let (is_ignored, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    for (signal, flag) in [(SIGINT, &is_ignored), (SIGTERM, &is_ignored), (SIGUSR1, &is_over)] {
        if signal_hook::flag::register(signal, Arc::clone(flag)).is_err() {
            return ExitCode::FAILURE;
        }
    }
    thread::spawn(move || end_with(parent));
    let format = words.get(1).and_then(|text| Format::parse(text).ok());
    let target = words.get(2).and_then(|text| Target::parse(text).ok()).unwrap_or(Target::Stdout);
    let mut attendant = Attendant::new(format, Sink::new(target));
    for round in 0_u32.. {
        // The worker's last records and counts are complete then, and its files remain until this process ends.
        let is_last = is_over.load(Relaxed) || parent_id() != parent;
        attendant.find(name);
        attendant.write_log();
        if round % ROUNDS == 0 || is_last {
            attendant.count();
        }
        if is_last {
            attendant.conclude();
            break;
        }
        thread::sleep(PAUSE);
    }
    ExitCode::SUCCESS
}

/// Ends the process after the daemon, although a reader of the log does not read.
fn end_with(parent: u32) {
    while parent_id() == parent {
        thread::sleep(Duration::from_millis(500));
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
    missed: u64,
    dropped: u64,
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
            missed: 0,
            dropped: 0,
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
        let Some(directory) = self.directory.as_ref().filter(|_| self.format.is_some()) else { return };
        if self.requests.is_none() {
            self.requests = RequestLog::open(directory).ok();
        }
    }

    fn write_log(&mut self) {
        let (Some(requests), Some(format)) = (&mut self.requests, &self.format) else { return };
        let mut is_open = true;
        let (has_colors, sink) = (self.has_colors, &mut self.sink);
        // A worker that ends takes its log with it.
        let _ = requests.read_with(&mut |line, records| {
            if is_open && let Err(error) = sink.write(&format.line(&line, records, has_colors)) {
                is_open = false;
                // A reader that has closed its end needs no message.
                if error.kind() != io::ErrorKind::BrokenPipe {
                    report(&format!("lacquer: the access log ends, because it cannot be written: {error}\n"));
                }
            }
        });
        let _ = sink.flush();
        let lost = sink.dropped() - self.dropped;
        if lost > 0 {
            self.dropped += lost;
            report(&format!(
                "lacquer: {lost} lines of the access log were dropped: --log-to does not read them\n"
            ));
        }
        let times = requests.missed() - self.missed;
        if times > 0 {
            self.missed = requests.missed();
            report(&format!(
                "lacquer: the access log lacks requests: they were overwritten {times} times before they were read\n         \
                 its reader is too slow; -p vsl_space=1G makes room\n"
            ));
        }
        if !is_open {
            (self.format, self.requests) = (None, None);
        }
    }

    fn count(&mut self) {
        let all = self.directory.as_ref().and_then(|directory| counters::read(directory).ok());
        // The counters of a worker that has ended are gone.
        if let Some(served) = all.map(|all| Served::of(&all)).filter(|served| served.requests > 0) {
            self.served = Some(served);
        }
    }

    /// Reports what was served, if the daemon has served at all.
    fn conclude(&self) {
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
