//! The parts in memory of a body that is on a device, and the loads that will bring others.
//!
//! Parts that were read are dropped first, oldest first. A part that was not read yet is kept, so that the reader
//! that waits for it finds it, unless there are very many parts.

use std::sync::{Arc, Weak};

use crate::arena::{Arena, Full};
use crate::load::{Extent, Load, Receiver};
use crate::span::{Span, SpanWriter};
use crate::sync::Mutex;

/// The maximum length of a load, in bytes.
const LOAD: u64 = 128 * 1024;
/// The length of the shortest load, for memory that is full of small objects.
const LOAD_LEAST: usize = 256;
/// The number of parts of one body that stay in memory after they were read.
const READ_PARTS: usize = 2;
/// The maximum number of parts of one body in memory.
const PARTS: usize = 64;
/// The maximum number of objects that are evicted for one load, and the number after which a shorter load is tried.
const EVICTIONS: u32 = 64;
const EVICTIONS_BEFORE_SHORTER: u32 = 8;

#[derive(Debug)]
struct Part {
    start: u64,
    span: Arc<Span>,
    was_read: bool,
}

impl Part {
    fn has(&self, at: u64) -> bool {
        self.start <= at && at - self.start < self.span.len() as u64
    }
}

#[derive(Debug, Default)]
struct Loaded {
    /// Oldest first.
    parts: Vec<Part>,
    /// The beginning and end of each load in progress.
    loading: Vec<(u64, u64)>,
}

impl Loaded {
    /// Registers a load from `at` on, and returns its length. Returns `None` if the byte is in memory or is being
    /// loaded.
    fn plan(&mut self, at: u64, end: u64) -> Option<u64> {
        let is_loading = self.loading.iter().any(|&(from, to)| from <= at && at < to);
        if at >= end || is_loading || self.parts.iter().any(|part| part.has(at)) {
            return None;
        }
        let begins = self.parts.iter().map(|p| p.start).chain(self.loading.iter().map(|l| l.0));
        let next = begins.filter(|&start| start > at).min().unwrap_or(end);
        let length = LOAD.min(next.min(end) - at);
        self.loading.push((at, at + length));
        Some(length)
    }

    fn end_loading(&mut self, from: u64) {
        self.loading.retain(|load| load.0 != from);
    }

    /// Adds a part. Returns the part that is dropped for it, if any.
    fn insert(&mut self, part: Part) -> Option<Part> {
        self.end_loading(part.start);
        self.parts.push(part);
        let read = self.parts.iter().filter(|part| part.was_read).count();
        let goes = match self.parts.iter().position(|part| part.was_read) {
            Some(first) if read > READ_PARTS || self.parts.len() > PARTS => Some(first),
            None if self.parts.len() > PARTS => Some(0),
            _ => None,
        };
        goes.map(|index| self.parts.remove(index))
    }
}

/// The location of a body on a device, and the parts of it that are in memory.
#[derive(Debug)]
pub(crate) struct Residency {
    extent: Box<dyn Extent>,
    loaded: Mutex<Loaded>,
}

impl Residency {
    pub(crate) fn new(extent: Box<dyn Extent>) -> Self {
        Self { extent, loaded: Mutex::default() }
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        self.loaded.lock().parts.iter().any(|part| part.has(at))
    }

    /// Returns the part with the byte at `at`, and the byte's index in it.
    pub(crate) fn part_at(&self, at: u64) -> Option<(Arc<Span>, usize)> {
        let mut loaded = self.loaded.lock();
        let part = loaded.parts.iter_mut().find(|part| part.has(at))?;
        part.was_read = true;
        Some((Arc::clone(&part.span), (at - part.start) as usize))
    }

    pub(crate) fn insert(&self, start: u64, span: Arc<Span>) {
        let part = Part { start, span, was_read: false };
        // The old part is dropped after the lock is released.
        let _goes = self.loaded.lock().insert(part);
    }

    /// Drops all parts in memory.
    pub(crate) fn clear(&self) {
        let _gone = std::mem::take(&mut self.loaded.lock().parts);
    }

    /// Drops the parts that were read.
    fn clear_read(&self) {
        let _gone: Vec<Part> = self.loaded.lock().parts.extract_if(.., |part| part.was_read).collect();
    }

    pub(crate) fn owns_pages(&self) -> bool {
        self.loaded.lock().parts.iter().any(|part| part.span.owns_pages())
    }

    /// Starts a load of the byte at `at` and the following ones, up to `end`, unless one is in progress. Fails if
    /// there is no memory for it after all evictions.
    pub(crate) fn load(
        &self,
        receiver: Weak<dyn Receiver>,
        arena: &Arc<Arena>,
        at: u64,
        end: u64,
    ) -> Result<(), Full> {
        let Some(length) = self.loaded.lock().plan(at, end) else { return Ok(()) };
        let length = length as usize;
        let found = allocate(arena, length).or_else(|_| {
            self.clear_read();
            allocate(arena, length)
        });
        let writer = found.inspect_err(|_| self.loaded.lock().end_loading(at))?;
        let wanted = length.min(writer.room());
        self.extent.load(Load::new(at, wanted, writer, receiver));
        Ok(())
    }
}

/// Allocates memory for a load, and evicts objects for it. If that frees only small pieces, one of those is used.
fn allocate(arena: &Arc<Arena>, wanted: usize) -> Result<SpanWriter, Full> {
    for evicted in 0..EVICTIONS {
        if let Ok(writer) = SpanWriter::new(arena, wanted) {
            return Ok(writer);
        }
        if evicted >= EVICTIONS_BEFORE_SHORTER
            && let Ok(writer) = allocate_less(arena, wanted)
        {
            return Ok(writer);
        }
        if !arena.make_room() {
            break;
        }
    }
    allocate_less(arena, wanted)
}

fn allocate_less(arena: &Arc<Arena>, wanted: usize) -> Result<SpanWriter, Full> {
    let longest = usize::try_from(arena.longest_free()).unwrap_or(usize::MAX);
    let sizes = [longest, arena.max_small(), LOAD_LEAST];
    let mut fitting = sizes.into_iter().filter(|&size| size > 0).map(|size| size.min(wanted));
    fitting.find_map(|size| SpanWriter::new(arena, size).ok()).ok_or(Full)
}
