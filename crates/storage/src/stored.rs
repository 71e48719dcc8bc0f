//! The data of one object: head, data of filters, and body. A small complete object is one span.

use std::sync::Arc;
use std::task::Context;

use crate::arena::{Arena, Counters, Full};
use crate::body::{Body, BodyState, BodyWriter, ChunkSizes};
use crate::chunk::Chunk;
use crate::delivery::Delivery;
use crate::first::{First, Parts, body_from};
use crate::load::Extent;
use crate::record::{Record, check};
use crate::records::RecordRef;
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

/// The data of an object, and its record.
#[derive(Debug)]
pub struct Stored {
    spans: Spans,
    record: RecordRef,
}

/// The spans of an object. While small and complete, it takes 24 bytes outside of the arena.
#[derive(Debug)]
pub(crate) enum Spans {
    Whole(Span),
    Streamed(Arc<Body>),
}

impl Spans {
    fn arena(&self) -> &Arc<Arena> {
        match self {
            Self::Whole(span) => span.arena(),
            Self::Streamed(body) => body.first().arena(),
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        // The record is freed first: when the memory of the spans is used again, the next process must not find it.
        self.arena().records().give(&self.record);
    }
}

impl Stored {
    /// Stores an object whose body is in memory.
    pub(crate) fn complete(arena: &Arc<Arena>, parts: Parts<'_>, body: &[u8]) -> Result<Self, Full> {
        let mut writer = SpanWriter::new(arena, parts.stored_len() + body.len())?;
        parts.write(&mut writer);
        writer.append(body);
        Self::new(Spans::Whole(writer.into_span()))
    }

    fn new(spans: Spans) -> Result<Self, Full> {
        let record = spans.arena().records().take()?;
        Ok(Self { spans, record })
    }

    /// Creates an object from the spans and the record of an earlier process.
    pub(crate) fn kept(spans: Spans, record: RecordRef) -> Self {
        Self { spans, record }
    }

    /// Returns the record of the object.
    #[inline]
    pub fn record(&self) -> &Record {
        // SAFETY: the spans keep the arena alive, and with it the table of the record.
        unsafe { self.record.get() }
    }

    pub(crate) fn spans(&self) -> &Spans {
        &self.spans
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
        let shared = one_span.is_some() && writer.free_len() > 0;
        let (body, writer) = Body::begin(writer, head, shared, expected, sizes);
        Ok((Self::new(Spans::Streamed(body))?, writer))
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
        Ok((Self::new(Spans::Streamed(body))?, writer))
    }

    /// Creates a complete object whose body is on a device. The head is copied into memory.
    pub(crate) fn on_device(
        arena: &Arc<Arena>,
        parts: Parts<'_>,
        body_len: u64,
        extent: Box<dyn Extent>,
    ) -> Result<Self, Full> {
        Self::new(Spans::Streamed(Body::on_device(Self::head_alone(arena, parts)?, body_len, extent)))
    }

