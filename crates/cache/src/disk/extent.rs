//! The body of an object in memory that is in a store.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use lacquer_disk::{Loaded, PartStream, Running, StoredBody};
use lacquer_storage::{Extent, Load};

use crate::locks::Mutex;
use crate::object::Object;

/// A body in a store. Its segment is not reused while this exists.
pub(crate) struct DiskBody {
    running: Arc<Running>,
    body: StoredBody,
    /// The beginning of the body, which was read with the head, until it is used.
    beginning: Mutex<Option<Loaded>>,
}

impl DiskBody {
    pub(crate) fn new(running: &Arc<Running>, loaded: Loaded) -> Arc<Self> {
        let (running, body) = (Arc::clone(running), loaded.body());
        let beginning = (loaded.present() > 0).then_some(loaded);
        Arc::new(Self { running, body, beginning: Mutex::new(beginning) })
    }
}

/// A reference to a body in a store.
#[derive(Debug)]
pub(crate) struct DiskExtent(pub(crate) Arc<DiskBody>);

impl Extent for DiskExtent {
    fn load(&self, load: Load) {
        let beginning = if load.position() == 0 { self.0.beginning.lock().take() } else { None };
        match beginning {
            Some(loaded) => fill(load, |from, window| loaded.read_at(from, window)),
            None => {
                let body = self.0.body.clone();
                self.0.running.read(move || fill(load, |from, window| body.read(from, window)));
            }
        }
    }
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
}

impl fmt::Debug for SpillExtent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpillExtent({:?})", self.stream)
    }
}
