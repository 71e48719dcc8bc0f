//! The data of one object: head, data of filters, and body. A small complete object is one span.

use std::sync::Arc;
use std::task::Context;

use crate::arena::{Arena, Counters, Full};
use crate::body::{Body, BodyState, BodyWriter, Chunk, ChunkSizes};
use crate::first::{First, Parts, body_from};
use crate::load::Extent;
use crate::span::{Span, SpanWriter};
use crate::wait::Wait;

/// The result of reading a body.
#[derive(Debug)]
pub enum Read<'a> {
    /// At least one byte in memory. [`Chunk::file_range`] returns the part of the file that the kernel may send
    /// itself.
    Mapped(Chunk<'a>),
    /// The bytes will be available later: the caller [waits](Stored::wait) and reads again.
    Pending,
    /// There are no bytes, and none will come: the body ends before this offset, or has failed.
    Missing,
}

/// The data of an object. While small and complete, it takes 24 bytes outside of the arena.
#[derive(Debug)]
pub enum Stored {
    Whole(Span),
    Streamed(Arc<Body>),
}

impl Stored {
    /// Stores an object whose body is in memory.
    pub(crate) fn complete(arena: &Arc<Arena>, parts: Parts<'_>, body: &[u8]) -> Result<Self, Full> {
        let mut writer = SpanWriter::new(arena, parts.stored_len() + body.len())?;
        parts.write(&mut writer);
        writer.append(body);
        Ok(Self::Whole(writer.into_span()))
    }

