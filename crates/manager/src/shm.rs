//! The manager's shared memory: its counters, and the arguments with which `varnishadm` finds
//! the CLI.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lacquer_shm::vsc::CounterSet;
use lacquer_shm::vsm::{self, Block, CHILD_DIRNAME, MGT_DIR_MODE, MGT_DIRNAME, Owner};
use lacquer_shm::{Mgt, Segment, VsmDir};

use crate::complain::Complain;
use crate::fault::{Fault, Outcome};
use crate::jail::Jail;
use crate::{old_dirs, workdir};

/// The directory of a worker that is to replace another one, and that of the replaced one.
const NEXT_DIRNAME: &str = "_.vsm_next";
const LAST_DIRNAME: &str = "_.vsm_last";

/// The manager's shared memory.
#[derive(Debug)]
pub struct Shm {
    dir: VsmDir,
    /// Counters of worker starts and ends.
    pub counters: Segment<Mgt>,
    arguments: Vec<Argument>,
    /// The process id of the running worker. This index line tells readers that the worker has changed.
    worker: Option<Block>,
}

/// An argument that readers can look up.
#[derive(Debug)]
struct Argument {
    name: String,
    text: String,
    _block: Block,
}

/// Returns the seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn fault(error: impl std::fmt::Display) -> Fault {
    Fault::plain(error.to_string())
}

impl Shm {
    /// Creates an empty directory in the working directory, which is the current one.
    pub fn create(jail: &Jail) -> Outcome<Shm> {
        let owner = Owner { pid: std::process::id(), birth: now() as u64 };
        let path = Path::new(MGT_DIRNAME);
        let fd = {
            let _root = jail.raise();
            vsm::make_dir(path, MGT_DIR_MODE).map_err(fault)?
        };
        jail.give_to_manager(&fd).map_err(fault)?;
        let dir = VsmDir::adopt(fd, owner).map_err(fault)?;
        let counters = Segment::create(&dir, "").map_err(fault)?;
        Ok(Shm { dir, counters, arguments: Vec::new(), worker: None })
    }

    /// Publishes an argument (`-T`, `-S`, `-i`) in the shared memory.
    pub fn publish(&mut self, name: &str, text: &str) -> Outcome<()> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        let block = self.dir.publish("Arg", name, &bytes).map_err(fault)?;
        self.arguments.push(Argument { name: name.to_owned(), text: text.to_owned(), _block: block });
        Ok(())
    }

    /// Recreates the directory with the same contents after it was removed. The worker's line is not in it yet.
    pub fn renew(&mut self, jail: &Jail) -> Outcome<()> {
        let mut anew = Shm::create(jail)?;
        for (counter, before) in anew.counters.counters().iter().zip(self.counters.counters()) {
            counter.set(before.get());
        }
        for argument in &self.arguments {
            anew.publish(&argument.name, &argument.text)?;
        }
        *self = anew;
        Ok(())
    }

    /// Returns the counters, in their order.
    pub fn counts(&self) -> Vec<u64> {
        self.counters.counters().iter().map(lacquer_shm::Counter::get).collect()
    }

    /// Continues with counters of another process.
    pub fn set_counts(&self, counts: &[u64]) {
        for (counter, count) in self.counters.counters().iter().zip(counts) {
            counter.set(*count);
        }
    }

    /// Publishes the process id of the worker, or removes it.
    pub fn show_worker(&mut self, pid: Option<u32>) {
        self.worker = None;
        if let Some(pid) = pid {
            self.worker = self.dir.publish("Worker", "", format!("{pid}\0").as_bytes()).ok();
        }
    }

    /// Creates an empty directory for a new worker, which has a log of `log` bytes. While another one uses the directory
    /// (`beside`), it has another name until [`show_next`](Self::show_next).
    pub fn worker_dir(beside: bool, log: u64, jail: &Jail, complain: &Complain) -> io::Result<OwnedFd> {
        let name = if beside { NEXT_DIRNAME } else { CHILD_DIRNAME };
        let fd = {
            let _root = jail.raise();
            old_dirs::retire(Path::new(name), !workdir::has_room(log));
            vsm::make_dir(Path::new(name), vsm::CHILD_DIR_MODE).map_err(io::Error::other)?
        };
        jail.give_to_worker(&fd, complain);
        Ok(fd)
    }

    /// Replaces the directory of the previous worker by that of the next one. Readers then find the new log.
    pub fn show_next(jail: &Jail) -> io::Result<()> {
        let _root = jail.raise();
        let _ = vsm::remove_dir(Path::new(LAST_DIRNAME));
        match std::fs::rename(CHILD_DIRNAME, LAST_DIRNAME) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::rename(NEXT_DIRNAME, CHILD_DIRNAME)?;
        let _ = vsm::remove_dir(Path::new(LAST_DIRNAME));
        Ok(())
    }

    /// Removes the directory of a worker that was to be the next one.
    pub fn remove_next(jail: &Jail) {
        let _root = jail.raise();
        let _ = vsm::remove_dir(Path::new(NEXT_DIRNAME));
    }

    /// Removes the directory of a worker that has ended. The next one has a log of `log` bytes.
    pub fn remove_worker_dir(log: u64, jail: &Jail) {
        let _root = jail.raise();
        old_dirs::retire(Path::new(CHILD_DIRNAME), !workdir::has_room(log));
    }

    /// Removes both directories, at the end of the daemon.
    pub fn remove(self, jail: &Jail) {
        let Shm { dir, counters, arguments, worker } = self;
        drop((counters, arguments, worker, dir));
        let _root = jail.raise();
        let _ = vsm::remove_dir(Path::new(MGT_DIRNAME));
        let _ = vsm::remove_dir(Path::new(CHILD_DIRNAME));
        old_dirs::remove_all();
    }
}
