//! Spans of a shared mapping that are read while they are written. A span has one owner from allocation to free. Its
//! bytes below `filled` never change again, and only the one [`SpanWriter`] that was created with it can access those
//! above. The manager keeps the descriptor, but neither maps nor writes it.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Allocation, Arena, Full};
use crate::record::Place;
use crate::slabs::PAGE;
use crate::sync::AtomicU32;
use crate::system;

/// An owned extent of an arena. Dropping it frees the memory.
pub struct Span {
    arena: Arc<Arena>,
    at: u64,
    filled: AtomicU32,
    allocation: AtomicU32,
}

/// A part of the arena's file, for `sendfile`. The descriptor is private: writing to it would change bytes that
/// others read.
#[derive(Debug)]
pub struct FileRange<'a> {
    fd: BorrowedFd<'a>,
    offset: u64,
    len: usize,
}

impl FileRange<'_> {
    /// Returns the number of bytes left to send.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sends as much of the range to a socket as the socket accepts, and removes that from the range. Returns the
    /// number of bytes sent.
    pub fn send(&mut self, to: BorrowedFd<'_>) -> io::Result<usize> {
        let sent = system::send(to, self.fd, &mut self.offset, self.len)?;
        self.len = self.len.saturating_sub(sent);
        Ok(sent)
    }

    /// Reads bytes of the range from the file, and removes them from it. Returns their number.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(self.len);
        let read = system::read(self.fd, &mut buf[..most], self.offset)?;
        self.offset += read as u64;
        self.len -= read;
        Ok(read)
    }
}

impl Span {
    /// Creates a span that contains the parts one after the other and never changes.
    pub(crate) fn with_contents(arena: &Arc<Arena>, parts: &[&[u8]]) -> Result<Self, Full> {
        let len = parts.iter().map(|p| p.len()).sum();
        let mut writer = SpanWriter::new(arena, len)?;
        for part in parts {
            writer.append(part);
        }
        Ok(writer.into_span())
    }

    /// Takes over a span that an earlier process wrote. Returns `None` if it is not within the arena, or if another span
    /// uses its memory. Sockets may still hold its pages.
    pub(crate) fn kept(arena: &Arc<Arena>, place: Place, filled: u32) -> Option<Self> {
        let allocation = arena.claim(place, filled)?;
        let sent = if allocation.is_pages() { Allocation::SENT } else { 0 };
        Some(Self {
            arena: Arc::clone(arena),
            at: place.at,
            filled: AtomicU32::new(filled),
            allocation: AtomicU32::new(allocation.bits() | sent),
        })
    }

    /// Returns the location of a span that is completely written, or `None` if its size does not follow from its
    /// content.
    pub(crate) fn place(&self) -> Option<Place> {
        let allocation = self.allocation();
        let is_exact = self.len().max(1).next_multiple_of(PAGE as usize) == self.capacity();
        (!allocation.is_pages() || is_exact).then(|| Place { at: self.at, slot: allocation.slot_size() })
    }

    /// Records that the checksum of the body in this span is still to be compared.
    pub(crate) fn distrust(&self) {
        self.allocation.fetch_or(Allocation::UNVERIFIED, Ordering::Relaxed);
    }

    /// Returns whether the checksum of the body in this span is still to be compared.
    #[inline]
    pub(crate) fn is_unverified(&self) -> bool {
        self.allocation().is_unverified()
    }

