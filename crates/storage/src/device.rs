//! Stores whose bodies are on a device, and the operations that such a device implements.
//!
//! The head of every object stays in the arena of its store, and so does a body until the device has written it.
//! Bytes that are not in memory are loaded part by part, as in a fetch with several readers: readers wait for a part,
//! find it in memory, and continue. Reads of bytes in memory do not use this module.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use crate::body::Body;
use crate::chunk::Chunk;
use crate::load::Extent;

/// A device that stores objects.
pub trait Device: fmt::Debug + Send + Sync {
    /// Accepts a complete object, to be written now, later or never. Called once for each object, on the thread that
    /// completed it, with no lock held; it must not wait for the device. `descriptor` is returned by recovery in
    /// [`Recovered::descriptor`].
    fn commit(&self, object: Committed, descriptor: &[u8]);

    /// Passes every object to `found` that was completely written and whose extent was not dropped before the last
    /// process ended. Called once, before any other operation, with no lock held; it may wait for the device. An
    /// object that is dropped is freed.
    fn recover(&self, found: &mut dyn FnMut(Recovered)) -> io::Result<()>;
}

/// A complete object that waits to be written. It does not keep the object alive: an object that is dropped earlier
/// need not be written.
#[derive(Debug)]
pub struct Committed(Weak<Body>);

impl Committed {
    pub(crate) fn new(body: &Arc<Body>) -> Self {
        Self(Arc::downgrade(body))
    }

    /// Begins writing the object. Returns `None` if the object was dropped.
    pub fn open(self) -> Option<Writing> {
        self.0.upgrade().map(Writing)
    }
}

/// An object that is being written. Its memory is kept until this is dropped or settled.
#[derive(Debug)]
pub struct Writing(Arc<Body>);

impl Writing {
    pub fn head(&self) -> &[u8] {
        self.0.head()
    }

    /// Returns the data that filters produced.
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

    /// Ends the writing. From now on the body is at `extent`, and its memory is freed when its readers are done. A
    /// part that shares a span with the head stays in memory.
    pub fn settle(self, extent: Box<dyn Extent>) {
        self.0.settle(extent);
    }
}

/// An object that a device contains from a previous process.
#[derive(Debug)]
pub struct Recovered {
    pub descriptor: Vec<u8>,
    pub head: Vec<u8>,
    pub extra: Vec<u8>,
    pub body_len: u64,
    pub extent: Box<dyn Extent>,
}
