//! The received bytes of a connection: records that are not opened yet, and data that the reader has not taken.

use std::ops::Range;

use super::buffers::{Buffer, SIZE};
use super::failure::Failure;
use super::keys::record_len;

/// The largest number of bytes of an incomplete record for which a waiting connection gets a buffer of their size.
const SMALL: usize = 4096;

#[derive(Default)]
pub struct Input {
    buffer: Option<Buffer>,
    /// The records that are not opened.
    sealed: Range<usize>,
    /// The opened data that was not taken. It is before the sealed records.
    data: Range<usize>,
}

impl Input {
    /// Creates one that holds records which have arrived with the handshake.
    pub fn holding(bytes: &[u8]) -> Input {
        if bytes.is_empty() {
            return Input::default();
        }
        Input { buffer: Some(Buffer::holding(bytes)), sealed: 0..bytes.len(), data: 0..0 }
    }

    pub fn has_data(&self) -> bool {
        !self.data.is_empty()
    }

    /// Returns the data that was not taken.
    pub fn data(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.data.clone()])
    }

    pub fn take_data(&mut self, out: &mut [u8]) -> usize {
        let n = self.data.len().min(out.len());
        out[..n].copy_from_slice(&self.data()[..n]);
        self.data.start += n;
        self.release();
        n
    }

    /// Returns the free space for further bytes. Data must have been taken.
    pub fn free_space(&mut self) -> &mut [u8] {
        let (bytes, is_large) = match &self.buffer {
            Some(buffer) => (self.sealed.len(), buffer.len() == SIZE),
            None => (0, false),
        };
        if !is_large {
            let mut larger = Buffer::new();
            if let Some(smaller) = &self.buffer {
                larger[..bytes].copy_from_slice(&smaller[self.sealed.clone()]);
            }
            self.buffer = Some(larger);
            self.sealed = 0..bytes;
        }
        let buffer = self.buffer.get_or_insert_with(Buffer::new);
        if self.sealed.start > 0 {
            buffer.copy_within(self.sealed.clone(), 0);
            self.sealed = 0..bytes;
        }
        self.data = 0..0;
        &mut buffer[bytes..]
    }

    /// Adds bytes that were read into the room.
    pub fn received(&mut self, n: usize) {
        self.sealed.end += n;
    }

    /// Adds data that is read before the records which are not opened. There must be none before it.
    pub fn put_data(&mut self, data: &[u8]) {
        if !data.is_empty() {
            let sealed = self.buffer.as_ref().map_or(&[][..], |buffer| &buffer[self.sealed.clone()]);
            let (len, bytes) = (data.len(), [data, sealed].concat());
            *self = Input { buffer: Some(Buffer::holding(&bytes)), sealed: len..bytes.len(), data: 0..len };
        }
    }

    /// Removes and returns the data that was not taken.
    pub fn remove_data(&mut self) -> Vec<u8> {
        let data = self.data().to_vec();
        self.data = 0..0;
        self.release();
        data
    }

    /// Removes the next whole record, and returns its place.
    pub fn next_record(&mut self) -> Result<Option<Range<usize>>, Failure> {
        let Some(buffer) = &self.buffer else { return Ok(None) };
        let bytes = &buffer[self.sealed.clone()];
        match record_len(bytes)? {
            Some(len) if len <= bytes.len() => {
                let record = self.sealed.start..self.sealed.start + len;
                self.sealed.start = record.end;
                Ok(Some(record))
            }
            _ => Ok(None),
        }
    }

    pub fn record(&mut self, place: Range<usize>) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[place])
    }

    /// Sets the data that the reader takes next.
    pub fn set_data(&mut self, place: Range<usize>) {
        self.data = place;
    }

    /// Drops the buffer if it is empty.
    fn release(&mut self) {
        if self.data.is_empty() && self.sealed.is_empty() {
            *self = Input::default();
        }
    }

    /// Reduces the memory of a connection that waits for more bytes.
    pub fn settle(&mut self) {
        self.release();
        if let Some(buffer) = &self.buffer
            && self.data.is_empty()
            && buffer.len() == SIZE
            && self.sealed.len() <= SMALL
        {
            *self = Input::holding(&buffer[self.sealed.clone()]);
        }
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        *self = Input::default();
    }
}
