//! A large object that is being written: its body part by part, with other objects between them, and then its head.

use crate::layout::Layout;
use crate::record::large_record_len;
use crate::state::{Queued, Source};

/// A large object that is being written.
pub(crate) struct LargeWrite {
    pub(crate) queued: Queued,
    /// The log positions of the parts that were written.
    pub(crate) places: Vec<u64>,
    /// Whether all parts are durable.
    pub(crate) is_durable: bool,
    /// The number of bytes of parts that are written before the next other object.
    pub(crate) turn: u64,
}

impl LargeWrite {
    pub(crate) fn new(queued: Queued) -> Self {
        Self { queued, places: Vec::new(), is_durable: false, turn: 0 }
    }

    /// Returns the log positions of the parts, which must be durable. `None` if they were not all written.
    pub(crate) fn take_places(&mut self) -> Option<Vec<u64>> {
        match &self.queued.source {
            Source::Streamed(content, stream) => stream.places(content.parts().body_len),
            _ => Some(std::mem::take(&mut self.places)),
        }
    }

    /// Returns whether the parts were passed to the writer before.
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self.queued.source, Source::Streamed(..))
    }

    /// Records that `len` bytes of another object were written: it is the turn of as many bytes of parts.
    pub(crate) fn let_go_first(&mut self, len: u64) {
        self.turn += len;
    }

    /// Copies bytes of the body from an offset on. Returns their number.
    pub(crate) fn read(&self, from: u64, window: &mut [u8]) -> usize {
        match &self.queued.source {
            Source::Content(content) => content.read(from, window),
            _ => 0,
        }
    }

    /// Returns the length of the body.
    pub(crate) fn body(&self) -> u64 {
        match &self.queued.source {
            Source::Content(content) | Source::Streamed(content, _) => content.parts().body_len,
            _ => 0,
        }
    }

    /// Returns the length of the record with the head.
    pub(crate) fn head_len(&self, layout: &Layout) -> u64 {
        match &self.queued.source {
            Source::Content(content) | Source::Streamed(content, _) => {
                large_record_len(layout, &content.parts())
            }
            _ => 0,
        }
    }
}
