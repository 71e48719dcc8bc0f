//! The interface to a device of blocks, and memory that is aligned for direct I/O.

use std::io;

/// The unit of reads and writes, in bytes. Positions and lengths are multiples of it.
pub const BLOCK: u64 = 4096;

/// A device of blocks. Any number of threads may use it at the same time.
pub trait Blocks: Send + Sync {
    /// Returns the size of the device in bytes.
    fn size(&self) -> u64;

    /// Reads blocks from `at` on. `buffer` is aligned.
    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes blocks from `at` on. They may be lost until [`sync`](Self::sync) returns. `bytes` is aligned.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all completed writes durable.
    fn sync(&self) -> io::Result<()>;
}

/// Zeroed memory of whole blocks, aligned to a block.
#[derive(Debug)]
pub struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Aligned {
    /// Allocates at least `len` bytes, rounded up to whole blocks.
    pub fn new(len: usize) -> Self {
        let len = len.next_multiple_of(BLOCK as usize);
        let bytes = vec![0; len + BLOCK as usize];
        let from = bytes.as_ptr().align_offset(BLOCK as usize).min(BLOCK as usize);
        Self { bytes, from, len }
    }

    /// Allocates memory and copies `bytes` to its beginning.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut aligned = Self::new(bytes.len());
        aligned.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        aligned
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.len]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

/// Reads `len` bytes from any position. Returns the blocks that contain them, and the index of the first byte.
pub fn read_around(blocks: &dyn Blocks, at: u64, len: u64) -> io::Result<(Aligned, usize)> {
    let (first, len) = span_around(blocks, at, len)?;
    let mut buffer = Aligned::new(len);
    blocks.read(first, buffer.bytes_mut())?;
    Ok((buffer, (at - first) as usize))
}

/// A part of a device that is read from its beginning, as far as it is needed.
pub(crate) struct Gradual<'a> {
    blocks: &'a dyn Blocks,
    at: u64,
    buffer: Aligned,
    /// The end of the bytes that were read.
    len: usize,
}

impl<'a> Gradual<'a> {
    /// The number of bytes that are read at a time.
    const STEP: usize = 1 << 20;

    /// Prepares to read `len` bytes, whole blocks, from `at` on.
    pub(crate) fn new(blocks: &'a dyn Blocks, at: u64, len: u64) -> Self {
        Self { blocks, at, buffer: Aligned::new(len as usize), len: 0 }
    }

    /// Begins with the block that contains an offset: the bytes before it are not read, and are zeros.
    pub(crate) fn behind(mut self, offset: u64) -> Self {
        self.len = (offset / BLOCK * BLOCK) as usize;
        self
    }

    /// Returns `len` bytes from an offset on, or `None` if the part is shorter.
    pub(crate) fn bytes(&mut self, from: u64, len: u64) -> io::Result<Option<&[u8]>> {
        let whole = self.buffer.bytes().len();
        let end = from.checked_add(len).and_then(|end| usize::try_from(end).ok());
        let Some(end) = end.filter(|&end| end <= whole) else { return Ok(None) };
        if end > self.len {
            let next = end.next_multiple_of(Self::STEP).min(whole);
            self.blocks.read(self.at + self.len as u64, &mut self.buffer.bytes_mut()[self.len..next])?;
            self.len = next;
        }
        Ok(Some(&self.buffer.bytes()[from as usize..end]))
    }
}

/// Returns the position and the length of the blocks that contain `len` bytes from a position on.
pub(crate) fn span_around(blocks: &dyn Blocks, at: u64, len: u64) -> io::Result<(u64, usize)> {
    let first = at / BLOCK * BLOCK;
    let end = (at + len).next_multiple_of(BLOCK);
    if end > blocks.size() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the device is shorter than its contents"));
    }
    Ok((first, (end - first) as usize))
}

/// Reads integers from the beginning of bytes. After a failure, all reads return zero.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    pub(crate) is_short: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, is_short: false }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.rest.split_first_chunk::<N>() else {
            self.is_short = true;
            return [0; N];
        };
        self.rest = rest;
        *first
    }

    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let Some((first, rest)) = self.rest.split_at_checked(len) else {
            self.is_short = true;
            return &[];
        };
        self.rest = rest;
        first
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}
