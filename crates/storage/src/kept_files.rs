//! The files of an arena that outlives its process, for tests and simulated worlds: a copy of them is what the next
//! process finds if this one is killed now.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::arena::{Arena, KeptFiles};
use crate::copy::copy_file;
use crate::system;

/// The files of an arena that nothing uses.
#[derive(Debug)]
pub struct UnusedFiles {
    pub(crate) arena: OwnedFd,
    pub(crate) records: OwnedFd,
}

impl UnusedFiles {
    /// Creates empty files.
    pub fn new() -> io::Result<Self> {
        Ok(Self { arena: system::memory_file()?, records: system::memory_file()? })
    }

    /// Creates an arena of `size` bytes over the files, which takes over their objects.
    pub fn open(self, size: u64) -> io::Result<Arc<Arena>> {
        let Self { arena, records } = self;
        let files = KeptFiles { arena, records, take_over: true, predecessor: None, pins: None };
        // SAFETY: the files are new or copies, and known only to this value, which does not lend their descriptors to
        // other crates.
        unsafe { Arena::kept(files, Some(size), size) }
    }
}

impl Arena {
    /// Copies the files as they are now.
    pub fn copy_files(&self) -> io::Result<UnusedFiles> {
        let copy = UnusedFiles::new()?;
        copy_file(self.mapping().fd(), copy.arena.as_fd())?;
        copy_file(self.records().fd(), copy.records.as_fd())?;
        Ok(copy)
    }
}
