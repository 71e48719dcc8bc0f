//! The system calls of an arena.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

pub(crate) use lacquer_system::reserve;
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The numbers of the file systems whose files are in memory.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// Creates a file in memory.
pub(crate) fn memory_file() -> io::Result<OwnedFd> {
    Ok(rustix::fs::memfd_create("lacquer-arena", MemfdFlags::CLOEXEC)?)
}

/// Extends a file to at least `bytes` bytes.
pub(crate) fn extend(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    if rustix::fs::fstat(fd)?.st_size < bytes as i64 {
        rustix::fs::ftruncate(fd, bytes)?;
    }
    Ok(())
}

/// Sets the length of a file.
pub(crate) fn resize(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::ftruncate(fd, bytes)?)
}

/// Returns the number of bytes of a file that are resident, or 0 if that is unknown.
pub(crate) fn resident(fd: BorrowedFd<'_>) -> u64 {
    let blocks = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_blocks);
    u64::try_from(blocks).unwrap_or(0) * 512
}

/// Returns the length of a file, or 0 if that is unknown.
pub(crate) fn length(fd: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
}

/// Returns the offset of the first byte at or after `from` that was written to a file; `None` if there is none.
pub(crate) fn next_data(fd: BorrowedFd<'_>, from: u64) -> Option<u64> {
    rustix::fs::seek(fd, SeekFrom::Data(from)).ok()
}

/// Maps the first `len` bytes of a file, shared and writable.
pub(crate) fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<NonNull<u8>> {
    map_part(fd, 0, len)
}

/// Maps `len` bytes of a file from offset `from` on, shared and writable.
pub(crate) fn map_part(fd: BorrowedFd<'_>, from: u64, len: usize) -> io::Result<NonNull<u8>> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
    let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, from)? };
    // A core dump is for the state of the program; the cache would only make it too large to keep.
    // SAFETY: the range is the mapping just made; the advice does not change its contents.
    let _ = unsafe { rustix::mm::madvise(at, len, Advice::LinuxDontDump) };
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapping at address zero"))
}

/// Removes a mapping.
///
/// # Safety
/// [`map`] must have returned `base` for `len`, and no reference into the mapping may be left.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: the caller promises it.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
}

/// Returns whether a file is in the file system of the kernel in which all files of `memfd_create` are.
fn is_anonymous(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstat(fd)?.st_dev == rustix::fs::fstat(memory_file()?)?.st_dev)
}

/// Returns whether each page of a file is on its own in memory, and remains so. The mapping that [`map`] returned must be
/// the only way by which pages get into the file.
///
/// A part of a larger unit of memory that a socket holds is not removed when it is punched, but filled with zeros, and
/// later with the next contents, which the socket then sends. Files on disks and on other file systems in memory may have
/// such units at any time.
pub(crate) fn has_single_pages(fd: BorrowedFd<'_>, base: NonNull<u8>, len: usize) -> bool {
    // SAFETY: the range is a mapping; the advice does not change its contents.
    let advised = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
    // A kernel without large pages does not know the advice.
    matches!(advised, Ok(()) | Err(Errno::INVAL)) && is_anonymous(fd).unwrap_or(false)
}

/// Returns the pages of a range to the system; the next access to the range finds new zero pages. If pages are
/// [single](has_single_pages), those that a socket still holds keep their contents.
pub(crate) fn punch(fd: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(fd, flags, at, len)?)
}

/// Returns whether a file is on a file system with blocks, which may be used up. Other files are in memory.
pub(crate) fn has_blocks(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| ![TMPFS, HUGETLBFS].contains(&(found.f_type as u64)))
}

/// Returns whether pages of a file can be returned to the system. Tries it beyond the end of the file.
pub(crate) fn can_punch(fd: BorrowedFd<'_>) -> bool {
    punch(fd, length(fd).next_multiple_of(4096), 4096).is_ok()
}

/// Sends up to `len` bytes of a file from `offset` on, and advances `offset`.
pub(crate) fn send(
    to: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    len: usize,
) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(to, file, Some(offset), len)?)
}

/// Reads bytes of a file from `offset` on.
pub(crate) fn read(file: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pread(file, buf, offset)?)
}

/// Writes bytes to a file at `offset`.
pub(crate) fn write(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(file, bytes, offset)?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}