    /// Records that the checksum of the body in this span is right.
    pub(crate) fn trust(&self) {
        self.allocation.fetch_and(!Allocation::UNVERIFIED, Ordering::Relaxed);
    }

    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        let len = self.filled.load(Ordering::Acquire) as usize;
        // SAFETY: the span owns [at, at + capacity) until dropped; bytes below `filled` were initialised
        // before the release store that published them, and they are never written again.
        unsafe { std::slice::from_raw_parts(self.arena.mapping().at(self.at, len).as_ptr(), len) }
    }

    pub fn len(&self) -> usize {
        self.filled.load(Ordering::Acquire) as usize
    }

    /// Returns the number of bytes of the arena that this span occupies.
    pub fn capacity(&self) -> usize {
        self.allocation().capacity() as usize
    }

    /// Returns whether the span has pages of its own. Other spans share pages with their neighbors.
    pub(crate) fn owns_pages(&self) -> bool {
        self.allocation().is_pages()
    }

    /// Returns the file range of a part, if it may be used with `sendfile`. From then on the pages are replaced by
    /// new ones before they are written again.
    pub fn file_range(&self, from: usize, len: usize) -> Option<FileRange<'_>> {
        assert!(
            from.checked_add(len).is_some_and(|end| end <= self.len()),
            "a range beyond the bytes written"
        );
        (self.owns_pages() && self.arena.can_send()).then(|| {
            self.mark_sent();
            FileRange { fd: self.arena.mapping().fd(), offset: self.at + from as u64, len }
        })
    }

    /// Records that a socket may hold these pages.
    pub(crate) fn mark_sent(&self) {
        if !self.allocation().is_sent() {
            self.allocation.fetch_or(Allocation::SENT, Ordering::Relaxed);
        }
    }

    /// Frees the whole pages after the bytes written. The caller is the span's writer, so the freed part contains
    /// nothing.
    fn trim(&self) {
        let old = self.allocation();
        let new = self.arena.trim(self.at, old, self.filled.load(Ordering::Relaxed));
        self.allocation.fetch_sub(old.capacity() - new.capacity(), Ordering::Relaxed);
    }

    fn allocation(&self) -> Allocation {
        Allocation::from_bits(self.allocation.load(Ordering::Relaxed))
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.arena.free(self.at, self.allocation());
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:#x}, {} of {})", self.at, self.len(), self.capacity())
    }
}

/// The right to append to a span. Each span has one writer, which is created with it.
#[derive(Debug)]
pub(crate) struct SpanWriter {
    span: Arc<Span>,
}

impl SpanWriter {
    /// Allocates an empty span of at least `capacity` bytes. During a handover, it may be in the overflow of the arena.
    pub(crate) fn new(arena: &Arc<Arena>, capacity: usize) -> Result<Self, Full> {
        match arena.alloc(capacity) {
            Ok(found) => Ok(Self::at(arena, found)),
            Err(full) => {
                let overflow = arena.overflow().ok_or(full)?;
                Ok(Self::at(overflow, overflow.alloc(capacity)?))
            }
        }
    }

    /// Like [`SpanWriter::new`], for a part of a body on a device.
    pub(crate) fn for_part(arena: &Arc<Arena>, capacity: usize) -> Result<Self, Full> {
        Ok(Self::at(arena, arena.alloc_part(capacity)?))
    }

    fn at(arena: &Arc<Arena>, (at, allocation): (u64, Allocation)) -> Self {
        let allocation = AtomicU32::new(allocation.bits());
        let span = Arc::new(Span { arena: Arc::clone(arena), at, filled: AtomicU32::new(0), allocation });
        Self { span }
    }

    pub(crate) fn span(&self) -> &Arc<Span> {
        &self.span
    }

    pub(crate) fn free_len(&self) -> usize {
        self.span.capacity() - self.span.len()
    }

    /// Returns the part that is not written yet. Its bytes have no meaning before they are written.
    pub(crate) fn window(&mut self) -> &mut [u8] {
        let filled = self.span.len();
        let free = self.span.capacity() - filled;
        let ptr = self.span.arena.mapping().at(self.span.at + filled as u64, free).as_ptr();
        // SAFETY: [at + filled, at + capacity) belongs to this span; readers stay below `filled`; there
        // is one writer per span and this borrows it mutably; `commit` and `trim` need it mutably too.
        unsafe { std::slice::from_raw_parts_mut(ptr, free) }
    }

    /// Makes the first `n` bytes of the window visible to readers.
    pub(crate) fn commit(&mut self, n: usize) {
        assert!(n <= self.free_len(), "commit beyond the window");
        self.span.filled.fetch_add(n as u32, Ordering::Release);
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.window()[..bytes.len()].copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    pub(crate) fn trim(&mut self) {
        self.span.trim();
    }

    /// Ends the writing and returns the span, to which no other reference may exist.
    pub(crate) fn into_span(self) -> Span {
        Arc::into_inner(self.span).expect("there is no other reference to the span")
    }
}
