//! The objects in the index that may have a key.

use std::sync::Arc;

use crate::index::Entry;
use crate::record::{Key, Meta, fingerprint};
use crate::store::{Candidate, Store};

impl Store {
    /// Returns whether the index contains an object with the key, variant and time of expiry of another.
    pub fn has_similar(&self, meta: &Meta) -> bool {
        let found = self.index.get(fingerprint(&meta.key));
        found.iter().any(|entry| entry.variant == meta.variant && entry.expires == meta.expires)
    }

    /// Returns the objects that may have this key and are of use at `now`, newest first.
    pub fn candidates(&self, key: &Key, now: f64) -> Vec<Candidate> {
        self.candidates_of(key, now, |_| true)
    }

    /// Returns those of the [candidates](Self::candidates) for whose variant `is_meant` returns true, which is asked of the
    /// newest one first. There may be thousands of others.
    pub fn candidates_of(
        &self,
        key: &Key,
        now: f64,
        mut is_meant: impl FnMut(u32) -> bool,
    ) -> Vec<Candidate> {
        if !self.may_have(key) {
            return Vec::new();
        }
        // A segment gets another epoch only under this lock, after its objects have left the index: entries and epochs belong
        // together.
        let state = self.state.lock();
        let entries = self.index.get(fingerprint(key)).into_iter();
        let placed = |entry: Entry| Some((state.log_of(&self.layout, &entry)?, entry));
        let mut found: Vec<(u64, Entry)> =
            entries.filter(|entry| f64::from(entry.expires) > now).filter_map(placed).collect();
        found.sort_by_key(|&(log, _)| std::cmp::Reverse(log));
        found.retain(|(_, entry)| is_meant(entry.variant));
        let candidate = |(log, entry): (u64, Entry)| {
            let slot = self.layout.slot_of(entry.place())?;
            let pin = Arc::clone(&state.slots[slot as usize].pin);
            Some(Candidate { entry, log, is_old: log < state.start, pin: Some(pin) })
        };
        found.into_iter().filter_map(candidate).collect()
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
