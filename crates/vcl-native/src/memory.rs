//! Executable memory: a sealed memory file that is only ever mapped to be read and executed. There is no address
//! at which the code could be written, and the worker's jail need not allow memory to become executable.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Machine code in its own mapping, released on drop.
pub struct Code {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is only read and executed.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

/// Returns a file with these bytes that nobody can change any more.
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
        // A file of no bytes cannot be mapped.
        let file = sealed_file(if bytes.is_empty() { &[0] } else { bytes }).map_err(fault)?;
        let size = bytes.len().max(1); // The kernel rounds up to pages.
        let protection = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that does not change.
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
        // SAFETY: the mapping is this value's own; code in it is not run after its owner went.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Makes fresh code visible to instruction fetch. On x86-64 caches are coherent.
#[cfg(not(target_arch = "aarch64"))]
fn synchronise(_start: usize, _size: usize) {}

#[cfg(target_arch = "aarch64")]
fn synchronise(start: usize, size: usize) {
    /// The smallest line that the architecture allows.
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
