//! The body of an object that is or was fetched. One [`BodyWriter`] appends to it. Any number of readers on any
//! thread take [`Chunk`]s of the available bytes and wait for more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use crate::arena::Full;
use crate::blocks::{BLOCK, Blocks};
use crate::chunk::Chunk;
use crate::first::First;
use crate::load::{Extent, Receiver};
use crate::piece::{Extra, KeptPart, Piece};
use crate::residency::Residency;
use crate::span::{Span, SpanWriter};
use crate::sync::{AtomicU8, AtomicU64, Mutex};
use crate::waiters::{Registration, Waiters};

/// If a body has at least this many unused bytes at its end, its last span is copied into a smaller one (Varnish's
/// number).
const WASTE: usize = 512;
/// The maximum size of a last span that is copied when the body is finished.
const COPY_MAX: usize = 64 * 1024;

/// The progress of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    Fetching,
    Complete,
    Failed,
}

/// The sizes of the pieces of a growing body, from `fetch_chunksize` and `fetch_maxchunksize`.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSizes {
    pub first: usize,
    pub max: usize,
}

const FETCHING: u8 = 0;
const COMPLETE: u8 = 1;
const FAILED: u8 = 2;
/// Complete, and written by another process. Its beginning is not compared yet.
const INHERITED: u8 = 3;

/// The length of the beginning of a body of another process that is compared before the first use: damage in it is a miss.
const BEGINNING: u64 = 4 * BLOCK as u64;

/// The body of an object that was or is being written by a writer.
#[derive(Debug)]
pub struct Body {
    first: Arc<Span>,
    state: AtomicU8,
    len: AtomicU64,
    delivered: AtomicU64,
    pub(crate) pieces: Mutex<Vec<Piece>>,
    pub(crate) waiters: Waiters,
    extra: OnceLock<Extra>,
    /// The location on the device of a complete body, and the parts of it that are in memory. Set once.
    pub(crate) residency: OnceLock<Arc<Residency>>,
}

impl Body {
    /// Creates a body whose first span contains `head` bytes of head. With `shared`, the first span also contains the
    /// beginning of the body.
    pub(crate) fn begin(
        writer: SpanWriter,
        head: usize,
        shared: bool,
        expected: Option<u64>,
        sizes: ChunkSizes,
    ) -> (Arc<Self>, BodyWriter) {
        let first = Arc::clone(writer.span());
        let in_first = Piece::new(0, head, Arc::clone(&first));
        let pieces = if shared { vec![in_first] } else { Vec::new() };
        let body = Arc::new(Self::new(first, FETCHING, 0, pieces));
        let span = shared.then_some(writer);
        let next = sizes.first.max(1);
        (Arc::clone(&body), BodyWriter { body, span, expected, sizes, next, unchecked: 0 })
    }

    fn new(first: Arc<Span>, state: u8, len: u64, pieces: Vec<Piece>) -> Self {
        Self {
            first,
            state: AtomicU8::new(state),
            len: AtomicU64::new(len),
            delivered: AtomicU64::new(0),
            pieces: Mutex::new(pieces),
            waiters: Waiters::new(),
            extra: OnceLock::new(),
            residency: OnceLock::new(),
        }
    }

    /// Creates a complete body that is on a device. Its head is in memory.
    pub(crate) fn on_device(first: Span, len: u64, extent: Box<dyn Extent>) -> Arc<Self> {
        let body = Self::new(Arc::new(first), COMPLETE, len, Vec::new());
        body.settle(extent);
        Arc::new(body)
    }

    /// Returns the pieces of a complete body that is entirely in memory, for another body that shares their spans.
    fn share_pieces(&self) -> Option<Vec<Piece>> {
        if self.state() != BodyState::Complete {
            return None;
        }
        let share =
            |piece: &Piece| Piece { span: Arc::clone(&piece.span), blocks: piece.blocks.clone(), ..*piece };
        let pieces: Vec<Piece> = self.pieces.lock().iter().map(share).collect();
        let in_memory: u64 = pieces.iter().map(|piece| piece.end() - piece.start).sum();
        (in_memory == self.len()).then_some(pieces)
    }

