//! The objects in the index that may have a key.

use std::sync::Arc;

use crate::index::{Entry, have_same_names};
use crate::record::{Key, Meta, fingerprint};
use crate::store::{Candidate, Store};

/// The variants that a search is for.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    All,
    Variants(&'a [u32]),
}

/// Returns the wanted ones of entries and their log positions, in any order.
fn chosen(entries: impl Iterator<Item = (u64, Entry)>, wanted: Wanted<'_>) -> Vec<(u64, Entry)> {
    let Wanted::Variants(variants) = wanted else { return entries.collect() };
    let (mut found, mut others) = (Vec::new(), Vec::<(u64, Entry)>::new());
    for (log, entry) in entries {
        let of_names = |known: u32| have_same_names(known, entry.variant);
        if variants.contains(&entry.variant) {
            found.push((log, entry));
        } else if !variants.iter().any(|&known| of_names(known)) {
            match others.iter_mut().find(|(_, other)| of_names(other.variant)) {
                Some(newest) if newest.0 < log => *newest = (log, entry),
                Some(_) => {}
                None => others.push((log, entry)),
            }
        }
    }
    found.append(&mut others);
    found
}

impl Store {
    /// Returns whether the index contains an object with the key, variant and time of expiry of another.
    pub fn has_similar(&self, meta: &Meta) -> bool {
        let found = self.index.get(fingerprint(&meta.key));
        found.iter().any(|entry| entry.variant == meta.variant && entry.expires == meta.expires)
    }

    /// Returns the objects that may have this key and are of use at `now`, newest first.
    pub fn candidates(&self, key: &Key, now: f64) -> Vec<Candidate> {
        self.find_candidates(key, now, Wanted::All)
    }

    /// Returns those of the [candidates](Self::candidates) that are one of some variants, or the newest of those that vary by
    /// names which none of these has. There may be thousands of others.
    pub fn candidates_of(&self, key: &Key, now: f64, variants: &[u32]) -> Vec<Candidate> {
        self.find_candidates(key, now, Wanted::Variants(variants))
    }

    fn find_candidates(&self, key: &Key, now: f64, wanted: Wanted<'_>) -> Vec<Candidate> {
        if !self.may_have(key) {
            return Vec::new();
        }
        // A segment gets another epoch only under this lock, after its objects have left the index: entries and epochs belong
        // together.
        let state = self.state.lock();
        let entries = self.index.get(fingerprint(key)).into_iter();
        let placed = |entry: Entry| Some((state.log_of(&self.layout, &entry)?, entry));
        let of_use = entries.filter(|entry| f64::from(entry.expires) > now).filter_map(placed);
        let mut found = chosen(of_use, wanted);
        found.sort_by_key(|&(log, _)| std::cmp::Reverse(log));
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
