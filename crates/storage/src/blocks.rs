//! The checksums of a piece of a body, one for each block of it. They are computed while the body is fetched, and
//! compared at the first use in another process.

use crate::record::check;

/// The length of a block, in bytes: a checksum of this many takes some tens of microseconds.
pub(crate) const BLOCK: usize = if cfg!(miri) { 4 << 10 } else { 256 << 10 };

/// The checksums of the blocks of a piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    sums: Vec<u32>,
    /// Whether each block is still to be compared. Empty if none is.
    unverified: Box<[bool]>,
}

impl Blocks {
    /// Creates the checksums of a piece that another process wrote.
    pub(crate) fn unverified(sums: Vec<u32>) -> Self {
        let unverified = vec![true; sums.len()].into();
        Self { sums, unverified }
    }

    /// Adds the blocks of the piece that were completed since the last call; with `ended`, also the last one.
    pub(crate) fn add(&mut self, piece: &[u8], ended: bool) {
        let done = (self.sums.len() * BLOCK).min(piece.len());
        let blocks = piece[done..].chunks(BLOCK).filter(|block| ended || block.len() == BLOCK);
        self.sums.extend(blocks.map(check));
    }

    pub(crate) fn sums(&self) -> &[u32] {
        &self.sums
    }

    /// Returns whether a block is still to be compared.
    #[inline]
    pub(crate) fn is_unverified(&self) -> bool {
        !self.unverified.is_empty()
    }

    /// Returns the end of the verified bytes from `offset` on, which is within the piece, after comparing the checksum of
    /// the block there if that is still to be done. Returns `None` if the block is damaged.
    pub(crate) fn verified_to(&mut self, piece: &[u8], offset: usize) -> Option<usize> {
        if self.unverified.is_empty() {
            return Some(piece.len());
        }
        let index = offset / BLOCK;
        let block = &piece[index * BLOCK..piece.len().min((index + 1) * BLOCK)];
        let unverified = self.unverified.get_mut(index)?;
        if *unverified && self.sums.get(index) != Some(&check(block)) {
            return None;
        }
        *unverified = false;
        if !self.unverified.contains(&true) {
            self.unverified = Box::default();
            return Some(piece.len());
        }
        Some(index * BLOCK + block.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_block_is_found_and_the_others_are_used() {
        let mut piece: Vec<u8> = (0..BLOCK * 2 + 100).map(|i| (i / 7) as u8).collect();
        let mut blocks = Blocks::default();
        for end in [0, 10, BLOCK, BLOCK + 1, piece.len()] {
            blocks.add(&piece[..end], false);
            assert_eq!(blocks.sums().len(), end / BLOCK);
        }
        blocks.add(&piece, true);
        blocks.add(&piece, true);
        assert_eq!(blocks.sums().len(), 3);
        assert_eq!(blocks.verified_to(&piece, 5), Some(piece.len()), "this process wrote them");
        let mut kept = Blocks::unverified(blocks.sums().to_vec());
        piece[BLOCK + 7] ^= 1;
        assert_eq!(kept.verified_to(&piece, 0), Some(BLOCK));
        assert_eq!(kept.verified_to(&piece, BLOCK * 2), Some(piece.len()));
        assert_eq!(kept.verified_to(&piece, BLOCK), None);
        piece[BLOCK + 7] ^= 1;
        assert_eq!(kept.verified_to(&piece, BLOCK), Some(piece.len()));
    }
}