    /// Creates a complete body in the spans of this one, with the head that `make_head` returns. Returns `None` if this
    /// body is incomplete or some of it is not in memory.
    pub(crate) fn shared(
        &self,
        make_head: impl FnOnce() -> Result<Span, Full>,
    ) -> Result<Option<Arc<Self>>, Full> {
        let Some(pieces) = self.share_pieces() else { return Ok(None) };
        let first = Arc::new(make_head()?);
        Ok(Some(Arc::new(Self::new(first, COMPLETE, self.len(), pieces))))
    }

    /// Frees the memory of a complete body, which is at `extent` from now on. A part that shares a span with the head
    /// stays in memory.
    pub(crate) fn settle(&self, extent: Box<dyn Extent>) {
        if self.state() == BodyState::Complete
            && self.residency.set(Arc::new(Residency::whole(extent))).is_ok()
        {
            let keep = |piece: &mut Piece| !Arc::ptr_eq(&piece.span, &self.first);
            // The pieces are dropped after the lock is released.
            let _gone: Vec<Piece> = self.pieces.lock().extract_if(.., keep).collect();
        }
    }

    /// Returns whether the body is on a device.
    pub(crate) fn is_settled(&self) -> bool {
        self.residency.get().is_some()
    }

    pub(crate) fn first(&self) -> &Span {
        &self.first
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Returns the number of bytes of the arena that its spans occupy.
    pub(crate) fn capacity(&self) -> usize {
        let pieces = self.pieces.lock();
        let others = pieces.iter().filter(|p| !Arc::ptr_eq(&p.span, &self.first));
        self.first.capacity() + others.map(|p| p.span.capacity()).sum::<usize>()
    }

    /// Returns whether another body shares its spans, which therefore stay in use when this body is dropped.
    pub(crate) fn is_shared(&self) -> bool {
        let is_shared = |piece: &Piece| {
            let own = 1 + usize::from(Arc::ptr_eq(&piece.span, &self.first));
            Arc::strong_count(&piece.span) > own
        };
        self.pieces.lock().iter().any(is_shared)
    }

    /// Returns the number of bytes of the arena that the data of filters occupy outside of the first span.
    #[cfg(all(test, not(loom), not(miri)))]
    pub(crate) fn extra_capacity(&self) -> usize {
        match self.extra.get() {
            Some(Extra::Span(span)) => span.capacity(),
            _ => 0,
        }
    }

    pub(crate) fn head(&self) -> &[u8] {
        First::of(&self.first).head
    }

    pub(crate) fn extra(&self) -> &[u8] {
        self.extra.get().map_or_else(|| First::of(&self.first).extra, Extra::bytes)
    }

    pub(crate) fn set_extra(&self, extra: &[u8]) {
        let arena = self.first.arena();
        let in_arena = || Span::with_contents(arena, &[extra]).ok();
        let span = if arena.records().is_kept() { in_arena() } else { None };
        let _ = self.extra.set(span.map_or_else(|| Extra::Heap(extra.into()), Extra::Span));
    }

    pub(crate) fn drop_body(&self) {
        let _gone = std::mem::take(&mut *self.pieces.lock());
        if let Some(residency) = self.residency.get() {
            residency.clear();
        }
    }

    pub(crate) fn is_large(&self) -> bool {
        self.first.owns_pages()
            || self.pieces.lock().iter().any(|p| p.span.owns_pages())
            || self.residency.get().is_some_and(|residency| residency.owns_pages())
    }

    pub(crate) fn state(&self) -> BodyState {
        match self.state.load(Ordering::Acquire) {
            COMPLETE => BodyState::Complete,
            FETCHING => BodyState::Fetching,
            FAILED => BodyState::Failed,
            _ => self.examine(),
        }
    }

    /// Compares the beginning of a body that another process wrote, as far as it is in memory. This takes time, so ask for
    /// the state of a body only if it may be used.
    #[cold]
    fn examine(&self) -> BodyState {
        let (end, mut at) = (self.len().min(BEGINNING), 0);
        while at < end
            && let Some(chunk) = self.piece_at(at)
        {
            at += chunk.len() as u64;
        }
        match self.state.compare_exchange(INHERITED, COMPLETE, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) | Err(COMPLETE) => BodyState::Complete,
            Err(_) => BodyState::Failed,
        }
    }

