//! The parts of a large body that are written while it is fetched: what waits to be written, and what was written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::layout::Layout;
use crate::record::{Meta, part_len};

/// The memory of a body that is written while it is fetched. Called with no lock held.
pub trait PartSource: Send + Sync + 'static {
    /// Copies bytes of the body from an offset on to the beginning of the window. Returns their number: 0 if they are not
    /// in memory any more.
    fn read(&self, from: u64, window: &mut [u8]) -> usize;

    /// Receives the number of bytes of the body that can be read from the store from now on.
    fn written(&self, to: u64);

    /// Learns that no more bytes will be written.
    fn stopped(&self);
}

/// The parts of a body. The segments of those that were written are not reused while this exists.
pub(crate) struct StreamedParts {
    pub(crate) meta: Meta,
    layout: Layout,
    source: Box<dyn PartSource>,
    progress: Mutex<Progress>,
    is_stopped: AtomicBool,
}

#[derive(Default)]
struct Progress {
    /// The number of bytes in parts that were passed to the writer, and of those that were written.
    pushed: u64,
    written: u64,
    /// The log positions of the parts that were written.
    places: Vec<u64>,
    /// The pins of their segments, and the epoch of the last.
    pins: Vec<Arc<()>>,
    last_epoch: u64,
}

/// A part that waits to be written. If it is dropped before, its stream stops.
pub(crate) struct QueuedPart {
    parts: Arc<StreamedParts>,
    from: u64,
    pub(crate) len: u64,
    is_written: bool,
}

impl StreamedParts {
    pub(crate) fn new(layout: Layout, meta: Meta, source: Box<dyn PartSource>) -> Self {
        let (progress, is_stopped) = (Mutex::default(), AtomicBool::new(false));
        Self { meta, layout, source, progress, is_stopped }
    }

    /// Returns the next part, with the following `len` bytes. `None` if that is not possible.
    pub(crate) fn next(self: &Arc<Self>, len: u64) -> Option<QueuedPart> {
        let (mut progress, part) = (self.progress.lock(), part_len(&self.layout));
        let from = progress.pushed;
        if len == 0 || len > part || !from.is_multiple_of(part) {
            return None;
        }
        progress.pushed += len;
        Some(QueuedPart { parts: Arc::clone(self), from, len, is_written: false })
    }

    /// Returns whether the rest of the body will not be written.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Ends the writing: the object will not be stored.
    pub(crate) fn stop(&self) {
        if !self.is_stopped.swap(true, Ordering::SeqCst) {
            self.source.stopped();
        }
    }

    /// Returns the number of bytes that were written.
    pub(crate) fn written(&self) -> u64 {
        self.progress.lock().written
    }

    /// Returns the log position of the part with a byte that was written, and the number of bytes that were.
    pub(crate) fn place_of(&self, at: u64) -> Option<(u64, u64)> {
        let progress = self.progress.lock();
        let log = progress.places.get(usize::try_from(at / part_len(&self.layout)).ok()?)?;
        Some((*log, progress.written))
    }

    /// Returns the log positions of the parts, if all of a body of `len` bytes was written.
    pub(crate) fn places(&self, len: u64) -> Option<Vec<u64>> {
        let progress = self.progress.lock();
        (progress.written == len && !self.is_stopped()).then(|| progress.places.clone())
    }
}

impl QueuedPart {
    pub(crate) fn meta(&self) -> Meta {
        self.parts.meta
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.parts.is_stopped()
    }

    /// Copies bytes of the part.
    pub(crate) fn read(&self, from: u64, window: &mut [u8]) -> usize {
        self.parts.source.read(self.from + from, window)
    }

    /// Records that the part is at a log position.
    pub(crate) fn written(mut self, log: u64, pin: Arc<()>) {
        self.is_written = true;
        let to = {
            let mut progress = self.parts.progress.lock();
            progress.places.push(log);
            progress.written += self.len;
            let epoch = log / self.parts.layout.segment;
            if epoch != progress.last_epoch {
                progress.last_epoch = epoch;
                progress.pins.push(pin);
            }
            progress.written
        };
        self.parts.source.written(to);
    }
}

impl Drop for QueuedPart {
    fn drop(&mut self) {
        if !self.is_written {
            self.parts.stop();
        }
    }
}
