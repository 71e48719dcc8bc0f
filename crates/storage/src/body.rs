//! The bytes of one object. Small complete objects are one span, head and body together. An object that
//! is being fetched is a [`Body`]: one [`BodyWriter`] appends, any number of readers on any thread take
//! [`Chunk`]s of what is there and wait for more.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::arena::{Arena, Full};
use crate::memory::{FileRange, Span, SpanWriter};

/// Head length and extra length, little endian, at the beginning of an object's first span.
const PREFIX: usize = 8;
/// More unused bytes than this at the end of a body are worth a copy (Varnish's number).
const WASTE: usize = 512;
/// Bodies up to this size are copied into a fitting span when finished.
const COPY_MAX: usize = 64 * 1024;

/// Where a body stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    Fetching,
    Complete,
    Failed,
}

/// How large the pieces of a growing body may be: `fetch_chunksize` and `fetch_maxchunksize`.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSizes {
    pub first: usize,
    pub max: usize,
}

/// What an object begins with. `head` is stored as given, one piece after the other; `extra` is for
/// what filters leave behind (may come later, by [`Stored::set_extra`], on an object being fetched).
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub head: &'a [&'a [u8]],
    pub extra: &'a [u8],
}

impl Parts<'_> {
    fn head_len(&self) -> usize {
        self.head.iter().map(|p| p.len()).sum()
    }

    fn prefix(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&(self.head_len() as u32).to_le_bytes());
        prefix[4..].copy_from_slice(&(self.extra.len() as u32).to_le_bytes());
        prefix
    }
}

/// The bytes of an object: 24 bytes beside the arena while small and complete.
#[derive(Debug)]
pub enum Stored {
    Whole(Span),
    Streamed(Arc<Body>),
}

/// Head, extra and the beginning of the body within a first span.
struct First<'a> {
    head: &'a [u8],
    extra: &'a [u8],
    body_from: usize,
}

impl<'a> First<'a> {
    fn of(span: &'a Span) -> Self {
        let bytes = span.bytes();
        let number = |at: usize| {
            let raw = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or_default();
            u32::from_le_bytes(raw) as usize
        };
        let head_end = PREFIX + number(0);
        let body_from = head_end + number(4);
        Self { head: &bytes[PREFIX..head_end], extra: &bytes[head_end..body_from], body_from }
    }
}

impl Stored {
    /// Stores an object whose body is at hand.
    pub fn complete(arena: &Arc<Arena>, parts: Parts<'_>, body: &[u8]) -> Result<Self, Full> {
        let prefix = parts.prefix();
        let mut pieces = Vec::with_capacity(parts.head.len() + 3);
        pieces.push(prefix.as_slice());
        pieces.extend_from_slice(parts.head);
        pieces.extend([parts.extra, body]);
        Span::with_contents(arena, &pieces).map(Self::Whole)
    }

    /// Stores the head of an object whose body comes through the writer; `expected` is its length, if
    /// that is known. A body that might fit in one span with the head is `Full` when there is none that
    /// long, unless `split` allows to do without.
    pub fn begin(
        arena: &Arc<Arena>,
        parts: Parts<'_>,
        expected: Option<u64>,
        sizes: ChunkSizes,
        split: bool,
    ) -> Result<(Self, BodyWriter), Full> {
        let head = PREFIX + parts.head_len() + parts.extra.len();
        let with_body = expected.and_then(|n| usize::try_from(n).ok()).and_then(|n| n.checked_add(head));
        let one_span = with_body.filter(|&n| n <= sizes.max.max(head));
        let found = SpanWriter::new(arena, one_span.unwrap_or(head));
        let mut writer = found.or_else(|full| match one_span {
            Some(_) if split => SpanWriter::new(arena, head),
            _ => Err(full),
        })?;
        writer.append(&parts.prefix());
        for piece in parts.head {
            writer.append(piece);
        }
        writer.append(parts.extra);
        let first = Arc::clone(writer.span());
        let in_first = Piece { start: 0, skip: head, span: Arc::clone(&first) };
        let shared = one_span.is_some() && writer.room() > 0;
        let body = Arc::new(Body {
            first,
            state: AtomicU8::new(FETCHING),
            len: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            pieces: Mutex::new(if shared { vec![in_first] } else { Vec::new() }),
            waiting: AtomicBool::new(false),
            waiters: Mutex::new(Waiters::default()),
            extra: OnceLock::new(),
        });
        let writer = BodyWriter {
            body: Arc::clone(&body),
            span: shared.then_some(writer),
            expected,
            sizes,
            next: sizes.first.max(1),
        };
        Ok((Self::Streamed(body), writer))
    }

