//! The objects in the index that may have a key.

use std::sync::Arc;

use crate::index::Entry;
use crate::record::{Key, Meta, fingerprint};
use crate::store::{Candidate, Store};

impl Store {
    /// Returns whether the index contains an object with the key, variant and time of expiry of another.
    pub fn has_same(&self, meta: &Meta) -> bool {
        let found = self.index.get(fingerprint(&meta.key));
        found.iter().any(|entry| entry.variant == meta.variant && entry.expires == meta.expires)
    }

    /// Returns the objects that may have this key and are of use at `now`, newest first.
    pub fn candidates(&self, key: &Key, now: f64) -> Vec<Candidate> {
        self.candidates_of(key, now, |_| true)
    }

    /// Returns those of the [candidates](Self::candidates) for whose variant `is_meant` returns true. There may be
    /// thousands of others.
    pub fn candidates_of(
        &self,
        key: &Key,
        now: f64,
        mut is_meant: impl FnMut(u32) -> bool,
    ) -> Vec<Candidate> {
        if self.health.is_stalled() {
            return Vec::new();
        }
        // No object is removed from the index before its segment is reused, which needs this lock.
        let state = self.state.lock();
        let mut entries = self.index.get(fingerprint(key));
        entries.retain(|entry| f64::from(entry.expires) > now && is_meant(entry.variant));
        let candidate = |entry: Entry| {
            let log = state.log_of(&self.layout, &entry)?;
            let slot = self.layout.slot_of(entry.place())?;
            let pin = Arc::clone(&state.slots[slot as usize].pin);
            Some(Candidate { entry, log, is_old: log < state.start, pin: Some(pin) })
        };
        let mut found: Vec<Candidate> = entries.into_iter().filter_map(candidate).collect();
        found.sort_by_key(|candidate| std::cmp::Reverse(candidate.log));
        found
    }

    /// Returns whether an object with these tags ([`Loaded::tags`](crate::Loaded::tags)) is still in the store: it was not
    /// purged, replaced or evicted.
    pub fn is_alive(&self, candidate: &Candidate, tags: &[u64]) -> bool {
        self.index.at(candidate.entry.fingerprint, candidate.entry.place()).is_some()
            && (tags.is_empty() || !self.state.lock().live.is_purged_by_tag(tags, candidate.log))
    }

    /// Records that an object was of use.
    pub fn hit(&self, candidate: &Candidate) {
        self.index.hit(candidate.entry.fingerprint, candidate.entry.place());
    }
}
