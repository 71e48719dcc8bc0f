//! The parts of an object in spans of their own.

use std::sync::Arc;

use crate::blocks::Blocks;
use crate::span::Span;

/// A part of a body. It begins at byte `start` of the body, and at byte `skip` of `span`.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) skip: usize,
    pub(crate) span: Arc<Span>,
    pub(crate) blocks: Blocks,
}

impl Piece {
    pub(crate) fn new(start: u64, skip: usize, span: Arc<Span>) -> Self {
        Self { start, skip, span, blocks: Blocks::default() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + (self.span.len() - self.skip) as u64
    }

    /// Computes the checksums of the blocks that are complete; with `ended`, also that of the last one.
    pub(crate) fn add_blocks(&mut self, ended: bool) {
        self.blocks.add(&self.span.bytes()[self.skip..], ended);
    }
}

/// Data of filters that were set after the head was stored.
#[derive(Debug)]
pub(crate) enum Extra {
    Heap(Box<[u8]>),
    Span(Span),
}

impl Extra {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Span(span) => span.bytes(),
        }
    }
}

/// A part of an object outside of its first span.
pub(crate) enum KeptPart<'a> {
    Extra(&'a Span),
    Piece { span: &'a Arc<Span>, skip: usize, sums: &'a [u32] },
}

impl KeptPart<'_> {
    pub(crate) fn span(&self) -> &Span {
        match self {
            Self::Extra(span) => span,
            Self::Piece { span, .. } => span,
        }
    }
}
