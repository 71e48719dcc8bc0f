//! The function through which all invalidations pass.

use std::sync::atomic::Ordering;

use super::event::{Action, Invalidation};
use super::in_progress::Earlier;
use super::listener::Arrival;
use crate::cache::Cache;
use crate::purge::Purging;

impl Cache {
    /// Calls the listeners, then applies the invalidation. A ban is in force when this returns; a purge is complete
    /// after the last step of the result. The result contains the ticket of the listeners.
    pub fn invalidate(&self, event: Invalidation, arrival: Arrival) -> Purging {
        let when = event.when();
        let in_progress = self.invalidations.begin();
        let mut purging = match event.action() {
            Action::PurgeKey { digest, purge } => self.begin_purge(digest, *purge, when),
            Action::PurgeTags { tags, purge } => self.begin_tag_purge(tags, *purge, when),
            Action::Ban(_) => Purging::of_nothing(),
        };
        purging.in_progress = Some(in_progress);
        for listener in &self.invalidations.listeners {
            listener.invalidated(&event, arrival, &mut purging.ticket);
        }
        if let Action::Ban(conditions) = event.into_action() {
            let record =
                |number: u32, words: &[Vec<u8>]| self.disks.ban(number, when, words, &mut purging.ticket);
            self.bans.add(conditions, when, self.tuning.ban_dups.load(Ordering::Relaxed), record);
        }
        purging
    }

    /// Returns the invalidations that have begun so far. Listeners are called for all others from now on.
    pub fn invalidations_so_far(&self) -> Earlier {
        self.invalidations.so_far()
    }

    /// Sets parameter `ban_dups`: whether a new ban completes older equal ones.
    pub fn set_ban_dups(&self, on: bool) {
        self.tuning.ban_dups.store(on, Ordering::Relaxed);
    }
}
