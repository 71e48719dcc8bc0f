//! The first span of an object: two lengths, the head, the data of filters, and the body or its beginning.

use crate::span::{Span, SpanWriter};

/// The length of the prefix of a first span: head length and extra length, little endian.
const PREFIX: usize = 8;

/// The data that an object begins with. The pieces of `head` are stored one after the other. `extra` is for data that
/// filters produce; for an object that is being fetched, [`crate::Stored::set_extra`] can set it later.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub head: &'a [&'a [u8]],
    pub extra: &'a [u8],
}

impl Parts<'_> {
    fn head_len(&self) -> usize {
        self.head.iter().map(|p| p.len()).sum()
    }

    fn prefix(&self) -> [u8; PREFIX] {
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&(self.head_len() as u32).to_le_bytes());
        prefix[4..].copy_from_slice(&(self.extra.len() as u32).to_le_bytes());
        prefix
    }

    pub(crate) fn stored_len(&self) -> usize {
        PREFIX + self.head_len() + self.extra.len()
    }

    pub(crate) fn write(&self, writer: &mut SpanWriter) {
        writer.append(&self.prefix());
        for piece in self.head {
            writer.append(piece);
        }
        writer.append(self.extra);
    }
}

/// Returns the lengths of head and extra.
#[inline]
fn lengths(prefix: [u8; PREFIX]) -> (usize, usize) {
    let both = u64::from_le_bytes(prefix);
    (both as u32 as usize, (both >> 32) as usize)
}

/// Returns the offset of the body in a first span.
#[inline]
pub(crate) fn body_from(span: &Span) -> usize {
    let prefix = span.bytes().first_chunk().expect("a first span begins with its prefix");
    let (head_len, extra_len) = lengths(*prefix);
    PREFIX + head_len + extra_len
}

/// Returns the offset of the body in a first span that another process wrote, or `None` if the lengths exceed the span.
pub(crate) fn checked_body_from(span: &Span) -> Option<usize> {
    let (head_len, extra_len) = lengths(*span.bytes().first_chunk()?);
    let from = PREFIX.checked_add(head_len)?.checked_add(extra_len)?;
    (from <= span.len()).then_some(from)
}

/// The head and the extra data in a first span.
pub(crate) struct First<'a> {
    pub(crate) head: &'a [u8],
    pub(crate) extra: &'a [u8],
}

impl<'a> First<'a> {
    #[inline]
    pub(crate) fn of(span: &'a Span) -> Self {
        let (prefix, rest) = span.bytes().split_first_chunk().expect("a first span begins with its prefix");
        let (head_len, extra_len) = lengths(*prefix);
        let (head, rest) = rest.split_at(head_len);
        Self { head, extra: &rest[..extra_len] }
    }
}