    /// Stores the head of an object whose body will be written through the writer. `expected` is the length of the
    /// body, if known. If head and body might fit into one span but there is no span of that length, this fails with
    /// `Full`, unless `split` allows separate spans.
    pub(crate) fn begin(
        arena: &Arc<Arena>,
        parts: Parts<'_>,
        expected: Option<u64>,
        sizes: ChunkSizes,
        split: bool,
    ) -> Result<(Self, BodyWriter), Full> {
        let head = parts.stored_len();
        let with_body = expected.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_add(head));
        let one_span = with_body.filter(|&n| n <= sizes.max.max(head));
        let found = SpanWriter::new(arena, one_span.unwrap_or(head));
        let mut writer = found.or_else(|full| match one_span {
            Some(_) if split => SpanWriter::new(arena, head),
            _ => Err(full),
        })?;
        parts.write(&mut writer);
        let shared = one_span.is_some() && writer.room() > 0;
        let (body, writer) = Body::begin(writer, head, shared, expected, sizes);
        Ok((Self::Streamed(body), writer))
    }

    /// Begins an object whose head outlives its body: they share no span.
    pub(crate) fn begin_apart(
        arena: &Arc<Arena>,
        parts: Parts<'_>,
        expected: Option<u64>,
        sizes: ChunkSizes,
    ) -> Result<(Self, BodyWriter), Full> {
        let head = parts.stored_len();
        let mut writer = SpanWriter::new(arena, head)?;
        parts.write(&mut writer);
        let (body, writer) = Body::begin(writer, head, false, expected, sizes);
        Ok((Self::Streamed(body), writer))
    }

    /// Creates a complete object whose body is on a device. The head is copied into memory.
    pub(crate) fn on_device(
        arena: &Arc<Arena>,
        parts: Parts<'_>,
        body_len: u64,
        extent: Box<dyn Extent>,
    ) -> Result<Self, Full> {
        Ok(Self::Streamed(Body::on_device(Self::head_alone(arena, parts)?, body_len, extent)))
    }

    /// Creates a complete object that shares the spans of another object's body. Returns `None` if `body` is
    /// incomplete, not entirely in memory, stored whole in one span, or in another arena.
    pub(crate) fn sharing(arena: &Arc<Arena>, parts: Parts<'_>, body: &Self) -> Result<Option<Self>, Full> {
        let Self::Streamed(shared) = body else { return Ok(None) };
        if !Arc::ptr_eq(arena, body.arena()) {
            return Ok(None);
        }
        let shared = shared.shared(|| Self::head_alone(arena, parts))?;
        Ok(shared.map(Self::Streamed))
    }

    fn head_alone(arena: &Arc<Arena>, parts: Parts<'_>) -> Result<Span, Full> {
        let mut writer = SpanWriter::new(arena, parts.stored_len())?;
        parts.write(&mut writer);
        Ok(writer.into_span())
    }

    fn body_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.body_len() as usize);
        while let Some(chunk) = self.chunk_at(bytes.len() as u64) {
            bytes.extend_from_slice(chunk.bytes());
        }
        bytes
    }

    fn first(&self) -> &Span {
        match self {
            Self::Whole(span) => span,
            Self::Streamed(body) => body.first(),
        }
    }

    pub fn head(&self) -> &[u8] {
        First::of(self.first()).head
    }

    /// Returns the data that filters produced.
    pub fn extra(&self) -> &[u8] {
        match self {
            Self::Streamed(body) => body.extra(),
            Self::Whole(span) => First::of(span).extra,
        }
    }

    /// Sets the data that filters produced, on an object that was written by a writer. Only the first call has an
    /// effect.
    pub fn set_extra(&self, extra: &[u8]) {
        if let Self::Streamed(body) = self {
            body.set_extra(extra);
        }
    }

    /// Returns whether the object is complete and in one span, which is freed as a whole.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Returns the length of the body so far.
    pub fn body_len(&self) -> u64 {
        match self {
            Self::Whole(span) => (span.len() - body_from(span)) as u64,
            Self::Streamed(body) => body.len(),
        }
    }

    pub fn state(&self) -> BodyState {
        match self {
            Self::Whole(_) => BodyState::Complete,
            Self::Streamed(body) => body.state(),
        }
    }

    /// Returns the longest contiguous part of the body from `offset` on that is in memory.
    pub fn chunk_at(&self, offset: u64) -> Option<Chunk<'_>> {
        match self {
            Self::Whole(span) => {
                let from = body_from(span).checked_add(usize::try_from(offset).ok()?)?;
                let len = span.len().checked_sub(from).filter(|&n| n > 0)?;
                Some(Chunk::borrowed(span, from, len))
            }
            Self::Streamed(body) => body.chunk_at(offset),
        }
    }

    /// Returns the contiguous bytes from `from` on, before `to`. An empty range is missing, never pending.
    #[inline]
    pub fn read(&self, from: u64, to: u64) -> Read<'_> {
        let most = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        match self.chunk_at(from) {
            Some(mut chunk) if most > 0 => {
                chunk.truncate(most);
                Read::Mapped(chunk)
            }
            _ => self.unread(from, to),
        }
    }

    /// Returns the result of reading a range whose first byte is not in memory, or an empty range.
    #[cold]
    fn unread(&self, from: u64, to: u64) -> Read<'_> {
        match self {
            Self::Streamed(body) if from < to && body.will_have(from) => Read::Pending,
            _ => Read::Missing,
        }
    }

    /// Returns whether a read at `offset` need not wait: the byte is in memory, or will never be.
    #[inline]
    pub fn is_ready(&self, offset: u64) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Streamed(body) => body.is_ready(offset),
        }
    }

    /// Begins a reader's wait for the byte at `offset`.
    pub fn wait(&self, offset: u64) -> Wait<'_> {
        match self {
            Self::Whole(_) => Wait::new(None, offset),
            Self::Streamed(body) => Wait::new(Some(body), offset),
        }
    }

    /// Reports the progress of delivery to the writer, and with `free` frees the bytes before `offset`. `free` is only
    /// for the single reader of an object that no lookup can find.
    pub fn delivered(&self, offset: u64, free: bool) {
        if let Self::Streamed(body) = self {
            body.delivered(offset, free);
        }
    }

    /// Registers the writer's task to be woken at the next [`delivered`](Self::delivered), whatever its offset.
    pub fn watch_delivery(&self, cx: &Context<'_>) {
        if let Self::Streamed(body) = self {
            body.watch_delivery(cx);
        }
    }

    /// Frees the whole body, for an object whose body is not needed anymore. A part that shares a span with the head
    /// stays as long as that.
    pub fn drop_body(&self) {
        if let Self::Streamed(body) = self {
            body.drop_body();
        }
    }

    /// Returns the counters of its store.
    pub fn counters(&self) -> &Counters {
        self.first().arena().counters()
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        self.first().arena()
    }

    /// Returns whether its memory consists (mostly) of whole pages rather than slots of slabs.
    pub fn is_large(&self) -> bool {
        match self {
            Self::Whole(span) => span.owns_pages(),
            Self::Streamed(body) => body.is_large(),
        }
    }

    /// Returns whether its body is on a device.
    pub fn is_on_device(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Streamed(body) => body.is_settled(),
        }
    }

    /// Returns whether another object shares its body, so that dropping it frees only its head.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Streamed(body) => body.is_shared(),
        }
    }

    /// Returns a copy in one span, if the body is complete, at most `limit` long, not in one span yet, and the copy
    /// needs no more memory.
    pub fn compacted(&self, limit: usize) -> Option<Self> {
        let Self::Streamed(body) = self else { return None };
        if body.state() != BodyState::Complete || self.body_len() > limit as u64 {
            return None;
        }
        let bytes = self.body_bytes();
        if bytes.len() as u64 != self.body_len() {
            return None;
        }
        let parts = Parts { head: &[self.head()], extra: self.extra() };
        let compact = Self::complete(self.arena(), parts, &bytes).ok()?;
        // A single span of pages may be longer than a small span and a span of pages together.
        (compact.first().capacity() <= body.capacity()).then_some(compact)
    }
}
