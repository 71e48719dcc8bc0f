//! A set of pages, as a bitmap.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// Pages of an arena, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    words: Vec<u64>,
    pages: u32,
}

impl Bits {
    /// Creates the set of all pages.
    pub(crate) fn all(pages: u32) -> Self {
        Self { words: vec![u64::MAX; pages.div_ceil(WORD) as usize], pages }
    }

    /// Reads a set. Pages beyond the end of `bytes` are in it.
    pub(crate) fn from_bytes(pages: u32, bytes: &[u8]) -> Self {
        let mut bits = Self::all(pages);
        for (word, bytes) in bits.words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        bits
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Removes pages.
    pub(crate) fn remove(&mut self, start: u32, n: u32) {
        for (at, mask) in masks(start..start.saturating_add(n).min(self.pages)) {
            self.words[at] &= !mask;
        }
    }

    /// Removes the pages that are not in the other set.
    pub(crate) fn keep_only(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Returns whether any of these pages is in the set.
    pub(crate) fn any(&self, start: u32, n: u32) -> bool {
        masks(start..start.saturating_add(n).min(self.pages)).any(|(at, mask)| self.words[at] & mask != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.any(0, self.pages)
    }

    /// Divides a run of pages into runs that are in the set (`true`) and runs that are not.
    pub(crate) fn divide(&self, start: u32, n: u32) -> impl Iterator<Item = (bool, u32, u32)> {
        let end = start.saturating_add(n);
        let mut at = start;
        std::iter::from_fn(move || {
            let from = at;
            let is_in = (at < end).then(|| self.has(at))?;
            while at < end && self.has(at) == is_in {
                // Words that are all equal are passed at once.
                let same = if is_in { u64::MAX } else { 0 };
                let is_whole = at.is_multiple_of(WORD) && self.words.get((at / WORD) as usize) == Some(&same);
                at = if is_whole { at.saturating_add(WORD).min(end) } else { at + 1 };
            }
            Some((is_in, from, at - from))
        })
    }

    /// Pages beyond the end are in the set: nobody may use them.
    fn has(&self, page: u32) -> bool {
        page >= self.pages || self.words[(page / WORD) as usize] & (1 << (page % WORD)) != 0
    }
}

/// Returns the words of a range of pages, with the bits of the range.
fn masks(pages: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let words = if pages.is_empty() { 0..0 } else { pages.start / WORD..pages.end.div_ceil(WORD) };
    words.map(move |word| {
        let from = pages.start.saturating_sub(word * WORD);
        let to = (pages.end - word * WORD).min(WORD);
        let upper = if to == WORD { u64::MAX } else { (1 << to) - 1 };
        (word as usize, upper & (u64::MAX << from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_agrees_with_a_list_of_pages() {
        let mut bits = Bits::all(300);
        let mut list = vec![true; 300];
        for (start, n) in [(0, 1), (63, 2), (100, 0), (130, 130), (299, 1), (290, 500)] {
            bits.remove(start, n);
            list.iter_mut().skip(start as usize).take(n as usize).for_each(|page| *page = false);
            for from in [0, 1, 62, 64, 128, 299] {
                for n in [0, 1, 64, 65, 300] {
                    let expected = list.iter().skip(from as usize).take(n as usize).any(|&page| page);
                    assert_eq!(bits.any(from, n), expected, "{from} {n}");
                }
            }
            let divided: Vec<bool> = bits
                .divide(0, 300)
                .flat_map(|(is_in, _, n)| std::iter::repeat_n(is_in, n as usize))
                .collect();
            assert_eq!(divided, list);
        }
        assert_eq!(Bits::from_bytes(300, &bits.to_bytes()), bits);
        assert!(Bits::from_bytes(300, &[]).any(299, 1), "what is unknown is in use");
        let mut none = bits.clone();
        none.remove(0, 300);
        bits.keep_only(&none);
        assert!(bits.is_empty());
    }
}
