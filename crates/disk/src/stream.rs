//! Large bodies that are written part by part while they are fetched, before their objects are complete. The record with
//! the head follows when the object is committed. Without it, the parts are never found again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::large::Stretch;
use crate::record::{FIXED, Key, Meta, part_len};
use crate::state::{Phase, Queued};
use crate::store::Store;

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

/// A large body that is written while it is fetched. The segments of its parts are not reused while this exists.
pub struct PartStream {
    pub(crate) store: Arc<Store>,
    pub(crate) meta: Meta,
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
    pub(crate) stream: Arc<PartStream>,
    from: u64,
    pub(crate) len: u64,
    is_written: bool,
}

impl Store {
    /// Begins to write a body in parts. Returns `None` if the device is out of use. The object need not be committed.
    pub fn begin_stream(
        self: &Arc<Self>,
        meta: Meta,
        source: Box<dyn PartSource>,
    ) -> Option<Arc<PartStream>> {
        if matches!(self.phase(), Phase::Failing | Phase::Failed) {
            return None;
        }
        Some(Arc::new(PartStream {
            store: Arc::clone(self),
            meta,
            source,
            progress: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        }))
    }

    /// Returns the length of the parts of a body, except for the last.
    pub fn part_len(&self) -> u64 {
        part_len(&self.layout)
    }

    /// Returns the length of the longest body that may be stored.
    pub fn longest_body(&self) -> u64 {
        self.options().max.min(self.layout.largest_body())
    }
}

impl PartStream {
    /// Passes the next part to the writer: the following [`Store::part_len`] bytes, or fewer if it is the last.
    pub fn push(self: &Arc<Self>, len: u64) {
        let from = {
            let mut progress = self.progress.lock();
            let from = progress.pushed;
            progress.pushed += len;
            from
        };
        let part = QueuedPart { stream: Arc::clone(self), from, len, is_written: false };
        if len == 0 || len > self.store.part_len() || !from.is_multiple_of(self.store.part_len()) {
            return;
        }
        let queued = Queued::part(part);
        let refused = {
            let mut state = self.store.state.lock();
            let is_used = matches!(state.phase, Phase::Recovering | Phase::Working);
            if is_used && !self.is_stopped() {
                state.queue.push_back(queued);
                None
            } else {
                Some(queued)
            }
        };
        self.store.has_objects.notify_one();
        // Dropped with no lock held.
        drop(refused);
    }

    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns whether the rest of the body will not be written.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Ends the writing: the object will not be stored.
    pub fn stop(&self) {
        if !self.is_stopped.swap(true, Ordering::SeqCst) {
            self.source.stopped();
        }
    }

    pub fn key(&self) -> &Key {
        &self.meta.key
    }

    /// Fills the window with the bytes of the body from an offset on that were written, or its beginning. Returns their
    /// number: 0 after the last that was written. `None` if they are damaged or cannot be read.
    pub fn read(&self, from: u64, window: &mut [u8]) -> Option<usize> {
        let part = self.store.part_len();
        let stretch = {
            let progress = self.progress.lock();
            if from >= progress.written || window.is_empty() {
                return Some(0);
            }
            let log = *progress.places.get(usize::try_from(from / part).ok()?)?;
            let start = from / part * part;
            Stretch {
                place: self.store.layout.place(log),
                log,
                start,
                len: part.min(progress.written - start),
            }
        };
        let read = self.store.read_stretch(stretch, FIXED as u64, from, window);
        read.inspect_err(|fault| self.store.note_fault(*fault, stretch.place)).ok()
    }

    /// Returns the log positions of the parts, if all of a body of `len` bytes was written.
    pub(crate) fn places(&self, len: u64) -> Option<Vec<u64>> {
        let progress = self.progress.lock();
        (progress.written == len && !self.is_stopped()).then(|| progress.places.clone())
    }
}

impl QueuedPart {
    /// Copies bytes of the part.
    pub(crate) fn read(&self, from: u64, window: &mut [u8]) -> usize {
        self.stream.source.read(self.from + from, window)
    }

    /// Records that the part is at a log position.
    pub(crate) fn written(mut self, log: u64, pin: Arc<()>) {
        self.is_written = true;
        let to = {
            let mut progress = self.stream.progress.lock();
            progress.places.push(log);
            progress.written += self.len;
            let epoch = log / self.stream.store.layout.segment;
            if epoch != progress.last_epoch {
                progress.last_epoch = epoch;
                progress.pins.push(pin);
            }
            progress.written
        };
        self.stream.source.written(to);
    }
}

impl Drop for QueuedPart {
    fn drop(&mut self) {
        if !self.is_written {
            self.stream.stop();
        }
    }
}

impl fmt::Debug for PartStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = self.progress.lock();
        write!(f, "PartStream({} of {} bytes written)", progress.written, progress.pushed)
    }
}
