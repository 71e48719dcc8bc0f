//! Memory for reads. It is used again, because fresh memory would have to be zeroed and mapped page by page.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use lacquer_rings::{ALIGNMENT, Block};
use parking_lot::Mutex;

use crate::blocks::{BLOCK, Blocks, span_around};

/// The length of a buffer. Longer reads have memory of their own.
const LENGTH: usize = (272 << 10) + BLOCK as usize;
/// The number of buffers that are allocated together, in two huge pages.
const TOGETHER: usize = 14;
/// The number of buffers that are kept.
const KEPT: usize = 8 * TOGETHER;

/// The buffers that no read uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Block>>);

/// The blocks that a read returned. The buffer is used again when this is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Absent while it is lent.
    memory: Option<Block>,
    len: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Reads `len` bytes from any position. Returns the blocks that contain them, and the index of the first byte.
    pub(crate) fn read(
        self: &Arc<Self>,
        blocks: &dyn Blocks,
        at: u64,
        len: u64,
    ) -> io::Result<(Buffer, usize)> {
        let (first, len) = span_around(blocks, at, len)?;
        let mut buffer = self.take(len)?;
        if let Some(memory) = &mut buffer.memory {
            blocks.read(first, &mut memory[..len])?;
        }
        Ok((buffer, (at - first) as usize))
    }

    pub(crate) fn take(self: &Arc<Self>, len: usize) -> io::Result<Buffer> {
        let memory = if len > LENGTH { Block::several(1, len)?.pop() } else { Some(self.take_kept()?) };
        Ok(Buffer { memory, len, home: Arc::clone(self) })
    }

    fn take_kept(&self) -> io::Result<Block> {
        if let Some(memory) = self.0.lock().pop() {
            return Ok(memory);
        }
        let mut fresh = Block::several(TOGETHER, LENGTH)?;
        let memory = fresh.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        self.0.lock().append(&mut fresh);
        Ok(memory)
    }
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[..self.len])
    }

    /// Lends the memory to the kernel: returns it, the place of the blocks in it, and a function that takes it back.
    pub(crate) fn lend(mut self) -> Option<(Block, Range<usize>, impl FnOnce(Block) -> Self + Send)> {
        let (memory, len) = (self.memory.take()?, self.len);
        let take_back = move |memory| {
            self.memory = Some(memory);
            self
        };
        Some((memory, 0..len, take_back))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take().filter(|memory| memory.len() == LENGTH) {
            let mut kept = self.home.0.lock();
            if kept.len() < KEPT {
                kept.push(memory);
            }
        }
    }
}

const _: () = assert!(ALIGNMENT == BLOCK as usize && LENGTH.is_multiple_of(ALIGNMENT));
