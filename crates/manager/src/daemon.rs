//! Runs the daemon in the background: the program starts a copy of itself in a new session and exits when that copy
//! reports whether it started, with the reported exit code. The copy writes its report to the descriptor that would be
//! its standard input.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::fault::{Fault, Outcome};

/// The hidden first argument of the copy in the background.
pub const ARGUMENT: &str = "--in-background";

/// Returns the last component of the program's path.
pub fn basename(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

fn cannot(error: impl std::fmt::Display) -> Fault {
    Fault::plain(format!("Cannot go into the background: {error}"))
}

/// Starts the copy. Returns the exit code for this process.
pub fn background(program: &OsString, arguments: &[OsString]) -> Outcome<u8> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program).arg(ARGUMENT).args(arguments).stdin(Stdio::from(write));
    command.spawn().map_err(cannot)?;
    drop(command);
    let mut code = [0];
    // A copy that dies without a report has written its reasons to stderr.
    match File::from(read).read(&mut code) {
        Ok(1) => Ok(code[0]),
        _ => Ok(255),
    }
}

/// The copy's end of the pipe.
#[derive(Debug)]
pub struct Background {
    pipe: File,
}

/// Connects a standard stream to `/dev/null`.
pub fn silence(which: fn(File) -> rustix::io::Result<()>) {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = which(null);
    }
}

impl Background {
    /// Leaves the terminal's session.
    pub fn begin() -> Outcome<Background> {
        let pipe = std::io::stdin().as_fd().try_clone_to_owned().map_err(cannot)?;
        rustix::process::setsid().map_err(cannot)?;
        silence(rustix::stdio::dup2_stdin);
        Ok(Background { pipe: File::from(pipe) })
    }

    /// Reports an exit code, 0 for success, and detaches from the terminal.
    pub fn done(mut self, code: u8) {
        silence(rustix::stdio::dup2_stdout);
        silence(rustix::stdio::dup2_stderr);
        let _ = self.pipe.write_all(&[code]);
    }
}
