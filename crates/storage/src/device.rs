//! Stores whose bodies lie on a device: the operations that such a device implements.
//!
//! The head of every object stays in the arena of its store, and so does a body until the device has written it. What
//! is not in memory is read part by part, like a fetch that everybody follows: readers wait for a part, find it in
//! memory, and go on. Readers in memory never come here.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use crate::body::{Body, Chunk};
use crate::load::Extent;

/// A device that keeps objects.
pub trait Device: fmt::Debug + Send + Sync {
    /// Takes a complete object over, to write it now or later, or never. Called once for each object, on the thread that
    /// completed it, with no lock held; it must not wait for the device. `about` is what [`Survivor::about`] gives back.
    fn commit(&self, object: Committed, about: &[u8]);

    /// Passes on every object that was written whole and whose extent was not dropped before the last process ended, once.
    /// Called once, before any other operation, with no lock held; it may wait for the device. A survivor that is
    /// dropped is freed.
    fn recover(&self, found: &mut dyn FnMut(Survivor)) -> io::Result<()>;
}

/// A complete object that waits to be written. It does not keep the object: one that is dropped before need not be
/// written.
#[derive(Debug)]
pub struct Committed(Weak<Body>);

impl Committed {
    pub(crate) fn new(body: &Arc<Body>) -> Self {
        Self(Arc::downgrade(body))
    }

    /// Begins to write the object. Returns `None` if it was dropped.
    pub fn open(self) -> Option<Writing> {
        self.0.upgrade().map(Writing)
    }
}

/// An object that is being written. Its memory stays until this is dropped or settled.
#[derive(Debug)]
pub struct Writing(Arc<Body>);

impl Writing {
    pub fn head(&self) -> &[u8] {
        self.0.head()
    }

    /// Returns the data that filters left behind.
    pub fn extra(&self) -> &[u8] {
        self.0.extra()
    }

    /// Returns the length of the body.
    pub fn body_len(&self) -> u64 {
        self.0.len()
    }

    /// Returns the longest contiguous part of the body from `offset` on.
    pub fn chunk_at(&self, offset: u64) -> Option<Chunk<'_>> {
        self.0.chunk_at(offset)
    }

    /// Ends the writing: from now on the body lies at `extent`, and its memory is free when its readers have gone. What
    /// shares a span with the head stays in memory.
    pub fn settle(self, extent: Box<dyn Extent>) {
        self.0.settle(extent);
    }
}

/// An object that a device still has from before.
#[derive(Debug)]
pub struct Survivor {
    pub about: Vec<u8>,
    pub head: Vec<u8>,
    pub extra: Vec<u8>,
    pub body_len: u64,
    pub extent: Box<dyn Extent>,
}
