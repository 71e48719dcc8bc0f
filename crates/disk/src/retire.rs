//! A store that is left to another process.

use std::sync::atomic::Ordering;

use crate::health::Reason;
use crate::state::{Pending, Phase};
use crate::store::Store;

impl Store {
    /// Stops the use of the device, which another process uses from now on.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        if state.phase.is_out() {
            return;
        }
        let was_reading = state.phase == Phase::Recovering;
        state.phase = Phase::Retired;
        self.health.is_known.store(true, Ordering::Relaxed);
        self.health.is_crowded.store(false, Ordering::Relaxed);
        let dropped = state.queue.clear();
        self.index.sweep(|_| true);
        // Records that had no room before the index was read are lost, so their purges and bans are not answered.
        let is_lost = was_reading && state.pending.count > 0;
        let pending = if is_lost { Pending::default() } else { std::mem::take(&mut state.pending) };
        drop(state);
        // Their holds wake tasks.
        drop((dropped, pending));
    }

    /// Makes the contents of a retired store invalid, because the process that was to use the device has failed to start:
    /// this one does not record the purges and bans that it answers from now on.
    pub(crate) fn disown(&self) {
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Retired {
                return;
            }
            state.phase = Phase::Failing;
        }
        self.end_use(Reason::Successor);
    }
}
