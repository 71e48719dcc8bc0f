//! Reads frames from the bytes of a stream, in pieces of any size. Payloads are returned as parts of the input; they
//! are neither buffered nor copied.

use super::FrameHeader;
use crate::varint;

/// A part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A frame begins. If its length is 0, it is complete, and no payload follows.
    Begin(FrameHeader),
    /// The next bytes of the payload, at least one. The frame is complete when [`Reader::left`] returns 0.
    Payload(&'a [u8]),
}

/// The position in a sequence of frames.
#[derive(Debug, Default)]
pub struct Reader {
    /// The beginning of a frame header that is incomplete.
    head: [u8; 2 * varint::MAX_LEN],
    head_len: usize,
    /// The number of bytes of the payload that follow.
    left: u64,
}

impl Reader {
    /// Returns the number of bytes of the current payload that were not returned yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns whether the bytes so far end with a frame. A stream that ends elsewhere is truncated.
    pub fn is_between_frames(&self) -> bool {
        self.left == 0 && self.head_len == 0
    }

    /// Removes the next piece from the front of `input`. Returns `None` if there is none; the input is then empty.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<Piece<'a>> {
        if self.left == 0 {
            return self.header(input).map(Piece::Begin);
        }
        if input.is_empty() {
            return None;
        }
        let len = usize::try_from(self.left).map_or(input.len(), |left| left.min(input.len()));
        let (payload, rest) = input.split_at(len);
        *input = rest;
        self.left -= len as u64;
        Some(Piece::Payload(payload))
    }

    fn header(&mut self, input: &mut &[u8]) -> Option<FrameHeader> {
        if self.head_len == 0
            && let Some((header, used)) = parse(input)
        {
            *input = &input[used..];
            self.left = header.len;
            return Some(header);
        }
        // Both integers end within the buffer, so that it has room until they are complete.
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            self.head[self.head_len] = byte;
            self.head_len += 1;
            if let Some((header, _)) = parse(&self.head[..self.head_len]) {
                self.head_len = 0;
                self.left = header.len;
                return Some(header);
            }
        }
        None
    }
}

/// Returns the header at the start of `bytes`, and its length.
#[inline]
fn parse(bytes: &[u8]) -> Option<(FrameHeader, usize)> {
    let (number, type_len) = varint::read(bytes)?;
    let (len, len_len) = varint::read(&bytes[type_len..])?;
    Some((FrameHeader { number, len }, type_len + len_len))
}
