//! A record composed in place, piece by piece, without the formatter.

use std::fmt;

use super::text::{self, MAX};
use super::{RECORD_HEAD, Tag, TxLog, padded};

/// A record being written. It counts once `end` is called; what exceeds the record length is cut off.
#[must_use = "a record is written by its `end`"]
#[derive(Debug)]
pub struct Record<'a> {
    tx: &'a mut TxLog,
    tag: Tag,
    /// Bytes of text so far.
    len: usize,
    /// Bytes of text there may be, besides the NUL; zero for a masked tag.
    room: usize,
    masked: bool,
}

impl<'a> Record<'a> {
    #[inline]
    pub(super) fn new(tx: &'a mut TxLog, tag: Tag) -> Self {
        let masked = tx.is_masked(tag);
        let room = if masked { 0 } else { tx.reclen - 1 };
        Self { tx, tag, len: 0, room, masked }
    }

    #[inline]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    #[inline]
    pub fn str(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    #[inline]
    pub fn byte(mut self, byte: u8) -> Self {
        self.push(&[byte]);
        self
    }

    /// A space, as it stands between most fields.
    #[inline]
    pub fn sp(self) -> Self {
        self.byte(b' ')
    }

    #[inline]
    pub fn u64(self, n: u64) -> Self {
        self.number(|out| text::decimal(n, out))
    }

    #[inline]
    pub fn i64(self, n: i64) -> Self {
        self.number(|out| text::signed(n, out))
    }

    /// A time with six decimals, cut off (see `text::seconds`).
    #[inline]
    pub fn seconds(self, t: f64) -> Self {
        self.number(|out| text::seconds(t, out))
    }

    /// `%.6f`.
    #[inline]
    pub fn fixed6(self, x: f64) -> Self {
        self.number(|out| text::fixed6(x, out))
    }

    /// Whatever the formatter makes of it.
    pub fn display(mut self, value: impl fmt::Display) -> Self {
        let _ = fmt::Write::write_fmt(&mut self, format_args!("{value}"));
        self
    }

    /// Finishes the record.
    #[inline]
    pub fn end(mut self) {
        if self.masked {
            return;
        }
        self.reach(self.len + 1);
        let at = self.tx.len;
        let len = self.len + 1;
        let head = self.tx.head_for(self.tag, len);
        self.tx.buf[at..at + RECORD_HEAD].copy_from_slice(&head);
        self.tx.buf[at + RECORD_HEAD + self.len] = 0;
        self.tx.added(len);
    }

    /// Lets `write` put a number where it belongs if there is surely room, else copies it there.
    #[inline]
    fn number(mut self, write: impl FnOnce(&mut [u8; MAX]) -> usize) -> Self {
        let at = self.tx.len + RECORD_HEAD + self.len;
        if self.room - self.len >= MAX
            && let Some(out) = self.tx.buf.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
        {
            self.len += write(out);
            return self;
        }
        let mut out = [0; MAX];
        let len = write(&mut out);
        self.push(&out[..len]);
        self
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let at = self.tx.len + RECORD_HEAD + self.len;
        if bytes.len() <= self.room - self.len
            && let Some(place) = self.tx.buf.get_mut(at..at + bytes.len())
        {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
            return;
        }
        self.push_slowly(bytes);
    }

    /// For what must be cut, or needs a larger buffer.
    #[cold]
    fn push_slowly(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.room - self.len);
        if n == 0 {
            return;
        }
        self.reach(self.len + n);
        let at = self.tx.len + RECORD_HEAD + self.len;
        self.tx.buf[at..at + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    /// Sees to it that the buffer holds `len` bytes of this record's text.
    #[inline]
    fn reach(&mut self, len: usize) {
        if self.tx.len + RECORD_HEAD + padded(len) > self.tx.buf.len() {
            self.reach_slowly(len);
        }
    }

    #[cold]
    fn reach_slowly(&mut self, len: usize) {
        let need = RECORD_HEAD + padded(len);
        let at = self.tx.len;
        if at > 0 && at + need > self.tx.limit {
            // The finished records go out, and the unfinished one moves to the front.
            let text = at + RECORD_HEAD;
            self.tx.write(true);
            if self.len > 0 {
                self.tx.buf.copy_within(text..text + self.len, RECORD_HEAD);
            }
        }
        self.tx.grow(self.tx.len + need);
    }
}

impl fmt::Write for Record<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}
