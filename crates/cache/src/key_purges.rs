//! The hard purges of keys that are in progress. Such a purge finds its objects when it begins, and removes them one after
//! the other. In between, no new object may take the body of one that it has not reached yet.

use std::sync::{Arc, Weak};

use crate::slab::Key;

/// The purges of the keys of a shard. There are few, and most of them end within one turn of their thread.
#[derive(Debug, Default)]
pub(crate) struct KeyPurges(Vec<(Key, Weak<()>)>);

impl KeyPurges {
    /// Begins a purge, which ends when the result is dropped.
    pub(crate) fn begin(&mut self, key: Key) -> Arc<()> {
        self.0.retain(|(_, purge)| purge.strong_count() > 0);
        let purge = Arc::new(());
        self.0.push((key, Arc::downgrade(&purge)));
        purge
    }

    /// Returns whether a purge of the key is in progress.
    pub(crate) fn concern(&self, key: &Key) -> bool {
        self.0.iter().any(|(purged, purge)| purged == key && purge.strong_count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_purge_is_in_progress_until_it_is_dropped() {
        let mut purges = KeyPurges::default();
        let keys = [1, 2].map(|byte| [byte; size_of::<Key>()]);
        let first = purges.begin(keys[0]);
        let second = purges.begin(keys[0]);
        assert!(purges.concern(&keys[0]) && !purges.concern(&keys[1]));
        drop(first);
        assert!(purges.concern(&keys[0]));
        drop(second);
        assert!(!purges.concern(&keys[0]));
        let _third = purges.begin(keys[1]);
        assert!(purges.concern(&keys[1]) && purges.0.len() == 1);
    }
}
