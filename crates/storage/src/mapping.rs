//! A file mapped into memory. The spans over it decide which part may be accessed by whom.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::system;

/// A descriptor that is mapped completely, shared and writable, until it is dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
    /// Whether the file occupies blocks of a file system. A write to a page without a block ends the process if the file
    /// system is full.
    has_blocks: bool,
    /// Whether each page is on its own in memory, so that those that a socket holds keep their contents when they are
    /// punched.
    has_single_pages: bool,
}

// SAFETY: the mapping is plain memory; the spans that are handed out decide who may access which part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: OwnedFd, len: usize) -> io::Result<Self> {
        Ok(Self::over(system::map(fd.as_fd(), len)?, len, fd))
    }

    /// Maps `len` bytes of a file from offset `from` on, which begins a page.
    pub(crate) fn part(fd: OwnedFd, from: u64, len: usize) -> io::Result<Self> {
        Ok(Self::over(system::map_part(fd.as_fd(), from, len)?, len, fd))
    }

    fn over(base: NonNull<u8>, len: usize, fd: OwnedFd) -> Self {
        let has_blocks = system::has_blocks(fd.as_fd());
        let has_single_pages = system::has_single_pages(fd.as_fd(), base, len);
        Self { base, len, fd, has_blocks, has_single_pages }
    }

    /// Returns whether a socket may send pages of the file, because [`Self::punch`] leaves it those that it holds.
    /// Changes no page.
    pub(crate) fn can_send(&self) -> bool {
        self.has_single_pages && system::can_punch(self.fd())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the pages of a range to the system; the next access to the range finds new zero pages. Pages that a
    /// socket holds keep their contents if the file [can send](Self::can_send). The blocks of a file stay reserved.
    pub(crate) fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        system::punch(self.fd(), at, len)?;
        if self.has_blocks {
            // If another file gets the blocks first, a write to the pages may fail later.
            let _ = system::reserve(self.fd(), at, len);
        }
        Ok(())
    }

    /// Returns the address of a part. Panics if it is outside the mapping.
    #[inline]
    pub(crate) fn at(&self, at: u64, len: usize) -> NonNull<u8> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "span outside its arena");
        // SAFETY: checked above to lie within the mapping.
        unsafe { self.base.add(at) }
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({} bytes)", self.len)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and every span keeps its arena alive,
        // so no reference into it is left.
        unsafe { system::unmap(self.base, self.len) };
    }
}
