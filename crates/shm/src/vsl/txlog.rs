//! A transaction's own buffer of records, written to the ring as one batch at its end.
//!
//! This is the hot path, some forty records per request: a short record costs the mask's test, one bounds check
//! and the copy of its text, without a call. The buffer grows to `vsl_buffer` at most; a record that does not
//! fit then first writes what is there.

use std::fmt;
use std::sync::Arc;

use super::{Log, RECORD_HEAD, Record, Tag, Vxid, padded, record_head, text};

const FIRST_SIZE: usize = 2048;
/// Texts up to this size are copied on the spot.
const SHORT: usize = 64;

/// One transaction's records. Reusable: `begin` the next one after `end`.
#[derive(Debug)]
pub struct TxLog {
    log: Arc<Log>,
    /// Room; the records are the first `len` bytes.
    pub(super) buf: Vec<u8>,
    pub(super) len: usize,
    /// The first bytes are a record of another transaction, which is written before the batch.
    before: usize,
    records: u32,
    vxid: Vxid,
    /// Taken from the log's settings at `begin`.
    pub(super) limit: usize,
    pub(super) reclen: usize,
    /// Texts below this length may take the short way: none when every record is written at once.
    short: usize,
    unbuffered: bool,
    clock: text::Clock,
}

impl TxLog {
    pub(super) fn new(log: Arc<Log>) -> Self {
        let mut tx = Self {
            log,
            buf: Vec::new(),
            len: 0,
            before: 0,
            records: 0,
            vxid: Vxid::NONE,
            limit: 0,
            reclen: 0,
            short: 0,
            unbuffered: false,
            clock: text::Clock::default(),
        };
        tx.take_settings();
        tx
    }

    fn take_settings(&mut self) {
        let limits = self.log.limits();
        self.limit = limits.buffer;
        self.reclen = limits.reclen;
        self.unbuffered = self.log.is_unbuffered();
        self.short = if self.unbuffered { 0 } else { limits.reclen };
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

    /// The log that the records go to.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    #[inline]
    pub fn is_masked(&self, tag: Tag) -> bool {
        self.log.is_masked(tag)
    }

    /// Adds a record of text.
    pub fn put(&mut self, tag: Tag, text: &[u8]) {
        if self.is_masked(tag) {
            return;
        }
        let len = text.len() + 1;
        let end = self.len + RECORD_HEAD + padded(len);
        if text.len() <= SHORT
            && text.len() < self.short
            && let Some(place) = self.buf.get_mut(self.len..end)
            && let Some((head, place)) = place.split_first_chunk_mut()
            && let Some((place, [nul, ..])) = place.split_at_mut_checked(text.len())
        {
            *head = record_head(tag, len, self.vxid);
            text::copy(text, place);
            *nul = 0;
            self.len = end;
            self.records += 1;
            return;
        }
        self.put_slowly(tag, text);
    }

    /// For what is long, must be cut, or needs a larger buffer.
    #[inline(never)]
    fn put_slowly(&mut self, tag: Tag, text: &[u8]) {
        let len = (text.len() + 1).min(self.reclen);
        let place = self.place(tag, len);
        place[..len - 1].copy_from_slice(&text[..len - 1]);
        place[len - 1] = 0;
        self.added(len);
    }

    /// Adds a record made by the formatter. Slower than `put` and `record`; not for every request.
    pub fn put_fmt(&mut self, tag: Tag, text: fmt::Arguments<'_>) {
        if self.is_masked(tag) {
            return;
        }
        match text.as_str() {
            Some(text) => self.put(tag, text.as_bytes()),
            None => {
                let mut record = self.record(tag);
                let _ = fmt::Write::write_fmt(&mut record, text);
                record.end();
            }
        }
    }

    /// A record to be composed piece by piece: `tx.record(Tag::Length).u64(n).end()`.
    #[inline(always)]
    pub fn record(&mut self, tag: Tag) -> Record<'_> {
        Record::new(self, tag)
    }

    /// The record by which transactions find each other: `Begin` names the parent, `Link` a child.
    pub fn put_relation(&mut self, tag: Tag, kind: &str, other: Vxid, why: &str) {
        self.put_whole(tag, |out, _| text::relation(kind.as_bytes(), other.number(), why.as_bytes(), out));
    }

