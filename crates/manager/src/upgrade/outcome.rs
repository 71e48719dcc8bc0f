//! The result of an upgrade, in a file of the working directory, which `lacquer upgrade` reads.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

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
    fs::write(NEW_NAME, text)?;
    fs::rename(NEW_NAME, NAME)
}

fn parse(text: &str) -> Result<String, String> {
    match text.split_once(' ') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("failed", text)) => Err(text.to_owned()),
        _ => Err("the daemon has written no result".to_owned()),
    }
}

/// Requests an upgrade of the daemon in a working directory, `-n` of the daemon, and waits for its result.
pub fn request(name: Option<&str>) -> Result<String, String> {
    let directory = crate::workdir::path(name);
    let shown = directory.display().to_string();
    let pid = fs::read_to_string(directory.join("_.pid"))
        .map_err(|error| format!("no daemon runs in {shown}: {}", crate::fault::os_error_text(&error)))?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| format!("no daemon runs in {shown}"))?;
    let place = directory.join(NAME);
    let before = number(&place);
    kill_process(pid, Signal::USR2).map_err(|error| format!("cannot signal the daemon: {error}"))?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        std::thread::sleep(POLL);
        if number(&place) != before {
            return parse(&fs::read_to_string(&place).unwrap_or_default());
        }
        if test_kill_process(pid) == Err(rustix::io::Errno::SRCH) {
            return Err("the daemon has ended".to_owned());
        }
    }
    Err("the daemon has not reported a result in time".to_owned())
}

/// Identifies the file, which each result replaces.
fn number(path: &PathBuf) -> Option<(u64, i64, i64)> {
    fs::metadata(Path::new(path)).ok().map(|found| (found.ino(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_written() {
        assert_eq!(parse("ok from 1 to 2"), Ok("from 1 to 2".to_owned()));
        assert_eq!(parse("failed no VCL"), Err("no VCL".to_owned()));
        assert!(parse("").is_err() && parse("nonsense").is_err());
        assert!(request(Some("/nonexistent")).unwrap_err().contains("no daemon runs"));
    }
}
