//! The parts in memory of a body that lies on a device, and the loads that will bring others.
//!
//! Parts that were read go first, oldest first. A part that nobody has read yet stays, so that a reader finds what it
//! waited for, unless there are very many.

use std::sync::{Arc, Weak};

use crate::arena::{Arena, Full};
use crate::load::{Extent, Load, Receiver};
use crate::span::{Span, SpanWriter};
use crate::sync::Mutex;

/// Bytes of a load.
const LOAD: u64 = 128 * 1024;
/// The shortest load, where memory is full of small objects.
const LOAD_LEAST: usize = 256;
/// Parts of one body that stay in memory after they were read.
const READ_PARTS: usize = 2;
/// Parts of one body in memory.
const PARTS: usize = 64;
/// Objects that are evicted for one load at most, and those after which a shorter load will do.
const EVICTIONS: u32 = 64;
const PATIENCE: u32 = 8;

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
    /// The beginnings and ends of the loads under way.
    loading: Vec<(u64, u64)>,
}

impl Loaded {
    /// Notes a load from `at` on, and returns its length. Returns `None` if the byte is there or on its way.
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

    fn forget(&mut self, from: u64) {
        self.loading.retain(|load| load.0 != from);
    }

    /// Adds a part. Returns the one that goes for it.
    fn insert(&mut self, part: Part) -> Option<Part> {
        self.forget(part.start);
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

/// The place of a body on a device, with the parts of it that are in memory.
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
        // What goes is dropped with the lock released.
        let _goes = self.loaded.lock().insert(part);
    }

    /// Lets go of all parts in memory.
    pub(crate) fn clear(&self) {
        let _gone = std::mem::take(&mut self.loaded.lock().parts);
    }

    /// Lets go of the parts that were read.
    fn clear_read(&self) {
        let _gone: Vec<Part> = self.loaded.lock().parts.extract_if(.., |part| part.was_read).collect();
    }

    pub(crate) fn owns_pages(&self) -> bool {
        self.loaded.lock().parts.iter().any(|part| part.span.owns_pages())
    }

    /// Starts a load of the byte at `at` and those behind it, up to `end`, unless one is under way. Fails if there is no
    /// memory for it, though everything was evicted that can be.
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
        let writer = found.inspect_err(|_| self.loaded.lock().forget(at))?;
        let wanted = length.min(writer.room());
        self.extent.load(Load::new(at, wanted, writer, receiver));
        Ok(())
    }
}

/// Allocates memory for a load, and has objects evicted for it. When that frees small pieces only, one of those will do.
fn allocate(arena: &Arc<Arena>, wanted: usize) -> Result<SpanWriter, Full> {
    for evicted in 0..EVICTIONS {
        if let Ok(writer) = SpanWriter::new(arena, wanted) {
            return Ok(writer);
        }
        if evicted >= PATIENCE
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
