//! Tracks free pages that may still be resident: their approximate number, and the end of the used part of the arena.
//!
//! The number is a lower bound: an allocated page is assumed to be a resident one, although it may have been returned
//! to the system.

use crate::runs::Runs;

/// The free pages of an arena that were used before.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pages: u64,
    /// The first page after all pages that were ever allocated.
    high: u32,
}

impl Dirty {
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Records the allocation of pages.
    pub(crate) fn take(&mut self, start: u32, pages: u32) {
        let untouched = (start + pages).saturating_sub(self.high.max(start));
        self.pages = self.pages.saturating_sub(u64::from(pages - untouched));
        self.high = self.high.max(start + pages);
    }

    /// Records pages that were freed and keep their contents.
    pub(crate) fn give(&mut self, pages: u32) {
        self.pages += u64::from(pages);
    }

    /// Takes the next free pages at or after page `from`, at most `most`. The caller returns them to the system and
    /// then frees them.
    pub(crate) fn next(&self, runs: &mut Runs, from: u32, most: u32) -> Option<(u32, u32)> {
        let (start, len) = runs.next_from(from)?;
        let pages = len.min(most).min(self.high.checked_sub(start).filter(|&n| n > 0)?);
        runs.take_at(start, pages);
        Some((start, pages))
    }

    /// Records that all free pages were returned to the system.
    pub(crate) fn clear(&mut self) {
        self.pages = 0;
    }
}
