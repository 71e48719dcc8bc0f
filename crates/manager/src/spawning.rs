//! Child processes that run this program.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::environment;

/// Returns the command that starts this program again, even if its file was replaced. `more` names variables to pass.
pub fn this_program(name: &OsString, more: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).env_clear().envs(environment::for_worker(std::env::vars_os(), more));
    command
}

/// Starts a process that inherits descriptors with their numbers.
pub fn spawn_with(command: &mut Command, inherited: &[BorrowedFd<'_>]) -> io::Result<Child> {
    let mark = |flags: FdFlags| inherited.iter().try_for_each(|fd| fcntl_setfd(fd, flags));
    let spawned = mark(FdFlags::empty()).map_err(io::Error::from).and_then(|()| command.spawn());
    mark(FdFlags::CLOEXEC)?;
    spawned
}
