//! The purges by tags that are in progress. Such a purge reaches the objects on disks when it begins, and the objects in
//! memory one after the other. An object in memory that it has not reached yet must not be written to a disk, where the
//! purge would miss it, and no new object may take its body.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::locks::Mutex;
use crate::tags::Tag;

/// The number of purges in progress by tag.
type Counts = BTreeMap<Tag, u32>;

#[derive(Debug, Default)]
pub(crate) struct TagPurges(Arc<Mutex<Counts>>);

/// A purge by tags that is in progress, until this is dropped.
#[derive(Debug)]
pub(crate) struct TagPurge {
    tags: Vec<Tag>,
    purges: Arc<Mutex<Counts>>,
}

impl TagPurges {
    /// Begins a purge. `on_disks` lets it reach the objects on disks.
    pub(crate) fn begin(&self, tags: Vec<Tag>, on_disks: impl FnOnce()) -> TagPurge {
        let mut counts = self.0.lock();
        for tag in &tags {
            *counts.entry(*tag).or_default() += 1;
        }
        on_disks();
        drop(counts);
        TagPurge { tags, purges: Arc::clone(&self.0) }
    }

    /// Returns whether a purge is in progress that concerns an object with these tags.
    pub(crate) fn concern(&self, tags: &[Tag]) -> bool {
        self.hold(tags).1
    }

    /// Prevents that a purge begins while the first value exists. Also returns whether one that is in progress concerns an
    /// object with these tags.
    pub(crate) fn hold(&self, tags: &[Tag]) -> (impl Sized, bool) {
        let counts = self.0.lock();
        let is_purged = tags.iter().any(|tag| counts.contains_key(tag));
        (counts, is_purged)
    }
}

impl Drop for TagPurge {
    fn drop(&mut self) {
        let mut counts = self.purges.lock();
        for tag in &self.tags {
            if let Some(count) = counts.get_mut(tag) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(tag);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_in_progress_until_it_is_dropped() {
        let purges = TagPurges::default();
        let concerns = |number| purges.hold(&[Tag(9), Tag(number)]).1;
        let mut is_on_disks = false;
        let first = purges.begin(vec![Tag(1), Tag(2), Tag(1)], || is_on_disks = true);
        assert!(is_on_disks && concerns(1) && concerns(2) && !concerns(3));
        let second = purges.begin(vec![Tag(2), Tag(3)], || {});
        drop(first);
        assert!(!concerns(1) && concerns(2) && concerns(3));
        drop(second);
        assert!(!concerns(1) && !concerns(2) && !concerns(3));
    }
}
