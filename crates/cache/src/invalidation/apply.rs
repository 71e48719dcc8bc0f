//! The function through which all invalidations pass.

use std::sync::atomic::Ordering;

use super::event::{Action, Invalidation};
use super::listener::Arrival;
use crate::cache::Cache;
use crate::purge::Purging;

impl Cache {
    /// Calls the listeners, then applies the invalidation. A ban is in force when this returns; a purge is complete
    /// after the last step of the result. The result contains the ticket of the listeners.
    pub fn invalidate(&self, event: Invalidation, arrival: Arrival) -> Purging {
        let when = event.when();
        let mut purging = match event.action() {
            Action::PurgeKey { digest, purge } => self.begin_purge(digest, *purge, when),
            Action::PurgeTags { tags, purge } => self.begin_tag_purge(tags, *purge, when),
            Action::Ban(_) => Purging::of_nothing(),
        };
        for listener in &self.invalidation_listeners {
            listener.invalidated(&event, arrival, &mut purging.ticket);
        }
        if let Action::Ban(conditions) = event.into_action() {
            let record =
                |number: u32, words: &[String]| self.disks.ban(number, when, words, &mut purging.ticket);
            self.bans.add(conditions, when, self.tuning.ban_dups.load(Ordering::Relaxed), record);
        }
        purging
    }

    /// Sets parameter `ban_dups`: whether a new ban completes older equal ones.
    pub fn set_ban_dups(&self, on: bool) {
        self.tuning.ban_dups.store(on, Ordering::Relaxed);
    }
}
