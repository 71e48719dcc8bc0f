//! `lacquer reload`: loads a VCL file into a running daemon, over its management port.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lacquer_inspect::directory::Directory;
use lacquer_inspect::management::Management;
use lacquer_manager::show as print;

use crate::args::Values;
use crate::failure::Failure;
use crate::remote;

/// The time to wait for a reply. A large VCL takes seconds to compile, and the names of its backends are looked up.
const PATIENCE: Duration = Duration::from_secs(90);
/// The names of programs that this command has loaded begin with this.
const PREFIX: &str = "reload_";

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand().unwrap_or_default();
    let file = fs::canonicalize(file).map_err(|error| Failure::new(format_args!("{file}: {error}")))?;
    let mut management = log_in(remote::instance(values))?;
    let mut words = |words: &[&str]| management.words(words).map_err(Failure::of);
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let name = format!("{PREFIX}{millis}");
    let warnings = words(&["vcl.load", &name, text_of(&file)?])?;
    if let Err(failure) = words(&["vcl.use", &name]) {
        let _ = words(&["vcl.discard", &name]);
        return Err(failure);
    }
    let list = words(&["vcl.list"])?;
    // A label may refer to one of them, or it may still be in use: it then remains.
    for old in replaced(&list, &name) {
        let _ = words(&["vcl.discard", old]);
    }
    let warnings = warnings.trim().trim_end_matches("VCL compiled.").trim();
    if !warnings.is_empty() {
        eprintln!("{warnings}");
    }
    print(&format!("{} is in use as {name}\n", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Logs in to the management port of the daemon with this working directory.
fn log_in(name: Option<&str>) -> Result<Management, Failure> {
    let directory = Directory::find(name).map_err(Failure::of)?;
    let management = Management::of(&directory).map_err(Failure::of)?;
    management.set_patience(PATIENCE).map_err(Failure::of)?;
    Ok(management)
}

/// Returns a path as a word of a command.
fn text_of(file: &Path) -> Result<&str, Failure> {
    let is_plain = |text: &&str| !text.contains(|c: char| c.is_control());
    file.to_str().filter(is_plain).ok_or_else(|| {
        Failure::new(format_args!("{}: such a name cannot be sent to the daemon", file.display()))
            .hint("rename the file")
    })
}

/// Returns the programs of a list that earlier reloads have loaded.
fn replaced<'a>(list: &'a str, current: &str) -> Vec<&'a str> {
    let words = list.lines().filter_map(|line| line.split_whitespace().nth(4));
    words.filter(|name| name.starts_with(PREFIX) && *name != current).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_earlier_reloads_are_replaced() {
        let list =
            "active    auto warm 0 reload_2\navailable auto cold 0 reload_1\n\navailable auto warm 0 boot\n";
        assert_eq!(replaced(list, "reload_2"), ["reload_1"]);
        assert_eq!(text_of(Path::new("/a \"b\".vcl")), Ok("/a \"b\".vcl"));
        assert!(text_of(Path::new("/a\nb")).is_err());
    }
}
