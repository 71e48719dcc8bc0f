//! A transaction's own buffer of records, written to the ring as one batch at its end.
//!
//! This is the hot path, some forty records per request: a short record costs the mask's test, one look for
//! room and the copy of its text, without a call. The buffer grows to `vsl_buffer` at most; a record that does
//! not fit then first writes what is there.

use std::fmt;
use std::sync::Arc;

use super::record::{Cut, compose};
use super::record_buffer::{RecordBuffer, TEXT};
use super::text::{self, SHORT};
use super::{Field, Log, RECORD_HEAD, Tag, Vxid, padded, record_head};

/// No limit on the length of a record.
const LONG: usize = usize::MAX;

/// One transaction's records. Reusable: `begin` the next one after `end`. The default one belongs to no log and
/// drops all records.
#[derive(Debug)]
pub struct TxLog {
    log: Option<Arc<Log>>,
    buffer: RecordBuffer,
    /// The first bytes are a record of another transaction, which is written before the batch.
    before: usize,
    records: u32,
    vxid: Vxid,
    /// Taken from the log's settings at `begin`.
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
    /// A transaction's buffer on this log. Make few and reuse them.
    pub fn transaction(self: &Arc<Self>) -> TxLog {
        TxLog::new(self.clone())
    }
}

impl TxLog {
    fn new(log: Arc<Log>) -> Self {
        let mut tx = Self::default();
        tx.log = Some(log);
        tx.take_settings();
        tx
    }

    fn take_settings(&mut self) {
        let Some(log) = &self.log else { return };
        let limits = log.limits();
        self.limit = limits.buffer;
        self.reclen = limits.reclen;
        self.unbuffered = log.is_unbuffered();
        // A record that is made ahead can neither be cut nor be written at once.
        self.buffer.open(limits.reclen >= TEXT && !self.unbuffered);
    }

    /// Starts a transaction: the records to come carry its number. Any left from before are written.
    pub fn begin(&mut self, vxid: Vxid) {
        self.flush();
        self.take_settings();
        self.vxid = vxid;
    }

    /// The transaction's number, `NONE` outside of one.
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
        let short = |out: &mut [u8; TEXT], _: &mut text::Clock| {
            text::copy(text, out);
            Some(text.len())
        };
        if text.len() > SHORT || !self.put_ahead(tag, short) {
            self.put_slowly(tag, text.len(), |out| out.push(text));
        }
    }

    /// Adds a record whose text is made in its place; false if there is no room ahead, or no text was made.
    #[inline(always)]
    fn put_ahead(
        &mut self,
        tag: Tag,
        write: impl FnOnce(&mut [u8; TEXT], &mut text::Clock) -> Option<usize>,
    ) -> bool {
        if let Some((head, place)) = self.buffer.ahead()
            && let Some(len) = write(place, &mut self.clock)
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

    /// Adds a record of several fields with blanks between them.
    pub fn put_fields(&mut self, tag: Tag, fields: &[Field<'_>]) {
        if self.is_masked(tag) {
            return;
        }
        if !self.put_ahead(tag, |out, _| compose(fields, out)) {
            self.put_slowly(tag, LONG, |out| out.push_fields(fields));
        }
    }

    /// A `Timestamp` record: when, how long since the work began, and since the previous stamp.
    pub fn put_timestamp(&mut self, event: &str, now: f64, first: f64, previous: f64) {
        if self.is_masked(Tag::Timestamp) {
            return;
        }
        let times = [now, first, previous];
        let stamp = |out: &mut [u8; TEXT], clock: &mut text::Clock| {
            Some(text::stamp(event.as_bytes(), times, clock, out))
        };
        if event.len() <= SHORT && self.put_ahead(Tag::Timestamp, stamp) {
            return;
        }
        self.put_slowly(Tag::Timestamp, LONG, |out| {
            let mut numbers = [0; text::STAMP + 1];
            let len = text::stamp(b"", times, &mut text::Clock::new(), &mut numbers);
            out.push(event.as_bytes());
            out.push(&numbers[..len]);
        });
    }

    /// For what may be long, must be cut, or needs a larger buffer. The text has `most` bytes at most.
    #[inline(never)]
    fn put_slowly(&mut self, tag: Tag, most: usize, write: impl FnOnce(&mut Cut<'_>)) {
        let most = most.min(self.reclen - 1);
        self.reserve(most + 1);
        let vxid = self.vxid;
        let (head, text) = self.buffer.next(RECORD_HEAD + most + 1).split_at_mut(RECORD_HEAD);
        let mut cut = Cut::new(&mut text[..most]);
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

    /// Adds a record made by the formatter. Slower than `put` and `put_fields`; not for every request.
    pub fn put_fmt(&mut self, tag: Tag, text: fmt::Arguments<'_>) {
        if self.is_masked(tag) {
            return;
        }
        match text.as_str() {
            Some(text) => self.put(tag, text.as_bytes()),
            None => self.put_slowly(tag, LONG, |out| {
                let _ = fmt::Write::write_fmt(out, text);
            }),
        }
    }

    /// The record by which transactions find each other: `Begin` names the parent, `Link` a child.
    pub fn put_relation(&mut self, tag: Tag, kind: &str, other: Vxid, why: &str) {
        let (kind, why) = (kind.as_bytes(), why.as_bytes());
        self.put_fields(tag, &[Field::Text(kind), Field::Number(other.number()), Field::Text(why)]);
    }

    /// A record of numbers.
    pub fn put_numbers<const N: usize>(&mut self, tag: Tag, numbers: [u64; N]) {
        self.put_fields(tag, &numbers.map(Field::Number));
    }

    /// The link to this transaction in the name of that which it belongs to: the first record, if any. It is
    /// written together with this one's batch, so that the ring is asked for room once.
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

    /// Ends this transaction with a link to the next, and begins that: a restart, a retry.
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

    /// Writes what there is. Without effect when there is nothing.
    pub fn flush(&mut self) {
        self.write(false);
    }

    /// Forgets what was not written yet.
    pub fn discard(&mut self) {
        self.buffer.clear();
        self.before = 0;
        self.records = 0;
    }

    /// Gives the buffer's memory back, for a session that goes idle.
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

    /// Returns the largest size of the buffer. The limit is that of the records.
    fn most(&self) -> usize {
        self.before + RECORD_HEAD + self.limit
    }

    /// Makes room for a record with so many bytes of text. The limits are such that one always fits.
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
