//! Free pages that may still be resident: about how many there are, and from where on the arena was never touched.
//!
//! The count is a lower bound: a page that is handed out again is taken for a resident one, though it may have been
//! given back to the system.

use crate::runs::Runs;

/// Free pages of an arena that were used before.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pages: u64,
    /// The first page above all that were handed out.
    high: u32,
}

impl Dirty {
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages were handed out.
    pub(crate) fn take(&mut self, start: u32, pages: u32) {
        let untouched = (start + pages).saturating_sub(self.high.max(start));
        self.pages = self.pages.saturating_sub(u64::from(pages - untouched));
        self.high = self.high.max(start + pages);
    }

    /// Pages came back with their contents.
    pub(crate) fn give(&mut self, pages: u32) {
        self.pages += u64::from(pages);
    }

    /// Takes the next free pages from page `from` on, at most `most`: they are to be cleaned and given back.
    pub(crate) fn next(&self, runs: &mut Runs, from: u32, most: u32) -> Option<(u32, u32)> {
        let (start, len) = runs.next_from(from)?;
        let pages = len.min(most).min(self.high.checked_sub(start).filter(|&n| n > 0)?);
        runs.take_at(start, pages);
        Some((start, pages))
    }

    /// All free pages were cleaned.
    pub(crate) fn clear(&mut self) {
        self.pages = 0;
    }
}
