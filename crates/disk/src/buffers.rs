//! Memory for reads. It is used again, because fresh memory would have to be zeroed and mapped page by page.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::blocks::{Aligned, BLOCK, Blocks, span_around};

/// The length of a buffer. Longer reads have memory of their own.
const LENGTH: usize = (272 << 10) + BLOCK as usize;
/// The number of buffers that are kept.
const KEPT: usize = 32;

/// The buffers that no read uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Aligned>>);

/// The blocks that a read returned. The buffer is used again when this is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Aligned,
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
        let mut buffer = self.take(len);
        blocks.read(first, &mut buffer.memory.bytes_mut()[..len])?;
        Ok((buffer, (at - first) as usize))
    }

    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Buffer {
        let kept = if len <= LENGTH { self.0.lock().pop() } else { None };
        let memory = kept.unwrap_or_else(|| Aligned::new(len.max(LENGTH)));
        Buffer { memory, len, home: Arc::clone(self) }
    }
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.len]
    }

    /// Lends the memory to the kernel: returns it, the place of the blocks in it, and a function that takes it back.
    pub(crate) fn lend(mut self) -> (Vec<u8>, Range<usize>, impl FnOnce(Vec<u8>) -> Self + Send) {
        let (memory, place) = std::mem::take(&mut self.memory).into_parts();
        let (start, len) = (place.start, self.len);
        let take_back = move |memory| {
            self.memory = Aligned::from_parts(memory, place);
            self
        };
        (memory, start..start + len, take_back)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        if memory.bytes().len() == LENGTH {
            let mut kept = self.home.0.lock();
            if kept.len() < KEPT {
                kept.push(memory);
            }
        }
    }
}
