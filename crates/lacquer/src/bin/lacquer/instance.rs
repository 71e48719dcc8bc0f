//! The daemon that a name refers to already.

use std::time::Duration;

use lacquer_cli::pid_file;
use lacquer_inspect::counters;
use lacquer_inspect::directory::Directory;
use lacquer_inspect::management::Management;
use lacquer_inspect::page::{duration, plain};
use lacquer_manager::working_directory;

use crate::failure::Failure;

/// The time in which a daemon lists its addresses.
const PATIENCE: Duration = Duration::from_secs(2);

/// Fails if a daemon runs with a working directory, and describes it.
pub fn refuse_running(name: &str) -> Result<(), Failure> {
    let path = std::path::absolute(name).unwrap_or_else(|_| working_directory(Some(name)));
    // A process with the number in the directory may be another one, as in a container that was started again.
    if !pid_file::is_used(&path) {
        return Ok(());
    }
    let found = path.to_str().and_then(|path| Directory::find(Some(path)).ok());
    let Some(directory) = found else { return Ok(()) };
    let shown = plain(path.as_os_str().as_encoded_bytes());
    let pid = directory.pid();
    let mut facts: Vec<String> = pid.map(|pid| format!("process {pid}")).into_iter().collect();
    facts.extend(uptime(&directory).map(|since| format!("started {since} ago")));
    facts.extend(addresses(&directory).map(|all| format!("serving {all}")));
    let end = pid.map_or_else(|| "end it".to_owned(), |pid| format!("end it with `kill {pid}`"));
    Err(Failure::new(format_args!("a daemon runs with --name {name} already: {}", facts.join(", "))).hint(
        format_args!(
            "choose another --name, or {end}; `lacquer top -n {shown}` shows what it does, and \
             `lacquer reload --name {shown} FILE` gives it another VCL"
        ),
    ))
}

fn uptime(directory: &Directory) -> Option<String> {
    let all = counters::read(directory).ok()?;
    let seconds = all.iter().find(|counter| counter.name == "MGT.uptime")?.value;
    Some(duration(seconds as f64))
}

/// Returns the addresses of a daemon's listeners.
fn addresses(directory: &Directory) -> Option<String> {
    let mut management = Management::of(directory).ok()?;
    management.set_patience(PATIENCE).ok()?;
    let shown = |(host, port): (String, String)| {
        plain(if port == "-" { host } else { format!("{host}:{port}") }.as_bytes())
    };
    let all: Vec<String> = management.listeners().ok()?.into_iter().map(shown).collect();
    (!all.is_empty()).then(|| all.join(" and "))
}
