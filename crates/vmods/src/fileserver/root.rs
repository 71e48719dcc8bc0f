//! A folder with the types of its files.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::mime::Types;

pub(super) struct Root {
    pub path: PathBuf,
    pub types: Types,
}

impl Root {
    /// Returns why there is no such folder now.
    pub fn check(&self) -> Result<(), String> {
        let found = std::fs::metadata(&self.path);
        let is_folder =
            found.and_then(|facts| facts.is_dir().then_some(()).ok_or(ErrorKind::NotADirectory.into()));
        is_folder
            .map_err(|error: io::Error| format!("folder {} cannot be read: {error}", self.path.display()))
    }
}
