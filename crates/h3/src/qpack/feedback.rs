//! The instructions of the client's decoder stream (RFC 9204 section 4.4). The encoder of this side never inserts
//! fields, so the client has nothing to acknowledge. It may cancel streams.

use super::{QpackError, integer};
use crate::error_table::Reason;
use crate::fault::Fault;

/// The maximum length of an instruction in bytes.
const MAX_LEN: usize = 16;

/// The state of the client's decoder stream.
#[derive(Debug, Default)]
pub struct Feedback {
    /// The beginning of an incomplete instruction.
    rest: Vec<u8>,
}

impl Feedback {
    /// Checks the bytes, which follow those of the last call.
    pub fn receive(&mut self, input: &[u8]) -> Result<(), Fault> {
        self.check(input).map_err(|error| {
            let text = format!("QPACK decoder stream error ({})", error.text());
            Fault::connection(Reason::DecoderStreamError, text)
        })
    }

    fn check(&mut self, mut input: &[u8]) -> Result<(), QpackError> {
        while !self.rest.is_empty() {
            let Some((&byte, rest)) = input.split_first() else { return Ok(()) };
            self.rest.push(byte);
            input = rest;
            if instruction(&self.rest)?.is_some() {
                self.rest.clear();
            }
        }
        while !input.is_empty() {
            let Some(len) = instruction(input)? else {
                debug_assert!(input.len() < MAX_LEN, "a longer number is an error");
                self.rest.extend_from_slice(input);
                return Ok(());
            };
            input = &input[len..];
        }
        Ok(())
    }
}

/// Checks the instruction at the start of the bytes. Returns its length, or `None` if it is not complete.
fn instruction(bytes: &[u8]) -> Result<Option<usize>, QpackError> {
    let is_cancellation = bytes.first().is_some_and(|byte| byte & 0xc0 == 0x40);
    if !is_cancellation {
        return Err(QpackError::Acknowledgment);
    }
    Ok(integer::read(bytes, 6)?.map(|(_, len)| len))
}
