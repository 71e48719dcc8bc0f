//! Free runs of pages. Allocation is best fit by length; freed runs are merged with their neighbors.

use std::collections::{BTreeMap, BTreeSet};

/// The free pages of an arena. All numbers are pages.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    by_start: BTreeMap<u32, u32>,
    by_len: BTreeSet<(u32, u32)>,
}

impl Runs {
    pub(crate) fn new(pages: u32) -> Self {
        let mut runs = Self::default();
        runs.insert(0, pages);
        runs
    }

    /// Takes `n` pages from the smallest run that is long enough.
    pub(crate) fn take(&mut self, n: u32) -> Option<u32> {
        let &(len, start) = self.by_len.range((n, 0)..).next()?;
        self.cut(start, len, start, n);
        Some(start)
    }

    /// Takes `n` pages that begin at a multiple of `align`, a power of two.
    pub(crate) fn take_aligned(&mut self, n: u32, align: u32) -> Option<u32> {
        let aligned = |start: u32| start.checked_next_multiple_of(align);
        let fits = |&&(len, start): &&(u32, u32)| {
            aligned(start).is_some_and(|at| u64::from(at) + u64::from(n) <= u64::from(start) + u64::from(len))
        };
        let &(len, start) = self.by_len.range((n, 0)..).find(fits)?;
        let at = aligned(start)?;
        self.cut(start, len, at, n);
        Some(at)
    }

    /// Frees `n` pages.
    pub(crate) fn give(&mut self, mut start: u32, mut n: u32) {
        if let Some((&before, &len)) = self.by_start.range(..start).next_back() {
            debug_assert!(before + len <= start, "pages freed twice");
            if before + len == start {
                self.remove(before, len);
                start = before;
                n += len;
            }
        }
        if let Some(&len) = self.by_start.get(&(start + n)) {
            self.remove(start + n, len);
            n += len;
        }
        self.insert(start, n);
    }

    /// Returns the first free pages at or after `from`: the first page and the number of pages.
    pub(crate) fn next_from(&self, from: u32) -> Option<(u32, u32)> {
        let around = self.by_start.range(..from).next_back().filter(|&(&start, &len)| start + len > from);
        match around {
            Some((&start, &len)) => Some((from, len - (from - start))),
            None => self.by_start.range(from..).next().map(|(&start, &len)| (start, len)),
        }
    }

    /// Takes pages that the caller knows to be free.
    pub(crate) fn take_at(&mut self, start: u32, n: u32) {
        if let Some((&run, &len)) = self.by_start.range(..=start).next_back() {
            self.cut(run, len, start, n);
        }
    }

    /// Takes these pages if they are free.
    pub(crate) fn claim(&mut self, start: u32, n: u32) -> bool {
        let Some((&run, &len)) = self.by_start.range(..=start).next_back() else { return false };
        let fits = u64::from(start) + u64::from(n) <= u64::from(run) + u64::from(len);
        if fits {
            self.cut(run, len, start, n);
        }
        fits
    }

    /// Returns all runs: the first page and the number of pages.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u32)> {
        self.by_start.iter().map(|(&start, &n)| (start, n))
    }

    /// Returns the length of the longest run.
    pub(crate) fn longest(&self) -> u32 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    fn cut(&mut self, start: u32, len: u32, at: u32, n: u32) {
        self.remove(start, len);
        self.insert(start, at - start);
        self.insert(at + n, start + len - (at + n));
    }

    fn insert(&mut self, start: u32, len: u32) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
        }
    }

    fn remove(&mut self, start: u32, len: u32) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}
