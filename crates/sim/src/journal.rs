//! The journal of a simulated world. It records invalidations late, and the answers to clients wait for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lacquer_cache::invalidation::{Arrival, Invalidation, InvalidationListener, Source, Ticket};

/// The upper bound of the time to write a record, in milliseconds.
const LATEST: u64 = 50;

/// The transactions whose invalidations are not recorded yet.
#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<BTreeSet<u64>>>);

impl Journal {
    fn pending(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has_recorded(&self, vxid: u64) -> bool {
        !self.pending().contains(&vxid)
    }
}

impl InvalidationListener for Journal {
    fn invalidated(&self, event: &Invalidation, _arrival: Arrival, ticket: &mut Ticket) {
        // Other invalidations are not delayed: the operator's commands would block the only thread.
        let Source::Request { vxid } = event.from() else { return };
        self.pending().insert(vxid);
        let (journal, hold) = (self.clone(), ticket.hold());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(vxid % LATEST)).await;
            journal.pending().remove(&vxid);
            drop(hold);
        });
    }
}
