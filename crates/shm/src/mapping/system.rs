//! A mapping of a file, and counters in it.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::{CounterSet, PAGE};

/// A shared mapping of a whole file, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory owned by this value; concurrent access follows the module's rule.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `file` for reading and writing.
    pub(crate) fn shared(file: impl AsFd, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing in this process.
        let base = unsafe {
            mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        Self::from_raw(base.cast(), len)
    }

    /// Maps anonymous memory, for tests and tools without a working directory.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        // SAFETY: as in `shared`.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)?
        };
        Self::from_raw(base.cast(), len)
    }

    fn from_raw(base: *mut u8, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or_else(|| io::Error::other("mmap returned address zero"))?;
        Ok(Self { base, len })
    }

    fn at(&self, offset: usize, len: usize, align: usize) -> NonNull<u8> {
        let end = offset.checked_add(len).expect("offset within the address space");
        assert!(
            end <= self.len && offset.is_multiple_of(align),
            "{offset}+{len} outside mapping of {}",
            self.len
        );
        // SAFETY: `offset` is within the mapping, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Returns the word at a byte offset.
    #[inline]
    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in bounds and aligned; the memory lives as long as `self` and is accessed atomically.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).cast().as_ptr()) }
    }

    /// Returns the double word at a byte offset.
    #[inline]
    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds and aligned; the memory lives as long as `self` and is accessed atomically.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).cast().as_ptr()) }
    }

    /// Copies bytes into a range that belongs to the calling thread (see the module's rule).
    #[inline]
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len(), 1);
        // SAFETY: in bounds; `bytes` is ordinary memory of this process and cannot overlap the mapping,
        // because no slice of the mapping is ever created.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// Releases the whole pages within a range. They are removed from this process's memory but not from the file, and
    /// are mapped again at the next access.
    pub(crate) fn release(&self, offset: usize, len: usize) {
        let from = offset.next_multiple_of(PAGE);
        let to = (offset + len) / PAGE * PAGE;
        if from < to {
            let at = self.at(from, to - from, 1);
            // SAFETY: in bounds, and whole pages because mappings begin at a page. The mapping is shared, so the
            // advice changes no contents: an access to the range, meanwhile or later, finds the same bytes.
            let _ = unsafe { madvise(at.as_ptr().cast(), to - from, Advice::LinuxDontNeed) };
        }
    }

    /// Returns a copy of a range.
    #[cfg(test)]
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let from = self.at(offset, len, 1);
        let mut bytes = vec![0; len];
        // SAFETY: in bounds on both sides, distinct memory.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(bytes.as_mut_slice()).cast(), len) }
        bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and len are those of the mapping, and no borrows of it exist.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A counter set in a mapping, which it keeps alive.
#[derive(Debug)]
pub(crate) struct View<T> {
    at: NonNull<T>,
    _mapping: Arc<Mapping>,
}

// SAFETY: a `CounterSet` is Sync, and the view keeps the mapping alive.
unsafe impl<T: CounterSet> Send for View<T> {}
// SAFETY: as above.
unsafe impl<T: CounterSet> Sync for View<T> {}

impl<T: CounterSet> View<T> {
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: usize) -> Self {
        let at = mapping.at(offset, size_of::<T>(), align_of::<T>()).cast();
        Self { at, _mapping: mapping.clone() }
    }
}

impl<T: CounterSet> Deref for View<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` checked bounds and alignment; any bit pattern is a valid set of atomic counters.
        unsafe { self.at.as_ref() }
    }
}
