//! The files of an arena that outlives its process, for tests and simulated worlds: a copy of them is what the next
//! process finds if this one is killed now.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::arena::{Arena, KeptFiles};
use crate::system;

/// The bytes that are copied at a time.
const AT_ONCE: usize = 64 << 10;

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
        let files = KeptFiles { arena: self.arena, records: self.records, take_over: true };
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

fn copy_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    let length = system::length(from);
    system::resize(to, length)?;
    let mut buffer = vec![0; AT_ONCE];
    let mut at = 0;
    while let Some(data) = system::next_data(from, at) {
        let read = system::read(from, &mut buffer, data)?;
        if read == 0 {
            break;
        }
        system::write(to, &buffer[..read], data)?;
        at = data + read as u64;
    }
    Ok(())
}