    /// Creates a complete object that shares the spans of another object's body. Returns `None` if `body` is
    /// incomplete, not entirely in memory, stored whole in one span, or in another arena.
    pub(crate) fn sharing(arena: &Arc<Arena>, parts: Parts<'_>, body: &Self) -> Result<Option<Self>, Full> {
        let Spans::Streamed(shared) = &body.spans else { return Ok(None) };
        if !Arc::ptr_eq(arena, body.arena()) {
            return Ok(None);
        }
        let shared = shared.shared(|| Self::head_alone(arena, parts))?;
        shared.map(|body| Self::new(Spans::Streamed(body))).transpose()
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

    pub(crate) fn first(&self) -> &Span {
        match &self.spans {
            Spans::Whole(span) => span,
            Spans::Streamed(body) => body.first(),
        }
    }

    pub fn head(&self) -> &[u8] {
        First::of(self.first()).head
    }

    /// Returns the data that filters produced.
    pub fn extra(&self) -> &[u8] {
        match &self.spans {
            Spans::Streamed(body) => body.extra(),
            Spans::Whole(span) => First::of(span).extra,
        }
    }

    /// Sets the data that filters produced, on an object that was written by a writer. Only the first call has an
    /// effect.
    pub fn set_extra(&self, extra: &[u8]) {
        if let Spans::Streamed(body) = &self.spans {
            body.set_extra(extra);
        }
    }

    /// Returns whether the object is complete and in one span, which is freed as a whole.
    pub fn is_whole(&self) -> bool {
        matches!(self.spans, Spans::Whole(_))
    }

    /// Returns the length of the body so far.
    pub fn body_len(&self) -> u64 {
        match &self.spans {
            Spans::Whole(span) => (span.len() - body_from(span)) as u64,
            Spans::Streamed(body) => body.len(),
        }
    }

    pub fn state(&self) -> BodyState {
        match &self.spans {
            Spans::Whole(span) if span.is_unverified() => self.verify(span),
            Spans::Whole(_) => BodyState::Complete,
            Spans::Streamed(body) => body.state(),
        }
    }

    /// Compares the checksum of a body that another process wrote.
    #[cold]
    fn verify(&self, span: &Span) -> BodyState {
        let body = &span.bytes()[body_from(span)..];
        if self.arena().records().body_check(self.record()) == Some(check(body)) {
            span.trust();
            return BodyState::Complete;
        }
        BodyState::Failed
    }

    /// Returns the longest contiguous part of the body from `offset` on that is in memory.
    pub fn chunk_at(&self, offset: u64) -> Option<Chunk<'_>> {
        match &self.spans {
            Spans::Whole(span) => {
                let from = body_from(span).checked_add(usize::try_from(offset).ok()?)?;
                let len = span.len().checked_sub(from).filter(|&n| n > 0)?;
                Some(Chunk::borrowed(span, from, len))
            }
            Spans::Streamed(body) => body.chunk_at(offset),
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
        match &self.spans {
            Spans::Streamed(body) if from < to && body.will_have(from) => Read::Pending,
            _ => Read::Missing,
        }
    }

    /// Returns whether a read at `offset` need not wait: the byte is in memory, or will never be.
    #[inline]
    pub fn is_ready(&self, offset: u64) -> bool {
        match &self.spans {
            Spans::Whole(_) => true,
            Spans::Streamed(body) => body.is_ready(offset),
        }
    }

    /// Begins a reader's wait for the byte at `offset`.
    pub fn wait(&self, offset: u64) -> Wait<'_> {
        match &self.spans {
            Spans::Whole(_) => Wait::new(None, offset),
            Spans::Streamed(body) => Wait::new(Some(body), offset),
        }
    }

    /// Begins the delivery of the bytes `at..to`, if a part of the body is on a device.
    pub fn begin_delivery(&self, at: u64, to: u64) -> Option<Delivery<'_>> {
        match &self.spans {
            Spans::Whole(_) => None,
            Spans::Streamed(body) => Delivery::begin(body, at, to),
        }
    }

    /// Returns the location of the body, if it is on a device.
    pub fn extent(&self) -> Option<&dyn Extent> {
        match &self.spans {
            Spans::Whole(_) => None,
            Spans::Streamed(body) => Some(body.residency()?.extent()),
        }
    }

    /// Returns whether a new reader may expect all bytes so far: they are in memory, or the device responds.
    #[inline]
    pub fn is_available(&self) -> bool {
        match &self.spans {
            Spans::Whole(_) => true,
            Spans::Streamed(body) => {
                body.residency().is_none_or(|it| it.end() == 0 || it.extent().is_available())
            }
        }
    }

    /// Reports the progress of delivery to the writer, and with `free` frees the bytes before `offset`. `free` is only
    /// for the single reader of an object that no lookup can find.
    pub fn delivered(&self, offset: u64, free: bool) {
        if let Spans::Streamed(body) = &self.spans {
            body.delivered(offset, free);
        }
    }

    /// Registers the writer's task to be woken at the next [`delivered`](Self::delivered), whatever its offset.
    pub fn watch_delivery(&self, cx: &Context<'_>) {
        if let Spans::Streamed(body) = &self.spans {
            body.watch_delivery(cx);
        }
    }

    /// Frees the whole body, for an object whose body is not needed anymore. A part that shares a span with the head
    /// stays as long as that.
    pub fn drop_body(&self) {
        if let Spans::Streamed(body) = &self.spans {
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
        match &self.spans {
            Spans::Whole(span) => span.owns_pages(),
            Spans::Streamed(body) => body.is_large(),
        }
    }

    /// Returns whether its body is on a device.
    pub fn is_on_device(&self) -> bool {
        match &self.spans {
            Spans::Whole(_) => false,
            Spans::Streamed(body) => body.is_settled(),
        }
    }

    /// Returns whether another object shares its body, so that dropping it frees only its head.
    pub fn is_shared(&self) -> bool {
        match &self.spans {
            Spans::Whole(_) => false,
            Spans::Streamed(body) => body.is_shared(),
        }
    }

    /// Returns a copy in one span, if the body is complete, at most `limit` long, not in one span yet, and the copy
    /// needs no more memory.
    pub fn compacted(&self, limit: usize) -> Option<Self> {
        let Spans::Streamed(body) = &self.spans else { return None };
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
