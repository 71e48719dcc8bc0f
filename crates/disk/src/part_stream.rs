//! Large bodies that are written part by part while they are fetched, before their objects are complete. The record with
//! the head follows when the object is committed. Without it, the parts are never found again.

use std::fmt;
use std::sync::Arc;

use crate::large::Stretch;
use crate::record::{FIXED, Meta, part_len};
use crate::state::{Phase, Queued};
use crate::store::Store;
use crate::stream::{PartSource, StreamedParts};

/// A large body that is written while it is fetched. The segments of its parts are not reused while this exists.
pub struct PartStream {
    store: Arc<Store>,
    pub(crate) parts: Arc<StreamedParts>,
}

impl Store {
    /// Begins to write a body in parts. Returns `None` if the device is out of use, or the index is still being read: nothing
    /// is written until then. The object need not be committed.
    pub fn begin_stream(
        self: &Arc<Self>,
        meta: Meta,
        source: Box<dyn PartSource>,
    ) -> Option<Arc<PartStream>> {
        if self.phase() != Phase::Working {
            return None;
        }
        let parts = Arc::new(StreamedParts::new(self.layout, meta, source));
        Some(Arc::new(PartStream { store: Arc::clone(self), parts }))
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
    pub fn push(&self, len: u64) {
        let Some(part) = self.parts.next(len) else { return self.stop() };
        let queued = Queued::part(part);
        let refused = {
            let mut state = self.store.state.lock();
            let is_used = !state.phase.is_out();
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
        self.parts.is_stopped()
    }

    /// Ends the writing: the object will not be stored.
    pub fn stop(&self) {
        self.parts.stop();
    }

    /// Fills the window with the bytes of the body from an offset on that were written, or its beginning. Returns their
    /// number: 0 after the last that was written. `None` if they are damaged or cannot be read.
    pub fn read(&self, from: u64, window: &mut [u8]) -> Option<usize> {
        let part = self.store.part_len();
        if from >= self.parts.written() || window.is_empty() {
            return Some(0);
        }
        let (log, written) = self.parts.place_of(from)?;
        let start = from / part * part;
        let place = self.store.layout.place(log);
        let stretch = Stretch { place, log, start, len: part.min(written - start) };
        let read = self.store.read_stretch(stretch, FIXED as u64, from, window);
        read.inspect_err(|fault| self.store.note_fault(*fault, place)).ok()
    }
}

impl fmt::Debug for PartStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartStream({} bytes written)", self.parts.written())
    }
}
