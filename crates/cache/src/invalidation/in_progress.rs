//! The invalidations that are being applied.

use std::fmt;
use std::sync::Arc;

use super::listener::InvalidationListener;
use crate::locks::Mutex;

/// The listeners, and the invalidations in progress.
pub(crate) struct Invalidations {
    pub(crate) listeners: Box<[Box<dyn InvalidationListener>]>,
    /// Each invalidation has a clone of the token that was here when it began.
    token: Mutex<Arc<()>>,
}

/// The invalidations that began before some moment.
#[derive(Debug)]
pub struct Earlier(Arc<()>);

impl Invalidations {
    pub(crate) fn new(listeners: Vec<Box<dyn InvalidationListener>>) -> Self {
        Self { listeners: listeners.into(), token: Mutex::default() }
    }

    /// Begins an invalidation, which ends when the result is dropped. Must be called before the listeners are.
    pub(crate) fn begin(&self) -> Arc<()> {
        Arc::clone(&self.token.lock())
    }

    /// Returns those that have begun so far.
    pub(crate) fn so_far(&self) -> Earlier {
        Earlier(std::mem::take(&mut *self.token.lock()))
    }
}

impl fmt::Debug for Invalidations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invalidations({} listeners)", self.listeners.len())
    }
}

impl Earlier {
    /// Returns whether all of them have been applied.
    pub fn have_ended(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }
}
