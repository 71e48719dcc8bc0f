//! A file mapped into memory. Which part of it may be touched, and by whom, is decided by the spans over it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::system;

/// A descriptor mapped shared and writable, whole, until dropped.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is plain memory; who may touch which part is decided by the spans handed out.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(fd: OwnedFd, len: usize) -> io::Result<Self> {
        Ok(Self { base: system::map(fd.as_fd(), len)?, len, fd })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Gives the pages of a range back to the system. Pages that a socket still holds keep their contents;
    /// the next touch of the range finds fresh zero pages.
    pub(crate) fn punch(&self, at: u64, len: u64) -> io::Result<()> {
        system::punch(self.fd(), at, len)
    }

    /// Returns the address at which a part begins.
    #[inline]
    pub(crate) fn at(&self, at: u64, len: usize) -> NonNull<u8> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "span outside its arena");
        // SAFETY: checked above to lie within the mapping.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and every span keeps its arena alive,
        // so no reference into it is left.
        unsafe { system::unmap(self.base, self.len) };
    }
}
