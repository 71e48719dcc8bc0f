//! A record composed in place, piece by piece, without the formatter.

use std::fmt;

use super::text::{self, MAX};
use super::{RECORD_HEAD, Tag, TxLog, padded, record_head};

/// A record being written. It counts once `end` is called; what exceeds the record length is cut off.
///
/// There is room in the buffer for the longest record from the beginning on, so that a piece costs no more than
/// the test whether it must be cut.
#[must_use = "a record is written by its `end`"]
#[derive(Debug)]
pub struct Record<'a> {
    tx: &'a mut TxLog,
    tag: Tag,
    /// Where the next piece goes.
    at: usize,
    /// Where the text must end, the NUL apart. A masked tag has no room at all.
    limit: usize,
    masked: bool,
}

impl<'a> Record<'a> {
    #[inline(always)]
    pub(super) fn new(tx: &'a mut TxLog, tag: Tag) -> Self {
        let masked = tx.is_masked(tag);
        let at = if masked { 0 } else { tx.open_record() };
        let limit = if masked { 0 } else { at + tx.reclen - 1 };
        Self { tx, tag, at, limit, masked }
    }

    #[inline(always)]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    #[inline(always)]
    pub fn str(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    #[inline(always)]
    pub fn byte(mut self, byte: u8) -> Self {
        if self.at < self.limit
            && let Some(place) = self.tx.buf.get_mut(self.at)
        {
            *place = byte;
            self.at += 1;
        }
        self
    }

    /// A space, as it stands between most fields.
    #[inline(always)]
    pub fn sp(self) -> Self {
        self.byte(b' ')
    }

    #[inline(always)]
    pub fn u64(self, n: u64) -> Self {
        self.number(|out| text::decimal(n, out))
    }

    #[inline(always)]
    pub fn i64(self, n: i64) -> Self {
        self.number(|out| text::signed(n, out))
    }

    /// A time with six decimals, cut off (see `text::seconds`).
    #[inline(always)]
    pub fn seconds(self, t: f64) -> Self {
        self.number(|out| text::seconds(t, out))
    }

    /// `%.6f`.
    #[inline(always)]
    pub fn fixed6(self, x: f64) -> Self {
        self.number(|out| text::fixed6(x, out))
    }

    /// Whatever the formatter makes of it.
    pub fn display(mut self, value: impl fmt::Display) -> Self {
        let _ = fmt::Write::write_fmt(&mut self, format_args!("{value}"));
        self
    }

    /// Finishes the record.
    #[inline(always)]
    pub fn end(self) {
        if !self.masked {
            self.tx.close_record(self.tag, self.at);
        }
    }

    /// Lets `write` put a number where it belongs if there is surely room, else what fits of it.
    #[inline(always)]
    fn number(mut self, write: impl FnOnce(&mut [u8; MAX]) -> usize) -> Self {
        if self.limit - self.at >= MAX
            && let Some(out) = self.tx.buf.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut())
        {
            self.at += write(out);
            return self;
        }
        if self.masked { self } else { self.number_slowly(write) }
    }

    #[cold]
    fn number_slowly(mut self, write: impl FnOnce(&mut [u8; MAX]) -> usize) -> Self {
        let mut out = [0; MAX];
        let len = write(&mut out);
        self.push(&out[..len]);
        self
    }

    #[inline(always)]
    fn push(&mut self, bytes: &[u8]) {
        let whole = bytes.len() <= self.limit - self.at;
        let bytes = if whole { bytes } else { &bytes[..self.limit - self.at] };
        if let Some(place) = self.tx.buf.get_mut(self.at..self.at + bytes.len()) {
            text::copy(bytes, place);
            self.at += bytes.len();
        }
    }
}

impl fmt::Write for Record<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl TxLog {
    /// Makes room for the longest record; the answer is where its text begins.
    #[inline(always)]
    pub(super) fn open_record(&mut self) -> usize {
        if self.len + RECORD_HEAD + padded(self.reclen) > self.buf.len() {
            self.make_room_slowly(self.reclen);
        }
        self.len + RECORD_HEAD
    }

    /// Closes the record whose text reaches to `end`.
    pub(super) fn close_record(&mut self, tag: Tag, end: usize) {
        let len = end + 1 - (self.len + RECORD_HEAD);
        let head = record_head(tag, len, self.vxid());
        let Some(record) = self.buf.get_mut(self.len..=end) else { return };
        if let Some(place) = record.first_chunk_mut() {
            *place = head;
        }
        if let Some(nul) = record.last_mut() {
            *nul = 0;
        }
        self.added(len);
    }
}