    fn first(&self) -> &Span {
        match self {
            Self::Whole(span) => span,
            Self::Streamed(body) => &body.first,
        }
    }

    pub fn head(&self) -> &[u8] {
        First::of(self.first()).head
    }

    /// What filters left behind.
    pub fn extra(&self) -> &[u8] {
        match self {
            Self::Streamed(body) if body.extra.get().is_some() => body.extra.get().map_or(&[], |e| e),
            _ => First::of(self.first()).extra,
        }
    }

    /// Sets what filters leave behind, once, on an object that came through a writer.
    pub fn set_extra(&self, extra: &[u8]) {
        if let Self::Streamed(body) = self {
            let _ = body.extra.set(extra.into());
        }
    }

    /// Bytes of the body there are so far.
    pub fn body_len(&self) -> u64 {
        match self {
            Self::Whole(span) => (span.len() - First::of(span).body_from) as u64,
            Self::Streamed(body) => body.len.load(Ordering::Acquire),
        }
    }

    pub fn state(&self) -> BodyState {
        match self {
            Self::Whole(_) => BodyState::Complete,
            Self::Streamed(body) => body.state(),
        }
    }

    /// The longest contiguous part of the body from `offset` on that is there.
    pub fn chunk_at(&self, offset: u64) -> Option<Chunk<'_>> {
        match self {
            Self::Whole(span) => {
                let from = First::of(span).body_from.checked_add(usize::try_from(offset).ok()?)?;
                let len = span.len().checked_sub(from).filter(|&n| n > 0)?;
                Some(Chunk { span: SpanRef::Borrowed(span), from, len })
            }
            Self::Streamed(body) => body.chunk_at(offset),
        }
    }

    /// Ready when the body is longer than `offset`, or ends.
    pub fn poll_more(&self, offset: u64, cx: &mut Context<'_>) -> Poll<BodyState> {
        match self {
            Self::Whole(_) => Poll::Ready(BodyState::Complete),
            Self::Streamed(body) => body.poll_more(offset, cx),
        }
    }

    /// Ready when the fetch has ended.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<BodyState> {
        self.poll_more(u64::MAX, cx)
    }

    /// Tells the writer how far delivery came, and with `free` lets go of what was delivered: only for
    /// the one reader of an object nobody else can find.
    pub fn delivered(&self, offset: u64, free: bool) {
        if let Self::Streamed(body) = self {
            body.delivered(offset, free);
        }
    }

    /// Lets go of the whole body, for an object whose body nobody will ask for again.
    pub fn slim(&self) {
        if let Self::Streamed(body) = self {
            body.pieces.lock().clear();
        }
    }

    pub fn arena(&self) -> &Arc<Arena> {
        self.first().arena()
    }

    /// Whether its memory is (mostly) whole pages rather than slots of slabs.
    pub fn is_large(&self) -> bool {
        match self {
            Self::Whole(span) => span.owns_pages(),
            Self::Streamed(body) => {
                body.first.owns_pages() || body.pieces.lock().iter().any(|p| p.span.owns_pages())
            }
        }
    }

    /// A copy in one span, if the body is complete, shorter than `limit` and not yet in one.
    pub fn compacted(&self, limit: usize) -> Option<Self> {
        let Self::Streamed(body) = self else { return None };
        if body.state() != BodyState::Complete || self.body_len() > limit as u64 {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.body_len() as usize);
        while let Some(chunk) = self.chunk_at(bytes.len() as u64) {
            bytes.extend_from_slice(chunk.bytes());
        }
        if bytes.len() as u64 != self.body_len() {
            return None;
        }
        Self::complete(self.arena(), Parts { head: &[self.head()], extra: self.extra() }, &bytes).ok()
    }
}

const FETCHING: u8 = 0;
const COMPLETE: u8 = 1;
const FAILED: u8 = 2;

