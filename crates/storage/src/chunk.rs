//! A contiguous part of a body, which keeps its memory alive.

use std::sync::Arc;

use crate::span::{FileRange, Span};

#[derive(Debug)]
enum SpanRef<'a> {
    Borrowed(&'a Span),
    Shared(Arc<Span>),
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

    fn span(&self) -> &Span {
        match &self.span {
            SpanRef::Borrowed(span) => span,
            SpanRef::Shared(span) => span,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.span().bytes()[self.from..self.from + self.len]
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
        self.span().file_range(self.from, self.len)
    }
}
