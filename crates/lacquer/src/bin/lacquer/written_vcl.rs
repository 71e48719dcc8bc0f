//! The VCL that the options of `lacquer run` mean, as a file beside the working directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use lacquer_manager::WRITTEN_VCL;

use crate::failure::Failure;

/// The end of the file's name. Users may have a VCL with the name of the directory and the usual ending.
const ENDING: &str = ".run.vcl";

/// A file that is removed unless the daemon takes the place of this process. If the daemon then fails to start, it removes
/// the file.
pub struct WrittenVcl {
    path: PathBuf,
}

impl WrittenVcl {
    /// Writes the file, and adds it to the daemon's arguments. `name` is the working directory.
    pub fn add(command: &mut Command, name: &Path, text: &str) -> Result<WrittenVcl, Failure> {
        let mut path = name.as_os_str().to_owned();
        path.push(ENDING);
        let path = PathBuf::from(path);
        let failed =
            |error: io::Error| Failure::new(format_args!("cannot write {}: {error}", path.display()));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        // Where everyone may create files, another user's must not be written through.
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let written = file.write_all(text.as_bytes()).map_err(failed);
        let this = WrittenVcl { path };
        written?;
        command.arg("-f").arg(&this.path).env(WRITTEN_VCL, &this.path);
        Ok(this)
    }
}

impl Drop for WrittenVcl {
    fn drop(&mut self) {
        // The command has failed, and reports why.
        let _ = fs::remove_file(&self.path);
    }
}
