//! The replacement for [`system`](crate::system) under Miri, which supports neither mappings nor files in memory: an
//! arena is on the heap.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::slabs::PAGE;

/// A larger arena would only make the tests slow.
const MOST: usize = 32 << 20;

pub(crate) fn memory_file() -> io::Result<OwnedFd> {
    Ok(std::fs::File::open("/dev/null")?.into())
}

pub(crate) fn extend(_fd: BorrowedFd<'_>, _bytes: u64) -> io::Result<()> {
    Ok(())
}

pub(crate) fn resize(_fd: BorrowedFd<'_>, _bytes: u64) -> io::Result<()> {
    Ok(())
}

pub(crate) fn resident(_fd: BorrowedFd<'_>) -> u64 {
    0
}

pub(crate) fn length(_fd: BorrowedFd<'_>) -> u64 {
    0
}

pub(crate) fn next_data(_fd: BorrowedFd<'_>, _from: u64) -> Option<u64> {
    None
}

pub(crate) fn map_part(fd: BorrowedFd<'_>, _from: u64, len: usize) -> io::Result<NonNull<u8>> {
    map(fd, len)
}

fn layout(len: usize) -> io::Result<Layout> {
    Layout::from_size_align(len.max(1), PAGE as usize).map_err(io::Error::other)
}

pub(crate) fn map(_fd: BorrowedFd<'_>, len: usize) -> io::Result<NonNull<u8>> {
    if len > MOST {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: the layout has a size.
    NonNull::new(unsafe { alloc_zeroed(layout(len)?) }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// # Safety
/// The same as for the real one.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    if let Ok(layout) = layout(len) {
        // SAFETY: `map` allocated it so.
        unsafe { dealloc(base.as_ptr(), layout) };
    }
}

pub(crate) fn punch(_fd: BorrowedFd<'_>, _at: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(crate) fn has_single_pages(_fd: BorrowedFd<'_>, _base: NonNull<u8>, _len: usize) -> bool {
    true
}

pub(crate) fn has_blocks(_fd: BorrowedFd<'_>) -> bool {
    false
}

pub(crate) fn reserve(_fd: BorrowedFd<'_>, _at: u64, _len: u64) -> io::Result<()> {
    Ok(())
}

pub(crate) fn can_punch(_fd: BorrowedFd<'_>) -> bool {
    true
}

pub(crate) fn send(
    _to: BorrowedFd<'_>,
    _file: BorrowedFd<'_>,
    _offset: &mut u64,
    _len: usize,
) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn read(_file: BorrowedFd<'_>, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn write(_file: BorrowedFd<'_>, _bytes: &[u8], _offset: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