/// A part of a body: `span` holds it from its byte `skip` on, beginning at the body's byte `start`.
#[derive(Debug)]
struct Piece {
    start: u64,
    skip: usize,
    span: Arc<Span>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + (self.span.len() - self.skip) as u64
    }
}

#[derive(Debug, Default)]
struct Waiters {
    readers: Vec<Waker>,
    writer: Option<Waker>,
}

/// The body of an object that came, or comes, through a writer.
#[derive(Debug)]
pub struct Body {
    first: Arc<Span>,
    state: AtomicU8,
    len: AtomicU64,
    delivered: AtomicU64,
    pieces: Mutex<Vec<Piece>>,
    waiting: AtomicBool,
    waiters: Mutex<Waiters>,
    extra: OnceLock<Box<[u8]>>,
}

impl Body {
    fn state(&self) -> BodyState {
        match self.state.load(Ordering::Acquire) {
            FETCHING => BodyState::Fetching,
            COMPLETE => BodyState::Complete,
            _ => BodyState::Failed,
        }
    }

    fn chunk_at(&self, offset: u64) -> Option<Chunk<'static>> {
        let len = self.len.load(Ordering::Acquire);
        let pieces = self.pieces.lock();
        let index = pieces.partition_point(|p| p.start <= offset).checked_sub(1)?;
        let piece = &pieces[index];
        let end = piece.end().min(len);
        let len = end.checked_sub(offset).filter(|&n| n > 0)? as usize;
        let from = piece.skip + (offset - piece.start) as usize;
        Some(Chunk { span: SpanRef::Shared(Arc::clone(&piece.span)), from, len })
    }

    fn poll_more(&self, offset: u64, cx: &mut Context<'_>) -> Poll<BodyState> {
        if let Some(state) = self.more(offset) {
            return Poll::Ready(state);
        }
        {
            let mut waiters = self.waiters.lock();
            if !waiters.readers.iter().any(|w| w.will_wake(cx.waker())) {
                waiters.readers.push(cx.waker().clone());
            }
            self.waiting.store(true, Ordering::SeqCst);
        }
        // What came in between did not see the waker.
        self.more(offset).map_or(Poll::Pending, Poll::Ready)
    }

    fn more(&self, offset: u64) -> Option<BodyState> {
        let state = self.state();
        (state != BodyState::Fetching || self.len.load(Ordering::SeqCst) > offset).then_some(state)
    }

    fn wake_readers(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) {
            let readers = {
                let mut waiters = self.waiters.lock();
                self.waiting.store(false, Ordering::SeqCst);
                std::mem::take(&mut waiters.readers)
            };
            readers.into_iter().for_each(Waker::wake);
        }
    }

    fn delivered(&self, offset: u64, free: bool) {
        self.delivered.fetch_max(offset, Ordering::SeqCst);
        if free {
            let ended = self.state() != BodyState::Fetching;
            let mut pieces = self.pieces.lock();
            let mut gone = pieces.partition_point(|p| p.end() <= offset);
            if !ended {
                gone = gone.min(pieces.len().saturating_sub(1));
            }
            pieces.drain(..gone);
        }
        let writer = self.waiters.lock().writer.take();
        if let Some(waker) = writer {
            waker.wake();
        }
    }

    /// Makes the last piece no longer than it needs to be.
    fn trim(&self, writer: Option<SpanWriter>) {
        let Some(mut writer) = writer else { return };
        let empty = {
            let mut pieces = self.pieces.lock();
            let empty = pieces.last().is_some_and(|p| p.span.len() == p.skip);
            if empty {
                pieces.pop();
            }
            empty
        };
        let in_first = Arc::ptr_eq(writer.span(), &self.first);
        if empty && !in_first {
            return;
        }
        writer.trim();
        let span = writer.span();
        if in_first || span.capacity() - span.len() < WASTE || span.len() > COPY_MAX {
            return;
        }
        let Ok(exact) = Span::with_contents(span.arena(), &[span.bytes()]) else { return };
        let exact = Arc::new(exact);
        if let Some(last) = self.pieces.lock().last_mut()
            && Arc::ptr_eq(&last.span, span)
        {
            last.span = exact;
        }
    }

    fn end(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
        self.wake_readers();
    }
}

