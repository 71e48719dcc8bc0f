//! A contiguous part of a body, which keeps its memory alive.

use std::sync::Arc;

use crate::span::{FileRange, Span};

#[derive(Debug)]
enum SpanRef<'a> {
    Borrowed(&'a Span),
    Shared(Arc<Span>),
    /// Memory of a device, as long as the chunk.
    Lent(&'a [u8]),
}

/// A contiguous part of a body. It keeps the memory alive.
#[derive(Debug)]
pub struct Chunk<'a> {
    span: SpanRef<'a>,
    from: usize,
    len: usize,
}

impl<'a> Chunk<'a> {
    pub(crate) fn shared(span: Arc<Span>, from: usize, len: usize) -> Self {
        Self { span: SpanRef::Shared(span), from, len }
    }

    pub(crate) fn borrowed(span: &'a Span, from: usize, len: usize) -> Self {
        Self { span: SpanRef::Borrowed(span), from, len }
    }

    pub(crate) fn lent(bytes: &'a [u8]) -> Self {
        Self { span: SpanRef::Lent(bytes), from: 0, len: bytes.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        let bytes = match &self.span {
            SpanRef::Borrowed(span) => span.bytes(),
            SpanRef::Shared(span) => span.bytes(),
            SpanRef::Lent(bytes) => bytes,
        };
        &bytes[self.from..self.from + self.len]
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Shortens the chunk to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the same bytes as a file range for `sendfile`, if they have pages of their own. The pages then count
    /// as sent: they are replaced before they are written again.
    pub fn file_range(&self) -> Option<FileRange<'_>> {
        match &self.span {
            SpanRef::Borrowed(span) => span.file_range(self.from, self.len),
            SpanRef::Shared(span) => span.file_range(self.from, self.len),
            SpanRef::Lent(_) => None,
        }
    }
}
