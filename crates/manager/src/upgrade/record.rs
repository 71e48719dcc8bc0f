//! How the program was started, and the upgrade that was requested.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::outcome;
use crate::jail::Jail;

/// The upgrade of this program.
#[derive(Debug)]
pub struct Upgrade {
    /// The file of this program, and the directory in which it was started.
    program: PathBuf,
    directory: PathBuf,
    arguments: Vec<OsString>,
    wanted_since: Option<Instant>,
    result: Option<Result<String, String>>,
}

impl Upgrade {
    /// Records how the program was started. The arguments are those of the user.
    pub fn new(arguments: &[OsString]) -> Upgrade {
        Upgrade {
            program: std::env::current_exe().unwrap_or_default(),
            directory: std::env::current_dir().unwrap_or_default(),
            arguments: arguments.to_vec(),
            wanted_since: None,
            result: None,
        }
    }

    /// Requests an upgrade, which begins as soon as the management port is quiet.
    pub fn want(&mut self) {
        self.wanted_since.get_or_insert_with(Instant::now);
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted_since.is_some()
    }

    /// Records the result.
    pub fn end(&mut self, result: Result<String, String>, jail: &Jail) {
        self.wanted_since = None;
        // Without the file, `lacquer upgrade` reports that there is no result.
        let _root = jail.raise();
        let _ = outcome::write(&result);
        self.result = Some(result);
    }

    /// Returns the arguments of the next program, the first of which names the state.
    pub fn command(&self, argument: &str, state: &File) -> Vec<OsString> {
        let first = OsString::from(format!("{argument}{}", state.as_raw_fd()));
        std::iter::once(first).chain(self.arguments.iter().cloned()).collect()
    }

    pub fn wanted_since(&self) -> Option<Instant> {
        self.wanted_since
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the result of the last upgrade.
    pub fn result(&self) -> Option<&Result<String, String>> {
        self.result.as_ref()
    }
}
