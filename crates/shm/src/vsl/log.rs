//! The parts of the log that all threads share: ring, mask and limits.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::mask::SharedMask;
use super::ring::Ring;
use super::{Mask, Numbering, RECORD_HEAD, Tag, Vxid};
use crate::vsc::{Main, Segment};
use crate::vsm::{VsmDir, VsmError};

/// Maximum length of a record's text in bytes.
const MAX_RECLEN: usize = 0xffff;
const MIN_RECLEN: usize = 16;

/// The sizes of the log, which are parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `vsl_buffer`: the bytes that a transaction buffers before it must write.
    pub buffer: usize,
    /// `vsl_reclen`: maximum bytes of text in one record, including its NUL; the rest is cut off.
    pub reclen: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { buffer: 16 << 10, reclen: 255 }
    }
}

/// The log, shared by all threads. A new mask takes effect at once, new sizes with the next transaction.
#[derive(Debug)]
pub struct Log {
    ring: Ring,
    mask: SharedMask,
    buffer: AtomicUsize,
    reclen: AtomicUsize,
    unbuffered: AtomicBool,
}

impl Log {
    /// Creates the ring of `space` bytes (`vsl_space`) in the worker's directory. `counters` count
    /// every write.
    pub fn create(
        dir: &VsmDir,
        space: usize,
        numbering: Numbering,
        counters: Arc<Segment<Main>>,
    ) -> Result<Arc<Self>, VsmError> {
        Ok(Self::over(Ring::create(dir, space, numbering, counters)?))
    }

    /// Creates a log that nobody reads, for tests.
    pub fn detached() -> io::Result<Arc<Self>> {
        let counters = Arc::new(Segment::detached()?);
        Ok(Self::over(Ring::detached(0, counters)?))
    }

    fn over(ring: Ring) -> Arc<Self> {
        let log = Self {
            ring,
            mask: SharedMask::new(Mask::default()),
            buffer: AtomicUsize::new(0),
            reclen: AtomicUsize::new(0),
            unbuffered: AtomicBool::new(false),
        };
        log.set_limits(Limits::default());
        Arc::new(log)
    }

    /// Returns whether records of this tag are dropped, for callers whose records are expensive to build.
    #[inline]
    pub fn is_masked(&self, tag: Tag) -> bool {
        self.mask.is_masked(tag)
    }

    pub fn mask(&self) -> Mask {
        self.mask.load()
    }

    pub fn set_mask(&self, mask: &Mask) {
        self.mask.store(mask);
    }

    /// Sets the limits, clamped so that a record always fits the buffer.
    pub fn set_limits(&self, limits: Limits) {
        let reclen = limits.reclen.clamp(MIN_RECLEN, MAX_RECLEN);
        self.reclen.store(reclen, Relaxed);
        self.buffer.store(limits.buffer.max(RECORD_HEAD + reclen.next_multiple_of(4)), Relaxed);
    }

    pub fn limits(&self) -> Limits {
        Limits { buffer: self.buffer.load(Relaxed), reclen: self.reclen.load(Relaxed) }
    }

    /// Sets whether each record is written at once instead of with its transaction (the debug bit `syncvsl`).
    pub fn set_unbuffered(&self, on: bool) {
        self.unbuffered.store(on, Relaxed);
    }

    pub(super) fn is_unbuffered(&self) -> bool {
        self.unbuffered.load(Relaxed)
    }

    /// Writes one record outside of any transaction. It is meant for rare events, because it takes the lock each time.
    pub fn write(&self, tag: Tag, vxid: Vxid, text: &[u8]) {
        if self.is_masked(tag) {
            return;
        }
        let len = text.len().min(self.reclen.load(Relaxed) - 1);
        self.ring.write_record(tag, vxid, &text[..len]);
    }

    /// Writes a record for a tag whose records are bytes without a final NUL.
    pub fn write_binary(&self, tag: Tag, vxid: Vxid, bytes: &[u8]) {
        if self.is_masked(tag) {
            return;
        }
        let len = bytes.len().min(self.reclen.load(Relaxed) - 1);
        self.ring.write_binary(tag, vxid, &bytes[..len]);
    }

    /// Writes a record of formatted text.
    pub fn write_fmt(&self, tag: Tag, vxid: Vxid, text: fmt::Arguments<'_>) {
        if self.is_masked(tag) {
            return;
        }
        self.write(tag, vxid, text.to_string().as_bytes());
    }

    /// Releases memory of written records, at most `most` bytes; readers have the file. Called regularly, it keeps the
    /// log from counting as this process's memory. Returns the number of released bytes.
    pub fn release(&self, most: usize) -> usize {
        self.ring.release(most)
    }

    pub(super) fn ring(&self) -> &Ring {
        &self.ring
    }
}
