//! The sealed records that a connection has to send, and the growth of records with the transfer.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::buffers::{Buffer, SIZE};
use super::failure::Failure;
use super::keys::{MAX_PLAIN, OVERHEAD, Plain, RecordKey, kind};

/// The largest write that is sent in one record even at the beginning of a response. It fits into the first packets that
/// a new connection may send at once (RFC 6928), so the peer does not wait for an acknowledgement to read the first byte.
const FIRST_FLIGHT: usize = 13_000;
/// The size of the first records of a larger response: three packets.
const SMALL_RECORD: usize = 4096;
/// The number of bytes that are sent in small records.
const SMALL_UNTIL: usize = 4 * SMALL_RECORD;

/// The parts of a write that are not sealed yet.
pub struct Parts<'a> {
    rest: &'a [IoSlice<'a>],
    /// The number of bytes of the first part that are sealed.
    done: usize,
    left: usize,
}

impl<'a> Parts<'a> {
    pub fn new(parts: &'a [IoSlice<'a>]) -> Parts<'a> {
        Parts { rest: parts, done: 0, left: parts.iter().map(|part| part.len()).sum() }
    }

    pub fn len(&self) -> usize {
        self.left
    }

    /// Returns the next `n` bytes if they are in one part.
    fn contiguous(&mut self, n: usize) -> Option<&'a [u8]> {
        let (first, _) = self.rest.split_first()?;
        let bytes: &'a [u8] = first;
        let bytes = bytes[self.done..].get(..n)?;
        self.done += n;
        self.left -= n;
        Some(bytes)
    }

    /// Copies the next bytes.
    pub fn copy_to(&mut self, mut out: &mut [u8]) {
        while let Some((first, rest)) = self.rest.split_first()
            && !out.is_empty()
        {
            let bytes = &first[self.done..];
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            out = &mut out[n..];
            self.done += n;
            self.left -= n;
            if self.done == first.len() {
                (self.rest, self.done) = (rest, 0);
            }
        }
    }

    /// Skips parts of which nothing is left.
    fn skip_empty(&mut self) {
        while let Some((first, rest)) = self.rest.split_first()
            && self.done == first.len()
        {
            (self.rest, self.done) = (rest, 0);
        }
    }
}

/// A record in the buffer that is not sent to its end.
struct Held {
    begin: usize,
    end: usize,
    /// The number of bytes of data in it.
    data: usize,
}

/// The sealed records that are not sent yet.
#[derive(Default)]
pub struct Output {
    buffer: Option<Buffer>,
    /// The range of the bytes to send.
    begin: usize,
    end: usize,
    held: VecDeque<Held>,
    /// The number of bytes sealed since the peer last sent some.
    burst: usize,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    pub fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.begin..self.end])
    }

    /// Returns the number of bytes of data that are not sent. Bytes of a record count as sent one by one, except for
    /// the last.
    pub fn held(&self) -> usize {
        let all: usize = self.held.iter().map(|record| record.data).sum();
        let of_first = self
            .held
            .front()
            .map_or(0, |first| self.begin.saturating_sub(first.begin).min(first.data.saturating_sub(1)));
        all - of_first
    }

    /// Removes bytes that were sent.
    pub fn sent(&mut self, n: usize) {
        self.begin += n;
        while self.held.front().is_some_and(|record| record.end <= self.begin) {
            self.held.pop_front();
        }
        if self.is_empty() {
            (self.begin, self.end, self.buffer) = (0, 0, None);
        }
    }

    /// Removes all bytes, which cannot be sent.
    pub fn clear(&mut self) {
        (self.begin, self.end, self.buffer) = (0, 0, None);
        self.held.clear();
    }

    /// Adds bytes of the handshake.
    pub fn add_sealed(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if bytes.len() > self.free_space().len() {
            let all = [self.bytes(), bytes].concat();
            for record in &mut self.held {
                record.begin = record.begin.saturating_sub(self.begin);
                record.end -= self.begin;
            }
            let mut buffer = if all.len() > SIZE { Buffer::holding(&all) } else { Buffer::new() };
            buffer[..all.len()].copy_from_slice(&all);
            (self.begin, self.end, self.buffer) = (0, all.len(), Some(buffer));
            return;
        }
        self.free_space()[..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Adds a record with `data` bytes of data, which was sealed elsewhere.
    pub fn add_record(&mut self, record: &[u8], data: usize) {
        self.add_sealed(record);
        self.held.push_back(Held { begin: self.end - record.len(), end: self.end, data });
    }

    /// Returns the largest number of bytes of data that fit into one more record.
    pub fn room(&self) -> usize {
        SIZE.saturating_sub(self.end + OVERHEAD).min(MAX_PLAIN)
    }

    fn free_space(&mut self) -> &mut [u8] {
        &mut self.buffer.get_or_insert_with(Buffer::new)[self.end..]
    }

    /// The next response begins with small records.
    pub fn begin_burst(&mut self) {
        self.burst = 0;
    }

    /// Returns the largest number of bytes for the next record if `left` bytes are to be sent.
    fn record_size(&self, left: usize) -> usize {
        let is_small = self.burst < SMALL_UNTIL && left > FIRST_FLIGHT;
        if is_small { SMALL_RECORD } else { MAX_PLAIN }
    }

    /// Seals records until the buffer is full or no part is left. Returns the number of sealed bytes.
    pub fn seal(&mut self, key: &mut RecordKey, parts: &mut Parts<'_>) -> Result<usize, Failure> {
        let before = parts.len();
        while parts.len() > 0 {
            let left = SIZE.saturating_sub(self.end);
            let len = self.record_size(parts.len()).min(parts.len());
            if left < len + OVERHEAD {
                break;
            }
            self.seal_one(key, parts, len)?;
        }
        Ok(before - parts.len())
    }

    fn seal_one(&mut self, key: &mut RecordKey, parts: &mut Parts<'_>, len: usize) -> Result<(), Failure> {
        parts.skip_empty();
        let at = key.plain_at();
        let space = self.free_space();
        let plain = match parts.contiguous(len) {
            Some(bytes) => Plain::Elsewhere(bytes),
            None => {
                parts.copy_to(&mut space[at..at + len]);
                Plain::InPlace
            }
        };
        let total = key.seal(kind::DATA, len, plain, space)?;
        self.held.push_back(Held { begin: self.end, end: self.end + total, data: len });
        self.end += total;
        self.burst = self.burst.saturating_add(len);
        Ok(())
    }

    /// Seals a message of the protocol. Does nothing if the buffer is full, because the peer takes nothing.
    pub fn seal_message(&mut self, key: &mut RecordKey, kind: u8, message: &[u8]) -> Result<(), Failure> {
        let space = self.free_space();
        if space.len() >= message.len() + OVERHEAD {
            self.end += key.seal(kind, message.len(), Plain::Elsewhere(message), space)?;
        }
        Ok(())
    }
}
