//! Going into the background: the program starts itself once more in a session of its own and ends when
//! that copy reports whether it is up, with the reported exit code. The copy writes its report to the
//! descriptor that would be its standard input.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::fault::{Fault, Outcome};

/// The hidden first argument of the copy in the background.
pub const ARGUMENT: &str = "--in-background";

fn cannot(error: impl std::fmt::Display) -> Fault {
    Fault::plain(format!("Cannot go into the background: {error}"))
}

/// Starts the copy; returns the exit code to end with.
pub fn background(program: &OsString, arguments: &[OsString]) -> Outcome<u8> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(cannot)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(program).arg(ARGUMENT).args(arguments).stdin(Stdio::from(write));
    command.spawn().map_err(cannot)?;
    drop(command);
    let mut answer = [0];
    // A copy that dies without a report has written its reasons to stderr.
    match File::from(read).read(&mut answer) {
        Ok(1) => Ok(answer[0]),
        _ => Ok(255),
    }
}

/// The copy's end.
#[derive(Debug)]
pub struct Background {
    pipe: File,
}

/// Connects a standard stream to nothing.
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

    /// Reports success, or the exit code of a failure, and detaches from the terminal.
    pub fn done(mut self, code: u8) {
        silence(rustix::stdio::dup2_stdout);
        silence(rustix::stdio::dup2_stderr);
        let _ = self.pipe.write_all(&[code]);
    }
}
