//! The body of an object in memory that is in a store.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use lacquer_disk::{Loaded, PartStream, Running, StoredBody};
use lacquer_storage::{Extent, Load};

use crate::locks::Mutex;
use crate::object::Object;

/// A body in a store. Its segment is not reused while this exists.
pub(crate) struct DiskBody {
    running: Arc<Running>,
    body: StoredBody,
    /// The beginning of the body, which was read with the head, until it is used or others are newer.
    beginning: Mutex<Option<Loaded>>,
}

/// The number of bodies that keep the beginning that was read with the head. Each has up to 276 kB.
pub(crate) const MOST_BEGINNINGS: usize = 32;

/// The bodies that may have their beginnings in memory, the oldest first. Without a limit, requests that need no byte of a
/// body would fill the memory.
#[derive(Debug, Default)]
pub(crate) struct Beginnings(Mutex<VecDeque<Weak<DiskBody>>>);

impl Beginnings {
    /// Adds a body. Drops the beginning of the oldest one if there are too many.
    fn add(&self, body: &Arc<DiskBody>) {
        let mut bodies = self.0.lock();
        bodies.push_back(Arc::downgrade(body));
        let oldest = if bodies.len() > MOST_BEGINNINGS { bodies.pop_front() } else { None };
        drop(bodies);
        if let Some(oldest) = oldest.and_then(|body| body.upgrade()) {
            drop(oldest.take_beginning());
        }
    }

    /// Returns the number of beginnings in memory.
    #[cfg(all(test, not(any(loom, miri))))]
    pub(crate) fn count(&self) -> usize {
        let bodies = self.0.lock();
        bodies.iter().filter_map(Weak::upgrade).filter(|body| body.beginning.lock().is_some()).count()
    }
}

impl DiskBody {
    pub(crate) fn new(running: &Arc<Running>, loaded: Loaded, beginnings: &Beginnings) -> Arc<Self> {
        let (running, body) = (Arc::clone(running), loaded.body());
        let beginning = (loaded.present() > 0).then_some(loaded);
        let has_beginning = beginning.is_some();
        let this = Arc::new(Self { running, body, beginning: Mutex::new(beginning) });
        if has_beginning {
            beginnings.add(&this);
        }
        this
    }

    fn take_beginning(&self) -> Option<Loaded> {
        self.beginning.lock().take()
    }
}

/// A reference to a body in a store.
#[derive(Debug)]
pub(crate) struct DiskExtent(pub(crate) Arc<DiskBody>);

impl Extent for DiskExtent {
    fn load(&self, load: Load) {
        // A reader of another part does not need the beginning.
        let beginning = self.0.take_beginning();
        match beginning.filter(|_| load.position() == 0) {
            Some(loaded) => fill(load, |from, window| loaded.read_at(from, window)),
            None => {
                let body = self.0.body.clone();
                self.0.running.read(move || fill(load, |from, window| body.read(from, window)));
            }
        }
    }

    fn is_available(&self) -> bool {
        self.0.running.store().responds()
    }
}

/// Returns the store with the body of an object.
pub(crate) fn store_of(object: &Object) -> Option<&Arc<Running>> {
    let extent: &dyn Any = object.stored().extent()?;
    let complete = extent.downcast_ref().map(|DiskExtent(body)| &body.running);
    complete.or_else(|| extent.downcast_ref().map(|spilled: &SpillExtent| &spilled.running))
}

/// Fills the memory of a load as far as there are bytes.
fn fill(mut load: Load, read: impl Fn(u64, &mut [u8]) -> Option<usize>) {
    while load.is_wanted() && !load.window().is_empty() {
        let from = load.position();
        match read(from, load.window()) {
            // The body is damaged, and fails.
            None => return load.fail(),
            Some(0) => break,
            Some(length) => load.advance(length),
        }
    }
    load.finish();
}

impl fmt::Debug for DiskBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskBody({:?})", self.running.store())
    }
}

/// A body that was written while it was fetched.
pub(crate) struct SpillExtent {
    pub(crate) running: Arc<Running>,
    pub(crate) stream: Arc<PartStream>,
    /// The index of its store.
    pub(crate) disk: usize,
}

impl SpillExtent {
    /// Returns the location of an object's body, if it was written while it was fetched.
    pub(crate) fn of(object: &Object) -> Option<&Self> {
        let extent: &dyn Any = object.stored().extent()?;
        extent.downcast_ref()
    }
}

impl Extent for SpillExtent {
    fn load(&self, load: Load) {
        let stream = Arc::clone(&self.stream);
        self.running.read(move || fill(load, |from, window| stream.read(from, window)));
    }

    fn is_available(&self) -> bool {
        self.running.store().responds()
    }
}

impl fmt::Debug for SpillExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpillExtent({:?})", self.stream)
    }
}