    /// The link to this transaction in the name of that which it belongs to: the first record, if any. It is
    /// written together with this one's batch, so that the ring is asked for room once.
    pub fn link_from(&mut self, parent: Vxid, kind: &str, why: &str) {
        let own = std::mem::replace(&mut self.vxid, parent);
        let unbuffered = std::mem::replace(&mut self.unbuffered, false);
        self.put_relation(Tag::Link, kind, own, why);
        self.records = 0;
        self.before = self.len;
        self.unbuffered = unbuffered;
        self.vxid = own;
    }

    /// A `Timestamp` record: when, how long since the work began, and since the previous stamp.
    pub fn put_timestamp(&mut self, event: &str, now: f64, first: f64, previous: f64) {
        if event.len() > text::WORD {
            let record = self.record(Tag::Timestamp).str(event).bytes(b": ").seconds(now).sp();
            return record.seconds(now - first).sp().seconds(now - previous).end();
        }
        let times = [now, first, previous];
        self.put_whole(Tag::Timestamp, |out, clock| text::stamp(event.as_bytes(), times, clock, out));
    }

    /// A record of numbers with spaces between them; at most seven.
    pub fn put_numbers(&mut self, tag: Tag, numbers: &[u64]) {
        self.put_whole(tag, |out, _| text::numbers(numbers, out));
    }

    /// A `Hit` record of a complete object: its number and how long it lives.
    pub fn put_hit(&mut self, vxid: u64, ttl: f64, grace: f64, keep: f64) {
        self.put_whole(Tag::Hit, |out, _| text::hit(vxid, [ttl, grace, keep], out));
    }

    /// Adds a record whose text is made at once: in its place, if it cannot be too long for a record.
    #[inline(always)]
    fn put_whole(&mut self, tag: Tag, write: impl FnOnce(&mut [u8; text::WHOLE], &mut text::Clock) -> usize) {
        if self.is_masked(tag) {
            return;
        }
        let at = self.open_record();
        if self.reclen > text::WHOLE
            && let Some(out) = self.buf.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
        {
            let len = write(out, &mut self.clock);
            return self.close_record(tag, at + len);
        }
        let mut out = [0; text::WHOLE];
        let len = write(&mut out, &mut self.clock);
        self.put_slowly(tag, &out[..len]);
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
        self.len = 0;
        self.before = 0;
        self.records = 0;
    }

    /// Gives the buffer's memory back, for a session that goes idle.
    pub fn shrink(&mut self) {
        self.flush();
        self.buf = Vec::new();
    }

    pub(super) fn write(&mut self, early: bool) {
        if self.len > 0 {
            let (before, records) = self.buf[..self.len].split_at(self.before);
            self.log.ring().write_batch(before, records, self.records, early);
            self.discard();
        }
    }

    /// Counts a finished record of `len` bytes of text at the end of the buffer.
    #[inline]
    pub(super) fn added(&mut self, len: usize) {
        self.len += RECORD_HEAD + padded(len);
        self.records += 1;
        if self.unbuffered {
            self.flush();
        }
    }

    /// Writes the head of a record with `len` bytes of text and returns the place of the text. The limits
    /// are such that one record always fits.
    #[inline]
    fn place(&mut self, tag: Tag, len: usize) -> &mut [u8] {
        if self.len + RECORD_HEAD + padded(len) > self.buf.len() {
            self.make_room_slowly(len);
        }
        let head = record_head(tag, len, self.vxid);
        let (place, text) = self.buf[self.len..self.len + RECORD_HEAD + len].split_at_mut(RECORD_HEAD);
        place.copy_from_slice(&head);
        text
    }

    #[cold]
    pub(super) fn make_room_slowly(&mut self, len: usize) {
        let need = RECORD_HEAD + padded(len);
        if self.len - self.before + need > self.limit {
            self.write(true);
        }
        self.grow(self.len + need);
    }

    /// Makes the buffer hold at least `need` bytes.
    fn grow(&mut self, need: usize) {
        if need > self.buf.len() {
            let doubled = (self.buf.len() * 2).max(FIRST_SIZE).min(self.before + self.limit);
            self.buf.resize(doubled.max(need), 0);
        }
    }
}

impl Drop for TxLog {
    fn drop(&mut self) {
        self.flush();
    }
}
