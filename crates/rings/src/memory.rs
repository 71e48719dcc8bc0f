//! Memory that the kernel fills. It lies in huge pages if the system has them: a read then refers to one or two of them
//! instead of a page for every 4 kB, which makes it cheaper for the kernel and the device.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The alignment of each block, in bytes.
pub const ALIGNMENT: usize = 4096;
/// The size of a huge page.
const HUGE: usize = 2 << 20;

/// A mapping of zeros that is cut into blocks.
struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory; each part of it belongs to one block.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `len` bytes, in huge pages if there is a whole one.
    fn new(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(ALIGNMENT);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing in this process.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap returned address zero"))?;
        let region = Self { base, len };
        if len >= HUGE {
            // SAFETY: the range is the new mapping. The advice does not change its contents.
            let _ = unsafe { madvise(region.base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(region)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this length, and every block keeps its region alive.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A part of memory that belongs to its owner alone. Its address does not change.
pub struct Block {
    region: Arc<Region>,
    from: usize,
    len: usize,
}

impl Block {
    /// Allocates `count` blocks of `len` bytes, which is rounded up to the alignment. They are zeroed.
    pub fn several(count: usize, len: usize) -> io::Result<Vec<Self>> {
        let len = len.next_multiple_of(ALIGNMENT);
        let total = count.checked_mul(len).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Arc::new(Region::new(total.max(ALIGNMENT))?);
        Ok((0..count).map(|number| Self { region: Arc::clone(&region), from: number * len, len }).collect())
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is within the region, whose bytes are initialized, and belongs to this block alone.
        unsafe { slice::from_raw_parts(self.region.base.as_ptr().add(self.from), self.len) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.region.base.as_ptr().add(self.from), self.len) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len)
    }
}
