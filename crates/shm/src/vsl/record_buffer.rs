//! The memory in which a transaction's records are gathered, behind the place of their batch's head.
//!
//! Nearly every record is short, so space is looked for once for any of them: as long as the records end
//! below the fast limit, there is space for a head and the longest text that is made in one go. The limit is all
//! that the hot path tests, and the one thing here that takes `unsafe`.
#![allow(unsafe_code)]

use super::{RECORD_HEAD, padded};

/// The longest text that is made in its place, its NUL included.
pub(super) const TEXT: usize = 255;
const AHEAD: usize = RECORD_HEAD + padded(TEXT);
const FIRST_SIZE: usize = 2048;

#[derive(Debug)]
pub(super) struct RecordBuffer {
    bytes: Vec<u8>,
    /// The end of the records.
    len: usize,
    /// Below it, `AHEAD` bytes follow. Zero when there are not so many, or nobody may use them.
    fast_limit: usize,
    /// Set if records may be written before their length is checked.
    open: bool,
}

impl RecordBuffer {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), len: RECORD_HEAD, fast_limit: 0, open: false }
    }

    /// The places of the next record's head and text, if every short text fits there and may be written.
    #[inline(always)]
    pub(super) fn ahead(&mut self) -> Option<(&mut [u8; RECORD_HEAD], &mut [u8; TEXT])> {
        if self.len >= self.fast_limit {
            return None;
        }
        // SAFETY: `len < fast_limit`, and `set_fast_limit` set that to `bytes.len() - AHEAD + 1` at most; it runs
        // whenever that length changes. So `AHEAD` bytes from `len` on are within the vector and initialised,
        // and they are borrowed as `self` is.
        let ahead = unsafe { &mut *self.bytes.as_mut_ptr().add(self.len).cast::<[u8; AHEAD]>() };
        let (head, text) = ahead.split_first_chunk_mut()?;
        Some((head, text.first_chunk_mut()?))
    }

    /// The record in the next place is finished: it has so many bytes of text.
    #[inline(always)]
    pub(super) fn advance(&mut self, text: usize) {
        self.len += RECORD_HEAD + padded(text);
    }

    /// Opens or closes the way ahead.
    pub(super) fn open(&mut self, open: bool) {
        self.open = open;
        self.set_fast_limit();
    }

    fn set_fast_limit(&mut self) {
        self.fast_limit = if self.open { (self.bytes.len() + 1).saturating_sub(AHEAD) } else { 0 };
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the finished bytes, up to `end`.
    pub(super) fn filled(&mut self, end: usize) -> &mut [u8] {
        &mut self.bytes[..end]
    }

    /// Returns `size` bytes behind the finished ones; `grow` must have made room for them.
    pub(super) fn next(&mut self, size: usize) -> &mut [u8] {
        &mut self.bytes[self.len..self.len + size]
    }

    /// Leaves nothing but the place of a batch's head.
    pub(super) fn clear(&mut self) {
        self.len = RECORD_HEAD;
    }

    /// Lets a record go before the batch's head.
    pub(super) fn rewind(&mut self) {
        self.len = 0;
    }

    /// Gives the memory back.
    pub(super) fn drop_memory(&mut self) {
        self.bytes = Vec::new();
        self.clear();
        self.set_fast_limit();
    }

    /// Makes room for `need` bytes more, and for any short record, but the latter only up to `most` in all.
    pub(super) fn grow(&mut self, need: usize, most: usize) {
        let short = self.len + need.max(AHEAD);
        if short > self.bytes.len() {
            let wanted = short.max(self.bytes.len() * 2).max(FIRST_SIZE).min(most).max(self.len + need);
            if wanted > self.bytes.len() {
                self.bytes.resize(wanted, 0);
                self.set_fast_limit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_ahead_ends_where_the_longest_text_would_not_fit() {
        let mut buffer = RecordBuffer::new();
        buffer.rewind();
        assert!(buffer.ahead().is_none(), "no memory");
        buffer.grow(1, 2 * AHEAD - 1);
        assert!(buffer.ahead().is_none(), "not open");
        buffer.open(true);
        let (head, text) = buffer.ahead().expect("memory");
        (*head, *text) = ([1; RECORD_HEAD], [2; TEXT]);
        buffer.advance(TEXT);
        assert_eq!(buffer.len(), AHEAD);
        assert!(buffer.ahead().is_none(), "one byte is missing");
        buffer.grow(AHEAD, 2 * AHEAD);
        assert!(buffer.ahead().is_some());
        assert_eq!(
            buffer.filled(AHEAD).iter().map(|&b| usize::from(b)).sum::<usize>(),
            RECORD_HEAD + 2 * TEXT
        );
        buffer.open(false);
        assert!(buffer.ahead().is_none());
        buffer.open(true);
        buffer.drop_memory();
        assert!(buffer.ahead().is_none(), "no memory any more");
    }
}
