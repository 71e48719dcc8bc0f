//! A reference to an object. References from a front table are counted within the thread only, and the hits of such
//! an object are added in batches.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::object::{EXACT_HITS, Object};

const BATCH: u32 = 64;

/// A reference to an object. It is counted in this thread only if it came from the front table.
#[derive(Clone)]
pub struct ObjRef(Ref);

#[derive(Clone)]
enum Ref {
    Shared(Arc<Object>),
    Local(Rc<Pinned>),
}

/// An object in a front table, with the hits that were not added to it yet.
pub(crate) struct Pinned {
    object: Arc<Object>,
    hits: Cell<u32>,
}

impl Pinned {
    /// Wraps an object that the caller has pinned.
    pub(crate) fn new(object: Arc<Object>) -> Self {
        Self { object, hits: Cell::new(0) }
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    #[inline]
    pub(crate) fn hit(&self) {
        if self.object.hits() < EXACT_HITS {
            self.object.hit(1);
            return;
        }
        self.hits.set(self.hits.get() + 1);
        if self.hits.get() >= BATCH {
            self.object.hit(self.hits.take());
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.object.unpin();
    }
}

impl ObjRef {
    /// Returns a reference that is counted across all threads.
    pub fn shared(object: Arc<Object>) -> Self {
        Self(Ref::Shared(object))
    }

    /// Returns a reference that is counted in this thread only.
    #[inline]
    pub(crate) fn local(pinned: Rc<Pinned>) -> Self {
        Self(Ref::Local(pinned))
    }

    /// Returns whether it came from a front table.
    pub fn is_local(&self) -> bool {
        matches!(self.0, Ref::Local(_))
    }

    /// Returns a reference that can be sent to other threads.
    pub fn to_shared(&self) -> Arc<Object> {
        match &self.0 {
            Ref::Shared(object) => Arc::clone(object),
            Ref::Local(pinned) => Arc::clone(&pinned.object),
        }
    }
}

impl From<Arc<Object>> for ObjRef {
    fn from(object: Arc<Object>) -> Self {
        Self::shared(object)
    }
}

impl Deref for ObjRef {
    type Target = Object;

    fn deref(&self) -> &Object {
        match &self.0 {
            Ref::Shared(object) => object,
            Ref::Local(pinned) => &pinned.object,
        }
    }
}

impl std::fmt::Debug for ObjRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