    pub(crate) fn chunk_at(&self, offset: u64) -> Option<Chunk<'_>> {
        let piece = self.piece_at(offset);
        if piece.is_some() { piece } else { self.loaded_at(offset) }
    }

    pub(crate) fn piece_at(&self, offset: u64) -> Option<Chunk<'static>> {
        let len = self.len.load(Ordering::Acquire);
        let mut pieces = self.pieces.lock();
        let index = pieces.partition_point(|p| p.start <= offset).checked_sub(1)?;
        let piece = &mut pieces[index];
        let mut end = piece.end().min(len);
        if offset >= end {
            return None;
        }
        if piece.blocks.is_unverified() {
            let within = (offset - piece.start) as usize;
            let Some(to) = piece.blocks.verified_to(&piece.span.bytes()[piece.skip..], within) else {
                drop(pieces);
                self.end(FAILED);
                return None;
            };
            end = end.min(piece.start + to as u64);
        }
        let len = (end - offset) as usize;
        let from = piece.skip + (offset - piece.start) as usize;
        Some(Chunk::shared(Arc::clone(&piece.span), from, len))
    }

    /// Returns a part that was loaded from the device, or that is in its memory.
    #[cold]
    fn loaded_at(&self, offset: u64) -> Option<Chunk<'_>> {
        let residency = self.residency.get()?;
        if let Some(bytes) = residency.lent_at(offset) {
            return Some(Chunk::lent(bytes));
        }
        let (span, from) = residency.part_at(offset)?;
        let len = span.len() - from;
        Some(Chunk::shared(span, from, len))
    }

    /// Returns whether the byte at `offset`, which is not in memory, will arrive or can be loaded.
    pub(crate) fn will_have(&self, offset: u64) -> bool {
        match self.state() {
            BodyState::Fetching => offset >= self.len() || self.residency.get().is_some(),
            BodyState::Complete => offset < self.len() && self.residency.get().is_some(),
            BodyState::Failed => false,
        }
    }

    pub(crate) fn is_ready(&self, offset: u64) -> bool {
        self.more(offset).is_some()
    }

    /// Ready when the byte at `offset` is in memory, or will never be. Otherwise registers the task, and calls
    /// `request` if the body is on a device.
    pub(crate) fn poll_more(
        &self,
        offset: u64,
        registration: &mut Registration,
        cx: &Context<'_>,
        request: impl FnOnce(&Residency),
    ) -> Poll<BodyState> {
        if let Some(state) = self.more(offset) {
            return Poll::Ready(state);
        }
        self.waiters.add_reader(registration, cx);
        if let Some(residency) = self.residency.get() {
            request(residency);
        }
        self.more(offset).map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns the beginning of the first piece behind `at`; the length of the body if there is none.
    pub(crate) fn first_in_memory(&self, at: u64) -> u64 {
        let pieces = self.pieces.lock();
        pieces.iter().find(|piece| piece.end() > at).map_or_else(|| self.len(), |piece| piece.start)
    }

    pub(crate) fn residency(&self) -> Option<&Residency> {
        self.residency.get().map(|residency| &**residency)
    }

    fn more(&self, offset: u64) -> Option<BodyState> {
        let state = self.state();
        let is_there = match self.residency.get() {
            None => state != BodyState::Fetching || self.len.load(Ordering::Acquire) > offset,
            Some(_) if state == BodyState::Failed => true,
            Some(_) if offset >= self.len() => state != BodyState::Fetching,
            Some(residency) => residency.has(offset) || self.piece_at(offset).is_some(),
        };
        is_there.then_some(state)
    }

    /// Calls `add` with the span of the data of filters, if they are in a span of their own, and with each piece of the
    /// body: its span, its offset there and the checksums of its blocks. Returns `None` if the body is incomplete or some
    /// of it is not in the arena.
    pub(crate) fn for_each_kept(&self, add: &mut dyn FnMut(KeptPart<'_>) -> Option<()>) -> Option<()> {
        match self.extra.get() {
            Some(Extra::Heap(_)) => return None,
            Some(Extra::Span(span)) => add(KeptPart::Extra(span))?,
            None => {}
        }
        let mut pieces = self.pieces.lock();
        let in_memory: u64 = pieces.iter().map(|piece| piece.end() - piece.start).sum();
        let is_complete = matches!(self.state.load(Ordering::Acquire), COMPLETE | INHERITED);
        if !is_complete || in_memory != self.len() || self.is_settled() {
            return None;
        }
        for piece in &mut *pieces {
            piece.add_blocks(true);
            add(KeptPart::Piece { span: &piece.span, skip: piece.skip, sums: piece.blocks.sums() })?;
        }
        Some(())
    }

    /// Creates a complete body from the spans of an earlier process. Each piece has its span, its offset there and the
    /// checksums of its blocks.
    pub(crate) fn kept(
        first: Arc<Span>,
        extra: Option<Span>,
        pieces: impl Iterator<Item = (Arc<Span>, usize, Blocks)>,
    ) -> Arc<Self> {
        let mut len = 0;
        let pieces = pieces.map(|(span, skip, blocks)| {
            let piece = Piece { start: len, skip, span, blocks };
            len = piece.end();
            piece
        });
        let pieces = pieces.collect();
        let mut body = Self::new(first, INHERITED, len, pieces);
        if let Some(span) = extra {
            body.extra = OnceLock::from(Extra::Span(span));
        }
        Arc::new(body)
    }

    /// Drops the pieces in memory that the device has, except for the last `keep` bytes of a body that is being written.
    pub(crate) fn drop_moved(&self, keep: u64) {
        let Some(residency) = self.residency() else { return };
        let is_written = self.state() == BodyState::Fetching;
        let (end, len) = (residency.end(), self.len());
        let to = if is_written { end.min(len.saturating_sub(keep)) } else { end };
        let gone: Vec<Piece> = {
            let mut pieces = self.pieces.lock();
            let most = if is_written { pieces.len().saturating_sub(1) } else { pieces.len() };
            let count = pieces.partition_point(|piece| piece.end() <= to).min(most);
            pieces.drain(..count).collect()
        };
        drop(gone);
    }

    pub(crate) fn delivered(&self, offset: u64, free: bool) {
        self.delivered.fetch_max(offset, Ordering::SeqCst);
        if free {
            let ended = self.state() != BodyState::Fetching;
            let mut pieces = self.pieces.lock();
            let mut gone = pieces.partition_point(|p| p.end() <= offset);
            if !ended {
                gone = gone.min(pieces.len().saturating_sub(1));
            }
            let all = gone == pieces.len();
            let gone = if all { std::mem::take(&mut *pieces) } else { pieces.drain(..gone).collect() };
            // Freeing memory may wake other tasks, so the lock is released first.
            drop(pieces);
            drop(gone);
        }
        self.waiters.wake_writer();
    }

    /// Registers the writer's task to be woken at the next [`delivered`](Self::delivered).
    pub(crate) fn watch_delivery(&self, cx: &Context<'_>) {
        self.waiters.set_writer(cx);
    }

    /// Shortens the last piece to its contents.
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

    /// Ends the body. A body that has failed stays so: a part of it may be lost while the rest is fetched.
    fn end(&self, state: u8) {
        if state == FAILED {
            self.state.store(FAILED, Ordering::SeqCst);
        } else {
            let _ = self.state.compare_exchange(FETCHING, state, Ordering::SeqCst, Ordering::SeqCst);
        }
        self.waiters.wake_readers();
        self.waiters.wake_mover();
    }
}

/// A load may end on any thread.
impl Receiver for Body {
    fn loaded(&self, from: u64, bytes: Arc<Span>) {
        if let Some(residency) = self.residency.get() {
            residency.insert(from, bytes);
        }
        self.waiters.wake_readers();
    }

    fn failed(&self) {
        self.end(FAILED);
    }
}

/// Appends to a body. Dropping it before `finish` fails the body.
#[derive(Debug)]
pub struct BodyWriter {
    pub(crate) body: Arc<Body>,
    span: Option<SpanWriter>,
    pub(crate) expected: Option<u64>,
    sizes: ChunkSizes,
    next: usize,
    /// The number of bytes of the last piece for which no checksum was computed.
    unchecked: usize,
}

impl BodyWriter {
    /// Returns the number of bytes that the next piece should have.
    pub fn wants(&self) -> usize {
        let missing = self.expected.and_then(|n| n.checked_sub(self.len())).filter(|&n| n > 0);
        let want = missing.map_or(self.next, |n| usize::try_from(n).unwrap_or(usize::MAX));
        want.min(self.sizes.max).max(1)
    }

    /// Ensures that [`window`](Self::window) is not empty. On `Full`, the caller evicts an object and tries again.
    pub fn reserve(&mut self) -> Result<(), Full> {
        self.reserve_from(0)
    }

    /// Reserves like `reserve`, but fails with `Full` instead of reserving a piece that is much smaller than `least`.
    pub fn reserve_from(&mut self, least: usize) -> Result<(), Full> {
        if self.span.as_ref().is_some_and(|s| s.free_len() > 0) {
            return Ok(());
        }
        let len = self.len();
        let mut size = self.wants();
        let least = self.sizes.first.max(least).min(size);
        let arena = self.body.first.arena();
        let writer = loop {
            match SpanWriter::new(arena, size) {
                Ok(writer) => break writer,
                Err(full) if size <= least => return Err(full),
                Err(_) => {
                    let longest = usize::try_from(arena.longest_free()).unwrap_or(usize::MAX);
                    size = longest.clamp(least, size - 1);
                }
            }
        };
        self.next = size.saturating_mul(2).min(self.sizes.max);
        let piece = Piece::new(len, 0, Arc::clone(writer.span()));
        let is_kept = arena.records().is_kept();
        let mut pieces = self.body.pieces.lock();
        if let Some(last) = pieces.last_mut().filter(|_| is_kept) {
            last.add_blocks(true);
        }
        pieces.push(piece);
        drop(pieces);
        self.unchecked = 0;
        self.span = Some(writer);
        Ok(())
    }

    /// Returns the memory for the next bytes; empty unless reserved.
    pub fn window(&mut self) -> &mut [u8] {
        self.span.as_mut().map_or(&mut [], SpanWriter::window)
    }

    /// Makes the first `n` bytes of the window visible to readers.
    pub fn commit(&mut self, n: usize) {
        if let Some(span) = &mut self.span {
            span.commit(n);
            self.body.len.fetch_add(n as u64, Ordering::SeqCst);
            self.body.waiters.wake_readers();
            self.unchecked += n;
            if self.unchecked >= BLOCK {
                self.check_blocks();
            }
        }
    }

    /// Computes the checksums of the blocks that are complete, if another process may read them.
    #[cold]
    fn check_blocks(&mut self) {
        self.unchecked %= BLOCK;
        if self.body.first.arena().records().is_kept()
            && let Some(last) = self.body.pieces.lock().last_mut()
        {
            last.add_blocks(false);
        }
    }

    /// Copies as many bytes as fit into the reserved memory; reserves first if there is none. Returns the number of
    /// bytes copied.
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

    /// Returns the number of bytes written so far.
    pub fn len(&self) -> u64 {
        self.body.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ready when fewer than `limit` bytes are waiting for the reader (`beresp.transit_buffer`).
    pub fn poll_transit(&self, limit: u64, cx: &mut Context<'_>) -> Poll<()> {
        let ready = || self.len().saturating_sub(self.body.delivered.load(Ordering::SeqCst)) < limit;
        if ready() {
            return Poll::Ready(());
        }
        self.body.waiters.set_writer(cx);
        if ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Marks the body as complete, unless it has failed.
    pub fn finish(mut self) {
        self.body.trim(self.span.take());
        self.body.end(COMPLETE);
        self.body.drop_moved(0);
    }

    /// Marks the body as failed.
    pub fn fail(self) {}

    /// Marks the body as failed, and frees the memory that was reserved for the rest of it.
    pub fn cut(mut self) {
        self.body.trim(self.span.take());
    }
}

impl Drop for BodyWriter {
    fn drop(&mut self) {
        if self.body.state() == BodyState::Fetching {
            self.body.end(FAILED);
        }
    }
}
