//! The tags that the objects of a store may have. A purge by another tag concerns no object, and is not recorded.
//!
//! - An object's tags are known from the moment at which the store accepts it. They are forgotten when no start can find a
//!   segment any more in which an object with the tag was written.
//! - Each segment ends with the list of its tags, so that a start knows them. If a list is missing, or there are too many
//!   tags, any tag may be that of an object, until the segment is used again.
//!
//! A tag is known by 32 bits of its hash: a purge by another tag with the same bits is recorded without need.

use std::collections::{BTreeSet, HashMap};

use crate::layout::Layout;

/// The bytes of a store for each tag that is known, and the bounds of the number of tags. All of them take 40 MB.
const BYTES_FOR_EACH: u64 = 16 << 10;
const LEAST: u64 = 1 << 16;
const MOST: u64 = 3_600_000;
/// The part of a segment that its list may take.
const LISTED_PART: u64 = 16;
/// The number of times at which tags are forgotten, at most, while the store is filled once.
const PAUSES: u64 = 16;
/// The number of tags at which those that no object has are first forgotten.
const FIRST_SWEEP: usize = 1024;

/// Returns the part of a tag's hash by which it is known.
fn short(tag: u64) -> u32 {
    tag as u32
}

/// The tags of a store.
#[derive(Debug)]
pub(crate) struct KnownTags {
    /// The newest epoch in which an object with the tag was written.
    epochs: HashMap<u32, u32>,
    /// The newest epoch with objects whose tags are not known. 0 if all are known.
    unknown: u64,
    /// The most tags that are known.
    most: usize,
    /// The number of tags, and the least oldest epoch, at which those that no object has are forgotten.
    sweep_at: (usize, u64),
    /// The number of segments that are begun between two times at which tags are forgotten.
    pause: u64,
    /// The number of purges by tags that this process has recorded.
    purges: u64,
}

impl KnownTags {
    pub(crate) fn new(layout: &Layout) -> Self {
        let most = (layout.size() / BYTES_FOR_EACH).clamp(LEAST, MOST) as usize;
        let (sweep_at, pause) = ((FIRST_SWEEP, 0), layout.segments / PAUSES);
        Self { epochs: HashMap::new(), unknown: 0, most, sweep_at, pause, purges: 0 }
    }

    /// Returns the number of purges by tags that this process has recorded.
    pub(crate) fn purges(&self) -> u64 {
        self.purges
    }

    /// Counts a recorded purge by a tag. Returns their number.
    pub(crate) fn count_purge(&mut self) -> u64 {
        self.purges += 1;
        self.purges
    }

    /// Returns whether an object may have a tag.
    pub(crate) fn may_have(&self, tag: u64) -> bool {
        self.unknown > 0 || self.epochs.contains_key(&short(tag))
    }

    /// Adds the tags of an object in the segment of an epoch, or which is written there or later.
    pub(crate) fn add(&mut self, tags: &[u64], epoch: u64) {
        for &tag in tags {
            self.add_short(short(tag), epoch);
        }
    }

    /// Adds the tags of a segment. `None` if they are not known.
    pub(crate) fn add_segment(&mut self, tags: Option<&[u32]>, epoch: u64) {
        match tags {
            Some(tags) => {
                for &tag in tags {
                    self.add_short(tag, epoch);
                }
            }
            None => self.unknown = self.unknown.max(epoch),
        }
    }

    fn add_short(&mut self, tag: u32, epoch: u64) {
        let number = u32::try_from(epoch).unwrap_or(u32::MAX);
        if let Some(known) = self.epochs.get_mut(&tag) {
            *known = number.max(*known);
        } else if self.epochs.len() < self.most {
            self.epochs.insert(tag, number);
        } else {
            self.unknown = self.unknown.max(epoch).max(1);
        }
    }

    /// Forgets the tags that only objects before an epoch have. Does so from time to time, because it takes long. No start
    /// finds objects before that epoch, and the tags of objects without a place were added with it or a later one.
    pub(crate) fn sweep(&mut self, oldest: u64) {
        if self.unknown < oldest {
            self.unknown = 0;
        }
        if self.epochs.len() < self.sweep_at.0 || oldest < self.sweep_at.1 {
            return;
        }
        let is_used = |epoch: u32| epoch == u32::MAX || u64::from(epoch) >= oldest;
        self.epochs.retain(|_, epoch| is_used(*epoch));
        self.sweep_at = ((2 * self.epochs.len()).clamp(FIRST_SWEEP, self.most), oldest + self.pause);
    }
}

/// The tags in the segment that is being written.
#[derive(Debug, Default)]
pub(crate) struct SegmentTags {
    tags: BTreeSet<u32>,
    /// There are too many for the list, or they are not known.
    is_full: bool,
}

impl SegmentTags {
    /// Returns the most tags in the list of a segment.
    pub(crate) fn most(layout: &Layout) -> usize {
        (layout.segment / LISTED_PART / 4) as usize
    }

    /// Returns the length of the list with those of another object, at most.
    pub(crate) fn count_with(&self, layout: &Layout, more: usize) -> usize {
        if self.is_full { 0 } else { (self.tags.len() + more).min(Self::most(layout)) }
    }

    /// Adds the tags of an object. `None` if they are not known.
    pub(crate) fn add_all(&mut self, layout: &Layout, tags: Option<&[u64]>) {
        self.is_full |= tags.is_none();
        self.add(layout, tags.unwrap_or_default());
    }

    pub(crate) fn add(&mut self, layout: &Layout, tags: &[u64]) {
        self.tags.extend(tags.iter().map(|&tag| short(tag)));
        self.is_full |= self.tags.len() > Self::most(layout);
        if self.is_full {
            self.tags.clear();
        }
    }

    /// Returns the tags of a list, or unknown ones.
    pub(crate) fn of(list: Option<&[u32]>) -> Self {
        Self { tags: list.unwrap_or_default().iter().copied().collect(), is_full: list.is_none() }
    }

    /// Returns the list so far.
    pub(crate) fn list(&self) -> Option<Vec<u32>> {
        (!self.is_full).then(|| self.tags.iter().copied().collect())
    }

    /// Returns the list, and begins that of the next segment.
    pub(crate) fn take(&mut self) -> Option<Vec<u32>> {
        let Self { tags, is_full } = std::mem::take(self);
        (!is_full).then(|| tags.into_iter().collect())
    }
}
