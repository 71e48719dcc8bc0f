//! Bodies that move to a device while they are written, because they are long compared with the memory.
//!
//! Each byte of such a body is in memory, or on the device, or in both. The device first has a byte; only then does its
//! piece leave memory, unless it is the last one, which the writer fills.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::body::{Body, BodyState, BodyWriter};
use crate::load::Extent;
use crate::residency::Residency;

/// A body that moves to a device, for the device. It does not keep the body alive.
#[derive(Clone, Debug)]
pub struct Transfer(Weak<Body>);

impl Transfer {
    /// Copies bytes from an offset on to the beginning of the window. Returns their number: 0 if they are not in memory.
    pub fn read(&self, from: u64, window: &mut [u8]) -> usize {
        let Some(chunk) = self.0.upgrade().and_then(|body| body.piece_at(from)) else { return 0 };
        let length = chunk.len().min(window.len());
        window[..length].copy_from_slice(&chunk.bytes()[..length]);
        length
    }

    /// Records that the device has the bytes before `to`. They leave memory, except for the last `keep` bytes of the body
    /// while it is written.
    pub fn advance(&self, to: u64, keep: u64) {
        let Some(body) = self.0.upgrade() else { return };
        if let Some(residency) = body.residency() {
            residency.set_end(to);
        }
        body.drop_moved(keep);
        body.waiters.wake_mover();
    }

    /// Records that the device takes no more bytes. The others stay in memory.
    pub fn stop(&self) {
        let Some(body) = self.0.upgrade() else { return };
        if let Some(residency) = body.residency() {
            residency.stop();
        }
        body.waiters.wake_mover();
    }
}

impl BodyWriter {
    /// Returns the body for a device to which it will move.
    pub fn transfer(&self) -> Transfer {
        Transfer(Arc::downgrade(&self.body))
    }

    /// Declares that the body moves to `extent`. Loads request only bytes that [`Transfer::advance`] has reported. Returns
    /// false if it moves already.
    pub fn move_to(&self, extent: Box<dyn Extent>) -> bool {
        self.body.residency.set(Arc::new(Residency::growing(extent))).is_ok()
    }

    /// Returns the length of the body, if it is known.
    pub fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Returns whether the body has failed, because a part of it cannot be read any more.
    pub fn has_failed(&self) -> bool {
        self.body.state() == BodyState::Failed
    }

    /// Drops everything from memory that is on the device.
    pub fn drop_moved(&self) {
        self.body.drop_moved(0);
        self.body.first().arena().parts().drop_all();
    }

    /// Ready when fewer than `limit` bytes wait to be moved to the device, or it takes no more, or the body has failed.
    pub fn poll_moved(&self, limit: u64, cx: &Context<'_>) -> Poll<()> {
        let Some(residency) = self.body.residency() else { return Poll::Ready(()) };
        let is_ready = || {
            self.len().saturating_sub(residency.end()) < limit || residency.is_stopped() || self.has_failed()
        };
        if is_ready() {
            return Poll::Ready(());
        }
        self.body.waiters.set_mover(cx);
        if is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns the number of bytes that the device has.
    pub fn moved(&self) -> u64 {
        self.body.residency().map_or(0, |residency| residency.end().min(self.len()))
    }
}
