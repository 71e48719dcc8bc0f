//! Purges by tags.

use twox_hash::XxHash3_64;

use crate::state::{Hold, Phase};
use crate::store::{Candidate, Store};

impl Store {
    /// Removes all objects that have one of these tags. `hold` is dropped when that is durable.
    pub fn purge_tags<'a>(&self, words: impl Iterator<Item = &'a [u8]>, hold: Option<Hold>) {
        let mut state = self.state.lock();
        match state.phase {
            Phase::Failing => state.pending.holds.extend(hold),
            Phase::Failed | Phase::Retired => {}
            Phase::Recovering | Phase::Working => {
                // Objects in the index are tested when they are read, and those in the queue when they get a place.
                let bound = state.next_log(&self.layout);
                let is_working = state.phase == Phase::Working;
                let mut is_recorded = false;
                for tag in words.map(|word| self.tag(word)) {
                    if !is_working || state.known_tags.may_have(tag) {
                        state.record_tag_purge(tag, bound);
                        is_recorded = true;
                    }
                }
                if is_recorded {
                    state.pending.holds.extend(hold);
                    drop(state);
                    self.has_records.notify_one();
                }
            }
        }
    }

    /// Returns the hash by which the journal refers to a tag.
    fn tag(&self, word: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.layout.id, word)
    }

    /// Returns the hashes of the tags of an object with this head. `None` if they are not known.
    pub(crate) fn tags_of(&self, head: &[u8]) -> Option<Box<[u64]>> {
        let Some(owner) = self.owner() else { return Some(Box::default()) };
        let mut tags = Vec::new();
        owner.tags(head, &mut |word| tags.push(self.tag(word))).then(|| tags.into_boxed_slice())
    }

    /// Removes an object that was purged by one of its tags from the index. Returns whether it was.
    pub(crate) fn drop_purged_by_tag(&self, candidate: &Candidate, tags: &[u64]) -> bool {
        if tags.is_empty() {
            return false;
        }
        let is_purged = self.state.lock().live.is_purged_by_tag(tags, candidate.log);
        if is_purged {
            self.drop_unreadable(candidate);
        }
        is_purged
    }
}
