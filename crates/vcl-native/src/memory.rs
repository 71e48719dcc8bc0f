//! Executable memory: written once, then read and executed, never both writable and executable.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Machine code in its own mapping, released on drop.
pub struct Code {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: after it is made, the mapping is only read and executed.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Maps a copy of position-independent `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Code, String> {
        let fault = |e| format!("No memory for machine code: {e}");
        let size = bytes.len().max(1); // The kernel rounds up to pages.
        // SAFETY: a fresh private mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = NonNull::new(start.map_err(fault)?.cast::<u8>()).ok_or("No memory for machine code")?;
        let code = Code { start, size };
        // SAFETY: the mapping is writable, at least as large and nobody else's.
        unsafe { start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: the range is the mapping made above.
        unsafe { mprotect(start.as_ptr().cast(), size, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(fault)?;
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
