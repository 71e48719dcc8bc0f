//! The facts that are found on a machine, and the findings that follow from them.

use std::collections::BTreeMap;

/// The facts that were found on a machine.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The contents of those files that could be read.
    pub files: BTreeMap<String, String>,
    /// The limits of the daemon, or of this process: the content of `/proc/PID/limits`.
    pub limits: Option<String>,
    /// Whether the limits are those of a running daemon.
    pub has_daemon: bool,
    /// The working directory of the daemon.
    pub workdir: String,
    pub secrets: Vec<Secret>,
    pub stores: Vec<Store>,
    pub origins: Vec<Origin>,
    /// Bytes of memory that the options of the daemon give to storages.
    pub storage_memory: u64,
    /// Seconds since the epoch.
    pub now: f64,
}

/// A file that only few may read.
#[derive(Clone, Debug)]
pub struct Secret {
    pub path: String,
    /// Its permissions, or the reason why they are unknown.
    pub mode: Result<u32, String>,
}

/// A file or device of a storage.
#[derive(Clone, Debug)]
pub struct Store {
    pub path: String,
    /// The free bytes of its file system, or the reason why it cannot be used. `None` for a device.
    pub free: Result<Option<u64>, String>,
    /// Whether the file exists.
    pub exists: bool,
    /// The size that the options of the daemon want.
    pub wanted: u64,
}

/// A web server that was asked.
#[derive(Clone, Debug)]
pub struct Origin {
    pub name: String,
    /// Milliseconds until its response or, over TLS, until the connection; or the reason why there was none.
    pub reached: Result<u64, String>,
    /// The time in its header `Date`, and ours when it arrived, in seconds since the epoch.
    pub date: Option<(f64, f64)>,
}

/// How good a setting is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    Good,
    /// It could not be found out.
    Unknown,
    /// Another setting would be better for many.
    Better,
    /// It will cause faults.
    Bad,
}

/// The remedy of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    None,
    /// A kernel setting and its value.
    Sysctl(&'static str, String),
    /// A command, or another instruction.
    Command(String),
}

/// The state of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub topic: &'static str,
    pub grade: Grade,
    /// The present value.
    pub is: String,
    /// The recommended value.
    pub should: String,
    pub why: &'static str,
    pub remedy: Remedy,
}

/// The longest value that is shown, in characters.
const LONGEST: usize = 60;

/// Returns a text from a file for display: one line without control characters, not too long.
pub fn shown(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut out: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect();
    if line.chars().count() > LONGEST {
        out.push_str("...");
    }
    out
}
