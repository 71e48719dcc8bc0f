//! A transaction's buffer of records, written to the ring as one batch at its end.
//!
//! This is the hot path, with some forty records per request. A short record costs the mask's test, one test for
//! space and the copy of its text, without a call. The buffer grows to `vsl_buffer` at most. If a record does
//! not fit, the buffered records are written first.

use std::fmt;
use std::sync::Arc;

use super::record::{Truncated, compose};
use super::record_buffer::{RecordBuffer, TEXT};
use super::text::{self, SHORT};
use super::{Field, Log, Numbering, RECORD_HEAD, Tag, Vxid, padded, record_head};

/// No limit on the length of a record.
const LONG: usize = usize::MAX;

/// One transaction's records. Reusable: `begin` starts the next one after `end`. The default value belongs to no log
/// and drops all records.
#[derive(Debug)]
pub struct TxLog {
    log: Option<Arc<Log>>,
    buffer: RecordBuffer,
    /// Length of a record of another transaction at the start, which is written before the batch.
    before: usize,
    records: u32,
    vxid: Vxid,
    /// Copied from the log's settings at `begin`, as are the next two.
    limit: usize,
    reclen: usize,
    unbuffered: bool,
    clock: text::Clock,
}

impl Default for TxLog {
    fn default() -> Self {
        Self {
            log: None,
            buffer: RecordBuffer::new(),
            before: 0,
            records: 0,
            vxid: Vxid::NONE,
            limit: 0,
            reclen: 0,
            unbuffered: false,
            clock: text::Clock::new(),
        }
    }
}

impl Log {
    /// Creates a transaction's buffer for this log. Create few and reuse them.
    pub fn transaction(self: &Arc<Self>) -> TxLog {
        TxLog::new(self.clone())
    }
}

impl TxLog {
    fn new(log: Arc<Log>) -> Self {
        let mut tx = Self::default();
        tx.log = Some(log);
        tx.copy_settings();
        tx
    }

    fn copy_settings(&mut self) {
        let Some(log) = &self.log else { return };
        let limits = log.limits();
        self.limit = limits.buffer;
        self.reclen = limits.reclen;
        self.unbuffered = log.is_unbuffered();
        // A record that is written in place can neither be truncated nor be written to the ring at once.
        self.buffer.open(limits.reclen >= TEXT && !self.unbuffered);
    }

    /// Starts a transaction, whose number the next records carry. Writes any records left from before.
    pub fn begin(&mut self, vxid: Vxid) {
        self.flush();
        self.copy_settings();
        self.vxid = vxid;
    }

    /// Returns the version of Varnish whose tools read the log.
    #[inline]
    pub fn numbering(&self) -> Numbering {
        self.log.as_ref().map_or_else(Numbering::default, |log| log.ring().numbering())
    }

    /// Returns the transaction's number, or `NONE` outside of a transaction.
    pub fn vxid(&self) -> Vxid {
        self.vxid
    }

    #[inline]
    pub fn is_masked(&self, tag: Tag) -> bool {
        self.log.as_ref().is_none_or(|log| log.is_masked(tag))
    }

    /// Adds a record of text.
    pub fn put(&mut self, tag: Tag, text: &[u8]) {
        if self.is_masked(tag) {
            return;
        }
        let short = |out: &mut [u8; TEXT], _: &text::Clock| {
            text::copy(text, out);
            Some(text.len())
        };
        if text.len() > SHORT || !self.put_in_place(tag, short) {
            self.put_any(tag, text.len(), |out| out.push(text));
        }
    }

    /// Adds a record whose text is formatted in place. Returns false if there is no space, or `write` returned `None`.
    #[inline(always)]
    fn put_in_place(
        &mut self,
        tag: Tag,
        write: impl FnOnce(&mut [u8; TEXT], &text::Clock) -> Option<usize>,
    ) -> bool {
        if let Some((head, place)) = self.buffer.ahead()
            && let Some(len) = write(place, &self.clock)
            && let Some(nul) = place.get_mut(len)
        {
            *nul = 0;
            *head = record_head(tag, len + 1, self.vxid);
            self.buffer.advance(len + 1);
            self.records += 1;
            return true;
        }
        false
    }

