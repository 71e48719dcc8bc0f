//! Executable memory: a sealed memory file that is mapped only for reading and execution. The code cannot be
//! written at any address, and the worker's jail need not allow memory to become executable.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Machine code in its own mapping, released when dropped.
pub struct Code {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is only read and executed.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

/// Returns a file with these bytes that can no longer be changed.
fn sealed_file(bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // The flag marks the file as not a program; kernels before 6.3 do not support it.
    let file = match memfd_create("vcl", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create("vcl", flags)?,
        other => other?,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(&file, rest))?;
        rest = &rest[written..];
    }
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

impl Code {
    /// Maps a copy of position-independent `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Code, String> {
        let fault = |e| format!("No memory for machine code: {e}");
        // An empty file cannot be mapped.
        let file = sealed_file(if bytes.is_empty() { &[0] } else { bytes }).map_err(fault)?;
        let size = bytes.len().max(1); // The kernel rounds up to pages.
        let protection = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that does not change.
        let start = unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::PRIVATE, &file, 0) }
            .map_err(fault)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or("No memory for machine code")?;
        let code = Code { start, size };
        synchronise(code.address(), size);
        Ok(code)
    }

    pub fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; its code is not run after the owner is dropped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Makes new code visible to instruction fetch. On x86-64, caches are coherent.
#[cfg(not(target_arch = "aarch64"))]
fn synchronise(_start: usize, _size: usize) {}

#[cfg(target_arch = "aarch64")]
fn synchronise(start: usize, size: usize) {
    /// The smallest cache line that the architecture allows, in bytes.
    const LINE: usize = 16;
    // SAFETY: cache maintenance by address over a live mapping changes no data.
    unsafe {
        for at in (start..start + size).step_by(LINE) {
            std::arch::asm!("dc cvau, {0}", in(reg) at);
        }
        std::arch::asm!("dsb ish");
        for at in (start..start + size).step_by(LINE) {
            std::arch::asm!("ic ivau, {0}", in(reg) at);
        }
        std::arch::asm!("dsb ish", "isb");
    }
}
