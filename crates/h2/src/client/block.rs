//! A header block that arrives in fragments.

use crate::error_table::Reason;
use crate::fault::Fault;
use crate::hpack::{Decoder, Line, Step, TRUNCATED};

/// The maximum number of frames of a block without a byte.
const MAX_EMPTY: u32 = 16;
/// The size of the buffer for one field, before it is known to be longer.
const FIELD: usize = 512;

/// A block whose end has not arrived.
#[derive(Debug)]
pub struct Block {
    pub stream: u32,
    pub ends_stream: bool,
    bytes: Vec<u8>,
    empty: u32,
}

fn calm(text: &'static str) -> Fault {
    Fault::connection(Reason::EnhanceYourCalm, text)
}

impl Block {
    pub fn new(stream: u32, ends_stream: bool) -> Block {
        Block { stream, ends_stream, bytes: Vec::new(), empty: 0 }
    }

    /// Adds a fragment. `limit` is the maximum length of a block.
    pub fn push(&mut self, fragment: &[u8], limit: usize) -> Result<(), Fault> {
        if fragment.is_empty() {
            self.empty += 1;
            if self.empty > MAX_EMPTY {
                return Err(calm("too many empty CONTINUATION frames"));
            }
        }
        if self.bytes.len() + fragment.len() > limit {
            return Err(calm("a header block is too long"));
        }
        self.bytes.extend_from_slice(fragment);
        Ok(())
    }

    /// Decodes the whole block. Calls `field` for each field in order. The decoded fields may have `limit` bytes.
    pub fn decode(
        &self,
        decoder: &mut Decoder,
        limit: usize,
        mut field: impl FnMut(Line, &[u8]),
    ) -> Result<(), Fault> {
        let damaged = |text: &str| {
            Fault::connection(Reason::CompressionError, format!("HPACK compression error ({text})"))
        };
        let (mut input, mut out, mut left) = (&self.bytes[..], vec![0; FIELD], limit);
        decoder.begin();
        loop {
            match decoder.next(&mut input, &mut out).map_err(|error| damaged(error.text()))? {
                Step::Field(line) => {
                    left =
                        left.checked_sub(line.len + 32).ok_or_else(|| calm("a header list is too long"))?;
                    field(line, &out[..line.len]);
                }
                Step::End => return Ok(()),
                Step::More { .. } => return Err(damaged(TRUNCATED)),
                Step::Full => {
                    let size = decoder.field_size_bound(input);
                    out.resize(size, 0);
                }
            }
        }
    }
}
