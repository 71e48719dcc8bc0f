//! The memory in which a transaction collects its records. It begins with space for the head of their batch.
//!
//! Nearly every record is short, so one test checks the space for any short record: while the records end
//! below the fast limit, there is space for a head and the longest text that is formatted in place. The limit is
//! all that the hot path tests, and the reason for the `unsafe` code here.
#![allow(unsafe_code)]

use super::{RECORD_HEAD, padded};

/// Maximum length of a text that is formatted in place, including its NUL.
pub(super) const TEXT: usize = 255;
const AHEAD: usize = RECORD_HEAD + padded(TEXT);
const FIRST_SIZE: usize = 2048;

#[derive(Debug)]
pub(super) struct RecordBuffer {
    bytes: Vec<u8>,
    /// The end of the records.
    len: usize,
    /// If the records end below it, `AHEAD` bytes follow. Zero if there are fewer, or if they may not be used.
    fast_limit: usize,
    /// Whether records may be written before their length is checked.
    open: bool,
}

impl RecordBuffer {
    pub(super) const fn new() -> Self {
        Self { bytes: Vec::new(), len: RECORD_HEAD, fast_limit: 0, open: false }
    }

    /// Returns the space for the next record's head and text, if every short text fits and may be written there.
    #[inline(always)]
    pub(super) fn ahead(&mut self) -> Option<(&mut [u8; RECORD_HEAD], &mut [u8; TEXT])> {
        if self.len >= self.fast_limit {
            return None;
        }
        // SAFETY: `len < fast_limit`, and `set_fast_limit` set that to `bytes.len() - AHEAD + 1` at most; it runs
        // whenever that length changes. So `AHEAD` bytes starting at `len` are within the vector and initialized,
        // and the result borrows `self` mutably.
        let ahead = unsafe { &mut *self.bytes.as_mut_ptr().add(self.len).cast::<[u8; AHEAD]>() };
        let (head, text) = ahead.split_first_chunk_mut()?;
        Some((head, text.first_chunk_mut()?))
    }

    /// Completes the next record, which has `text` bytes of text.
    #[inline(always)]
    pub(super) fn advance(&mut self, text: usize) {
        self.len += RECORD_HEAD + padded(text);
    }

    /// Allows or forbids writing records in place.
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

    /// Returns the completed bytes, up to `end`.
    pub(super) fn filled(&mut self, end: usize) -> &mut [u8] {
        &mut self.bytes[..end]
    }

    /// Returns `size` bytes after the completed ones; `grow` must have reserved them.
    pub(super) fn next(&mut self, size: usize) -> &mut [u8] {
        &mut self.bytes[self.len..self.len + size]
    }

    /// Removes all records and leaves the space for a batch's head.
    pub(super) fn clear(&mut self) {
        self.len = RECORD_HEAD;
    }

    /// Removes that space too, so that a record can precede the batch's head.
    pub(super) fn rewind(&mut self) {
        self.len = 0;
    }

    /// Frees the memory.
    pub(super) fn drop_memory(&mut self) {
        self.bytes = Vec::new();
        self.clear();
        self.set_fast_limit();
    }

    /// Reserves `need` more bytes, and space for any short record as long as the total is at most `most`.
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
    fn no_space_is_returned_if_the_longest_text_does_not_fit() {
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
