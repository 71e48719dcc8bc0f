//! The result of an upgrade, in a file of the working directory, which `lacquer upgrade` reads.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lacquer_cli::pid_file::{self, FILE as PID_FILE};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::file_identity::FileIdentity;

/// The name of the file.
const NAME: &str = "_.upgrade";
const NEW_NAME: &str = "_.upgrade.new";
/// The maximum time to wait for the result.
const PATIENCE: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(20);

/// Writes the result to a new file. The beginning of the text is its meaning.
pub fn write(result: &Result<String, String>) -> std::io::Result<()> {
    let text = match result {
        Ok(text) => format!("ok {text}"),
        Err(text) => format!("failed {text}"),
    };
    write_in(Path::new(""), &text)
}

/// Writes the file in a directory. Root writes it, so the new file must not be one to which a link leads.
fn write_in(directory: &Path, text: &str) -> std::io::Result<()> {
    let new = directory.join(NEW_NAME);
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(new, directory.join(NAME))
}

fn parse(text: &str) -> Result<String, String> {
    match text.split_once(' ') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("failed", text)) => Err(text.to_owned()),
        _ => Err("the daemon has written no result".to_owned()),
    }
}

/// The failure of a request for an upgrade.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// No process was signalled.
    NotAsked(String),
    /// The daemon was asked, and has not upgraded.
    Failed(String),
}

/// Requests an upgrade of the daemon in a working directory, `-n` of the daemon, and waits for its result.
pub fn request(name: Option<&str>) -> Result<String, Refusal> {
    let directory = crate::workdir::path(name);
    let pid = manager_of(&directory).map_err(Refusal::NotAsked)?;
    let place = directory.join(NAME);
    let before = number(&place);
    kill_process(pid, Signal::USR2).map_err(|error| {
        Refusal::NotAsked(match error {
            Errno::PERM => {
                "the daemon belongs to another user: run the command as root, or as that user".to_owned()
            }
            error => format!("cannot signal the daemon: {error}"),
        })
    })?;
    wait(pid, &place, before).map_err(Refusal::Failed)
}

fn wait(pid: Pid, place: &PathBuf, before: Option<(u64, i64, i64)>) -> Result<String, String> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        std::thread::sleep(POLL);
        if number(place) != before {
            return parse(&fs::read_to_string(place).unwrap_or_default());
        }
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return Err("the daemon has ended".to_owned());
        }
    }
    Err("the daemon has not reported a result in time".to_owned())
}

/// Returns the process that manages the daemon of a working directory. SIGUSR2 ends most programs, and Varnish too, so the
/// process must hold the lock of the file that names it, and must catch the signal.
fn manager_of(directory: &Path) -> Result<Pid, String> {
    let shown = directory.display();
    let path = directory.join(PID_FILE);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("no daemon runs in {shown}: {}", crate::fault::os_error_text(&error)))?;
    let pid = text.trim().parse::<i32>().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| format!("no daemon runs in {shown}: {PID_FILE} contains no process id"))?;
    let number = pid.as_raw_nonzero();
    if !pid_file::is_locked(&path).map_err(|error| format!("cannot examine {}: {error}", path.display()))? {
        return Err(format!("no daemon runs in {shown}: {PID_FILE} was left by one that has ended"));
    }
    let program = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    let program = program.trim().escape_debug();
    let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
    if !catches(&status, Signal::USR2) {
        return Err(format!(
            "process {number} ({program}) of {shown} is not Lacquer; only Lacquer upgrades itself"
        ));
    }
    // A process of another namespace may have the same number, which then is that of init at worst.
    match has_open(number.get(), &path) {
        open if open.unwrap_or(number.get() > 1) => Ok(pid),
        _ => Err(format!("process {number} ({program}) is not the daemon of {shown}")),
    }
}

/// Returns whether a process catches a signal, by its file `status`.
fn catches(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Returns whether a process has opened a file; `None` if its files may not be read.
fn has_open(pid: i32, path: &Path) -> Option<bool> {
    let wanted = FileIdentity::at(path);
    let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    Some(wanted.is_some_and(|wanted| files.flatten().any(|file| wanted.is_at(&file.path()))))
}

/// Identifies the file, which each result replaces.
fn number(path: &PathBuf) -> Option<(u64, i64, i64)> {
    fs::metadata(Path::new(path)).ok().map(|found| (found.ino(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::jail::Jail;
    use crate::workdir::PidFile;

    #[test]
    fn results_are_read_as_written() {
        assert_eq!(parse("ok from 1 to 2"), Ok("from 1 to 2".to_owned()));
        assert_eq!(parse("failed no VCL"), Err("no VCL".to_owned()));
        assert!(parse("").is_err() && parse("nonsense").is_err());
    }

    #[test]
    fn results_are_not_written_through_links() {
        let directory = std::env::temp_dir().join(format!("lacquer-outcome-link-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("writable");
        let other = directory.join("other");
        fs::write(&other, "of another").expect("writable");
        for name in [NAME, NEW_NAME] {
            std::os::unix::fs::symlink(&other, directory.join(name)).expect("writable");
        }
        write_in(&directory, "ok done").expect("writable");
        let text = |path: &Path| fs::read_to_string(path).expect("it exists");
        assert_eq!((text(&directory.join(NAME)), text(&other)), ("ok done".into(), "of another".into()));
        fs::remove_dir_all(&directory).expect("ours");
    }

    /// Returns why a working directory with this file of a process id has no daemon to signal.
    fn refused(directory: &Path, text: &str) -> String {
        fs::write(directory.join(PID_FILE), text).expect("writable");
        match request(directory.to_str()) {
            Err(Refusal::NotAsked(why)) => why,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn only_a_daemon_that_catches_the_signal_gets_it() {
        let none = request(Some("/nonexistent"));
        assert!(matches!(none, Err(Refusal::NotAsked(why)) if why.contains("no daemon runs")));
        let directory = std::env::temp_dir().join(format!("lacquer-outcome-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("writable");
        let mut stranger = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = stranger.id().to_string();
        for text in ["", "0", "-1", "99999999999", "x"] {
            assert!(refused(&directory, text).contains("contains no process id"), "{text}");
        }
        for text in [pid.as_str(), "1"] {
            assert!(refused(&directory, text).contains("left by one that has ended"), "{text}");
        }
        // Varnish locks the file too, and does not catch the signal.
        let held = PidFile::open(&directory.join(PID_FILE), &Jail::none()).expect("free");
        let why = refused(&directory, &pid);
        assert!(why.contains("(sleep)") && why.contains("is not Lacquer"), "{why}");
        assert_eq!(stranger.try_wait().expect("our child"), None, "the stranger was signalled");
        stranger.kill().and_then(|()| stranger.wait()).expect("our child");
        drop(held);
        fs::remove_dir_all(&directory).expect("ours");
        assert!(catches("SigCgt:\t0000000000000800\n", Signal::USR2));
        assert!(!catches("SigCgt:\t0000000000000400\n", Signal::USR2) && !catches("", Signal::USR2));
        assert_eq!(has_open(std::process::id().cast_signed(), Path::new("/nonexistent")), Some(false));
    }
}
