//! Reads from a device: the request for a part of a body, and the memory for that part.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::span::{Span, SpanWriter};

/// The location of a body on a device. Dropping it frees the location: the device may write there as soon as the last
/// [`Load`] from it has ended.
pub trait Extent: Any + fmt::Debug + Send + Sync {
    /// Starts to read the bytes that `load` requests. Called on the thread of a reader, with no lock held. It must
    /// not wait for the device; it may complete the load at once, or later on any thread.
    fn load(&self, load: Load);

    /// Returns bytes of the body from `offset` on that are in memory of the device: at least one, or `None` if they must
    /// be loaded. Called with no lock held.
    fn bytes_at(&self, offset: u64) -> Option<&[u8]> {
        let _ = offset;
        None
    }

    /// Returns whether the device can be expected to read the body soon. Cheap: called at each lookup that finds the object,
    /// with locks held.
    fn is_available(&self) -> bool {
        true
    }
}

/// The receiver of a load: the body.
pub(crate) trait Receiver: Send + Sync {
    /// Receives the bytes at `from`; there is at least one.
    fn loaded(&self, from: u64, bytes: Arc<Span>);

    /// Records that the bytes cannot be read.
    fn failed(&self);
}

/// A request to a device for a part of a body. It owns its memory, so the object may be dropped in the meantime.
/// Dropping a load makes it fail.
pub struct Load {
    from: u64,
    wanted: usize,
    /// `None` once the load has ended.
    writer: Option<SpanWriter>,
    receiver: Weak<dyn Receiver>,
}

impl Load {
    pub(crate) fn new(from: u64, wanted: usize, writer: SpanWriter, receiver: Weak<dyn Receiver>) -> Self {
        Self { from, wanted, writer: Some(writer), receiver }
    }

    /// Returns the offset in the body of the next missing byte.
    pub fn position(&self) -> u64 {
        self.from + self.filled() as u64
    }

    fn filled(&self) -> usize {
        self.writer.as_ref().map_or(0, |writer| writer.span().len())
    }

    /// Returns the memory for the missing bytes. It is empty when none are missing.
    pub fn window(&mut self) -> &mut [u8] {
        let missing = self.wanted - self.filled();
        self.writer.as_mut().map_or(&mut [], |writer| &mut writer.window()[..missing])
    }

    /// Records that the first `n` bytes of the window were read.
    pub fn advance(&mut self, n: usize) {
        let n = n.min(self.wanted - self.filled());
        if let Some(writer) = &mut self.writer {
            writer.commit(n);
        }
    }

    /// Returns whether the object still exists. If not, the bytes are not used.
    pub fn is_wanted(&self) -> bool {
        self.receiver.strong_count() > 0
    }

    /// Ends the load with the bytes that were read, which may be fewer than requested. Another load requests the
    /// rest. A load without any bytes fails.
    pub fn finish(mut self) {
        if self.filled() == 0 {
            return;
        }
        let Some(mut writer) = self.writer.take() else { return };
        writer.trim();
        if let Some(receiver) = self.receiver.upgrade() {
            receiver.loaded(self.from, Arc::clone(writer.span()));
        }
    }

    /// Ends the load because the device cannot read the bytes. The body fails, and with it all responses that need
    /// it.
    pub fn fail(self) {}
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.writer.take().is_some()
            && let Some(receiver) = self.receiver.upgrade()
        {
            receiver.failed();
        }
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Load({} bytes at {}, {} read)", self.wanted, self.from, self.filled())
    }
}
