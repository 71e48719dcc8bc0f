//! Spans of a shared mapping that are read while they are written. A span belongs to one owner from allocation to
//! free; its bytes below `filled` never change again, and only the one [`SpanWriter`] made with it can touch those
//! above. The manager keeps the descriptor, but neither maps nor writes it.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arena::{Arena, Full, Place};
use crate::sync::AtomicU32;
use crate::system;

/// An extent of an arena, owned: dropping it frees the memory.
pub struct Span {
    arena: Arc<Arena>,
    at: u64,
    filled: AtomicU32,
    place: AtomicU32,
}

/// A part of the arena's file, for `sendfile`. The descriptor stays inside: writing to it would change bytes that
/// others read.
#[derive(Debug)]
pub struct FileRange<'a> {
    fd: BorrowedFd<'a>,
    offset: u64,
    len: usize,
}

impl FileRange<'_> {
    /// Bytes left to send.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sends as much of it to a socket as that takes, and begins behind that from then on.
    pub fn send(&mut self, to: BorrowedFd<'_>) -> io::Result<usize> {
        let sent = system::send(to, self.fd, &mut self.offset, self.len)?;
        self.len = self.len.saturating_sub(sent);
        Ok(sent)
    }
}

impl Span {
    /// A span that holds the parts one after the other and never changes.
    pub(crate) fn with_contents(arena: &Arc<Arena>, parts: &[&[u8]]) -> Result<Self, Full> {
        let len = parts.iter().map(|p| p.len()).sum();
        let mut writer = SpanWriter::new(arena, len)?;
        for part in parts {
            writer.append(part);
        }
        Ok(writer.into_span())
    }

    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        let len = self.filled.load(Ordering::Acquire) as usize;
        // SAFETY: the span owns [at, at + capacity) until dropped; bytes below `filled` were initialised
        // before the release store that published them, and nobody writes them again.
        unsafe { std::slice::from_raw_parts(self.arena.mapping().at(self.at, len).as_ptr(), len) }
    }

    pub fn len(&self) -> usize {
        self.filled.load(Ordering::Acquire) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the arena this span occupies.
    pub fn capacity(&self) -> usize {
        self.place().capacity() as usize
    }

    /// Returns whether the span has pages of its own (other spans share pages with their neighbours).
    pub(crate) fn owns_pages(&self) -> bool {
        self.place().is_pages()
    }

    /// The file range of a part, if it may be given to `sendfile`; from then on the pages are replaced
    /// by fresh ones before anyone writes to them again.
    pub fn file_range(&self, from: usize, len: usize) -> Option<FileRange<'_>> {
        assert!(
            from.checked_add(len).is_some_and(|end| end <= self.len()),
            "a range beyond the bytes written"
        );
        (self.owns_pages() && self.arena.can_punch()).then(|| {
            self.mark_sent();
            FileRange { fd: self.arena.mapping().fd(), offset: self.at + from as u64, len }
        })
    }

    /// Notes that a socket may hold these pages.
    pub(crate) fn mark_sent(&self) {
        if !self.place().is_sent() {
            self.place.fetch_or(Place::SENT, Ordering::Relaxed);
        }
    }

    /// Gives back whole pages behind the bytes written. The caller is the span's writer, so nothing is
    /// in the part that goes.
    fn trim(&self) {
        let old = self.place();
        let new = self.arena.trim(self.at, old, self.filled.load(Ordering::Relaxed));
        self.place.fetch_sub(old.capacity() - new.capacity(), Ordering::Relaxed);
    }

    fn place(&self) -> Place {
        Place::from_bits(self.place.load(Ordering::Relaxed))
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.arena.free(self.at, self.place());
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:#x}, {} of {})", self.at, self.len(), self.capacity())
    }
}

/// The right to append to a span: one per span, made with it.
#[derive(Debug)]
pub(crate) struct SpanWriter {
    span: Arc<Span>,
}

impl SpanWriter {
    /// An empty span of at least `capacity` bytes.
    pub(crate) fn new(arena: &Arc<Arena>, capacity: usize) -> Result<Self, Full> {
        Ok(Self::at(arena, arena.alloc(capacity)?))
    }

    /// The same for a part of a body on a device.
    pub(crate) fn for_part(arena: &Arc<Arena>, capacity: usize) -> Result<Self, Full> {
        Ok(Self::at(arena, arena.alloc_part(capacity)?))
    }

    fn at(arena: &Arc<Arena>, (at, place): (u64, Place)) -> Self {
        let place = AtomicU32::new(place.bits());
        let span = Arc::new(Span { arena: Arc::clone(arena), at, filled: AtomicU32::new(0), place });
        Self { span }
    }

    pub(crate) fn span(&self) -> &Arc<Span> {
        &self.span
    }

    pub(crate) fn room(&self) -> usize {
        self.span.capacity() - self.span.len()
    }

    /// Returns the part not yet written. Its bytes have no meaning before they are written.
    pub(crate) fn window(&mut self) -> &mut [u8] {
        let filled = self.span.len();
        let room = self.span.capacity() - filled;
        let ptr = self.span.arena.mapping().at(self.span.at + filled as u64, room).as_ptr();
        // SAFETY: [at + filled, at + capacity) belongs to this span; readers stay below `filled`; there
        // is one writer per span and this borrows it mutably; `commit` and `trim` need it mutably too.
        unsafe { std::slice::from_raw_parts_mut(ptr, room) }
    }

    /// Shows the first `n` bytes of the window to readers.
    pub(crate) fn commit(&mut self, n: usize) {
        assert!(n <= self.room(), "commit beyond the window");
        self.span.filled.fetch_add(n as u32, Ordering::Release);
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.window()[..bytes.len()].copy_from_slice(bytes);
        self.commit(bytes.len());
    }

    pub(crate) fn trim(&mut self) {
        self.span.trim();
    }

    /// Ends the writing and returns the span, which nobody else may have.
    pub(crate) fn into_span(self) -> Span {
        Arc::into_inner(self.span).expect("nobody else has the span")
    }
}