/// The one that appends to a body. Dropped before `finish`, it fails the body.
#[derive(Debug)]
pub struct BodyWriter {
    body: Arc<Body>,
    span: Option<SpanWriter>,
    expected: Option<u64>,
    sizes: ChunkSizes,
    next: usize,
}

impl BodyWriter {
    /// Bytes the next piece should have.
    pub fn wants(&self) -> usize {
        let missing = self.expected.and_then(|n| n.checked_sub(self.len())).filter(|&n| n > 0);
        let want = missing.map_or(self.next, |n| usize::try_from(n).unwrap_or(usize::MAX));
        want.min(self.sizes.max).max(1)
    }

    /// Makes sure that [`window`](Self::window) is not empty. On `Full` evict something and try again.
    pub fn reserve(&mut self) -> Result<(), Full> {
        self.reserve_from(0)
    }

    /// As `reserve`, but rather `Full` than with a piece much smaller than `least`.
    pub fn reserve_from(&mut self, least: usize) -> Result<(), Full> {
        if self.span.as_ref().is_some_and(|s| s.room() > 0) {
            return Ok(());
        }
        let len = self.len();
        let mut size = self.wants();
        let least = self.sizes.first.max(least).min(size);
        let writer = loop {
            match SpanWriter::new(self.body.first.arena(), size) {
                Ok(writer) => break writer,
                Err(full) if size <= least => return Err(full),
                Err(_) => size = (size / 2).max(least),
            }
        };
        self.next = size.saturating_mul(2).min(self.sizes.max);
        let piece = Piece { start: len, skip: 0, span: Arc::clone(writer.span()) };
        self.body.pieces.lock().push(piece);
        self.span = Some(writer);
        Ok(())
    }

    /// Memory to write the next bytes to; empty unless reserved.
    pub fn window(&mut self) -> &mut [u8] {
        self.span.as_mut().map_or(&mut [], SpanWriter::window)
    }

    /// Shows the first `n` bytes of the window to readers.
    pub fn commit(&mut self, n: usize) {
        if let Some(span) = &mut self.span {
            span.commit(n);
            self.body.len.fetch_add(n as u64, Ordering::SeqCst);
            self.body.wake_readers();
        }
    }

    /// Copies as many bytes as fit into the reserved memory, reserving if there is none; answers how
    /// many those were.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Full> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.reserve()?;
        let window = self.window();
        let n = bytes.len().min(window.len());
        window[..n].copy_from_slice(&bytes[..n]);
        self.commit(n);
        Ok(n)
    }

    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.body.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Limits the size of further pieces.
    pub fn set_max(&mut self, max: usize) {
        self.sizes.max = max.max(1);
        self.sizes.first = self.sizes.first.min(self.sizes.max);
    }

    /// Ready when fewer than `limit` bytes wait for the reader (`beresp.transit_buffer`).
    pub fn poll_transit(&self, limit: u64, cx: &mut Context<'_>) -> Poll<()> {
        let ready = || self.len().saturating_sub(self.body.delivered.load(Ordering::SeqCst)) < limit;
        if ready() {
            return Poll::Ready(());
        }
        self.body.waiters.lock().writer = Some(cx.waker().clone());
        if ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The body is complete.
    pub fn finish(mut self) {
        self.body.trim(self.span.take());
        self.body.end(COMPLETE);
    }

    /// The body will never be complete.
    pub fn fail(self) {}
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        if self.body.state() == BodyState::Fetching {
            self.body.end(FAILED);
        }
    }
}

#[derive(Debug)]
enum SpanRef<'a> {
    Borrowed(&'a Span),
    Shared(Arc<Span>),
}

/// A contiguous part of a body. It keeps the memory alive.
#[derive(Debug)]
pub struct Chunk<'a> {
    span: SpanRef<'a>,
    from: usize,
    len: usize,
}

impl Chunk<'_> {
    fn span(&self) -> &Span {
        match &self.span {
            SpanRef::Borrowed(span) => span,
            SpanRef::Shared(span) => span,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.span().bytes()[self.from..self.from + self.len]
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the chunk to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The same bytes as a file range for `sendfile`, for those with pages of their own. Asking means
    /// sending: the pages are not used again without being replaced.
    pub fn file_range(&self) -> Option<FileRange<'_>> {
        self.span().file_range(self.from, self.len)
    }
}
