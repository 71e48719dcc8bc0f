//! A child process: one that this program has started, or one that the program before it in this process has started.

use std::io;
use std::process::{Child, ExitStatus};

use std::os::unix::process::ExitStatusExt;

use rustix::process::{Pid, WaitOptions, waitpid};

/// A child process.
#[derive(Debug)]
pub enum Process {
    Started(Child),
    /// Adopted after the program of this process was replaced. Its end is recorded, because it can be read once.
    Adopted {
        pid: Pid,
        end: Option<ExitStatus>,
    },
}

impl Process {
    /// Returns the child with this id.
    pub fn adopt(pid: u32) -> io::Result<Process> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        Ok(Process::Adopted { pid, end: None })
    }

    pub fn id(&self) -> u32 {
        match self {
            Process::Started(child) => child.id(),
            Process::Adopted { pid, .. } => pid.as_raw_nonzero().get().unsigned_abs(),
        }
    }

    /// Returns how it ended, or `None` if it has not.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Process::Started(child) => child.try_wait(),
            Process::Adopted { pid, end } => wait(*pid, end, WaitOptions::NOHANG),
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Process::Started(child) => child.wait(),
            Process::Adopted { pid, end } => loop {
                if let Some(status) = wait(*pid, end, WaitOptions::empty())? {
                    return Ok(status);
                }
            },
        }
    }
}

fn wait(pid: Pid, end: &mut Option<ExitStatus>, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
    if end.is_none() {
        let found = match waitpid(Some(pid), options) {
            Err(rustix::io::Errno::INTR) => None,
            other => other?,
        };
        *end = found.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
    }
    Ok(*end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_adopted_child_is_read() {
        let mut child = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let mut adopted = Process::adopt(child.id()).unwrap();
        assert_eq!(adopted.id(), child.id());
        assert_eq!(adopted.wait().unwrap().code(), Some(3));
        assert_eq!(adopted.try_wait().unwrap().and_then(|end| end.code()), Some(3));
        assert!(Process::adopt(0).is_err());
        child.wait().unwrap_err();
    }
}