    /// Adds a record of several fields, separated by spaces.
    pub fn put_fields(&mut self, tag: Tag, fields: &[Field<'_>]) {
        if self.is_masked(tag) {
            return;
        }
        if !self.put_in_place(tag, |out, _| compose(fields, out)) {
            self.put_any(tag, LONG, |out| out.push_fields(fields));
        }
    }

    /// Adds a `Timestamp` record: the time, the seconds since the start, and since the previous timestamp.
    pub fn put_timestamp(&mut self, event: &str, now: f64, first: f64, previous: f64) {
        if self.is_masked(Tag::Timestamp) {
            return;
        }
        let times = [now, first, previous];
        if !self.put_in_place(Tag::Timestamp, |out, clock| text::stamp(event.as_bytes(), times, clock, out)) {
            self.put_any_timestamp(event, times);
        }
    }

    /// Adds a `Timestamp` that could not be written in place: the first one in a second, one a second or more after
    /// another, one with a long event, or one that needs a larger buffer.
    #[cold]
    fn put_any_timestamp(&mut self, event: &str, times: [f64; 3]) {
        self.clock.cache(times[0]);
        self.put_any(Tag::Timestamp, LONG, |out| {
            let mut numbers = [0; text::STAMP + 1];
            let len = text::any_stamp(times, &mut numbers);
            out.push(event.as_bytes());
            out.push(&numbers[..len]);
        });
    }

    /// Adds a record that may be long, must be truncated, or needs a larger buffer. The text has `most` bytes at most.
    #[inline(never)]
    fn put_any(&mut self, tag: Tag, most: usize, write: impl FnOnce(&mut Truncated<'_>)) {
        let most = most.min(self.reclen - 1);
        self.reserve(most + 1);
        let vxid = self.vxid;
        let (head, text) = self.buffer.next(RECORD_HEAD + most + 1).split_at_mut(RECORD_HEAD);
        let mut cut = Truncated::new(&mut text[..most]);
        write(&mut cut);
        let len = cut.len();
        text[len] = 0;
        head.copy_from_slice(&record_head(tag, len + 1, vxid));
        self.buffer.advance(len + 1);
        self.records += 1;
        if self.unbuffered {
            self.flush();
        }
    }

    /// Adds a record with formatted text. It is slower than `put` and `put_fields`, and not meant for every request.
    pub fn put_fmt(&mut self, tag: Tag, text: fmt::Arguments<'_>) {
        if self.is_masked(tag) {
            return;
        }
        match text.as_str() {
            Some(text) => self.put(tag, text.as_bytes()),
            None => self.put_any(tag, LONG, |out| {
                let _ = fmt::Write::write_fmt(out, text);
            }),
        }
    }

    /// Adds a record that relates transactions: `Begin` refers to the parent, `Link` to a child.
    pub fn put_relation(&mut self, tag: Tag, kind: &str, other: Vxid, why: &str) {
        let (kind, why) = (kind.as_bytes(), why.as_bytes());
        self.put_fields(tag, &[Field::Text(kind), Field::Number(other.number()), Field::Text(why)]);
    }

    /// Adds a record of numbers.
    pub fn put_numbers<const N: usize>(&mut self, tag: Tag, numbers: [u64; N]) {
        self.put_fields(tag, &numbers.map(Field::Number));
    }

    /// Adds the parent's `Link` to this transaction, under the parent's number. It must precede all records. It is
    /// written together with this transaction's batch, so that space in the ring is reserved once.
    pub fn link_from(&mut self, parent: Vxid, kind: &str, why: &str) {
        debug_assert_eq!(self.records, 0, "it would go into the other transaction");
        let own = std::mem::replace(&mut self.vxid, parent);
        let unbuffered = std::mem::replace(&mut self.unbuffered, false);
        self.buffer.rewind();
        self.put_relation(Tag::Link, kind, own, why);
        self.records = 0;
        self.before = self.buffer.len();
        self.buffer.advance(0);
        self.unbuffered = unbuffered;
        self.vxid = own;
    }

    /// Ends this transaction with a link to the next one, and begins that: for a restart or a retry.
    pub fn continue_as(&mut self, kind: &str, why: &str, next: Vxid) {
        let old = self.vxid;
        self.put_relation(Tag::Link, kind, next, why);
        self.end();
        self.begin(next);
        self.put_relation(Tag::Begin, kind, old, why);
    }

    /// Ends the transaction and writes its records.
    pub fn end(&mut self) {
        self.put(Tag::End, b"");
        self.flush();
        self.vxid = Vxid::NONE;
    }

    /// Writes the buffered records, if any.
    pub fn flush(&mut self) {
        self.write(false);
    }

    /// Discards the buffered records.
    pub fn discard(&mut self) {
        self.buffer.clear();
        self.before = 0;
        self.records = 0;
    }

    /// Writes the buffered records and frees the buffer's memory, for a session that becomes idle.
    pub fn shrink(&mut self) {
        self.flush();
        self.buffer.drop_memory();
    }

    fn write(&mut self, early: bool) {
        let end = if self.records > 0 { self.buffer.len() } else { self.before };
        if end > 0
            && let Some(log) = &self.log
        {
            log.ring().write_batch(self.buffer.filled(end), self.before, self.records, early);
            self.discard();
        }
    }

    /// Returns the maximum size of the buffer. The limit applies to the records only.
    fn most(&self) -> usize {
        self.before + RECORD_HEAD + self.limit
    }

    /// Reserves space for a record with `text` bytes of text. The limits ensure that one always fits.
    fn reserve(&mut self, text: usize) {
        let need = RECORD_HEAD + padded(text);
        if self.buffer.len() + need > self.most() {
            self.write(true);
        }
        self.buffer.grow(need, self.most());
    }
}

impl Drop for TxLog {
    fn drop(&mut self) {
        self.flush();
    }
}
