//! The decoder of a connection: the dynamic table, the blocked streams, and the instructions for the client's encoder.

use super::QpackError;
use super::instructions::Instructions;
use super::integer::write;
use super::section::{Begun, Prefix, Section, Step};
use super::table::Table;
use crate::error_table::Reason;
use crate::fault::Fault;

/// The maximum number of bytes of instructions that wait to be sent. A client that does not permit them to be sent
/// must not make the decoder gather more.
const MAX_OUTPUT: usize = 64 * 1024;

const SECTION_ACKNOWLEDGMENT: u8 = 0x80;
const STREAM_CANCELLATION: u8 = 0x40;
const INSERT_COUNT_INCREMENT: u8 = 0x00;

/// Decodes the field sections of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The number of insertions that the client's encoder knows to have arrived.
    acknowledged: u64,
    instructions: Instructions,
    /// The streams with blocked sections, and the number of insertions that each needs.
    blocked: Vec<(u64, u64)>,
    max_blocked: usize,
    output: Vec<u8>,
}

impl Decoder {
    /// Creates the decoder from the announced limits. The dynamic table has capacity 0 until the client changes it.
    pub fn new(max_capacity: usize, max_blocked: usize) -> Decoder {
        Decoder {
            table: Table::new(max_capacity),
            acknowledged: 0,
            instructions: Instructions::default(),
            blocked: Vec::new(),
            max_blocked,
            output: Vec::new(),
        }
    }

    /// Applies bytes of the client's encoder stream. Returns whether fields were inserted, so that blocked sections may
    /// be complete.
    pub fn receive(&mut self, input: &[u8]) -> Result<bool, Fault> {
        let before = self.table.inserted();
        let received = self.instructions.receive(input, &mut self.table);
        received.map_err(|error| {
            let text = format!("QPACK encoder stream error ({})", error.text());
            Fault::connection(Reason::EncoderStreamError, text)
        })?;
        Ok(self.table.inserted() > before)
    }

    /// Begins to decode the field section of a stream. If it is blocked, the caller must begin again after
    /// [`Decoder::receive`] has returned true, or call [`Decoder::cancel`].
    pub fn begin<'a>(&mut self, stream: u64, section: &'a [u8]) -> Result<Begun<'a>, QpackError> {
        let known = self.blocked.iter().position(|&(blocked, _)| blocked == stream);
        let prefix = Prefix::read(section, &self.table, known.map(|at| self.blocked[at].1))?;
        if prefix.required > self.table.inserted() {
            match known {
                Some(_) => {}
                None if self.blocked.len() >= self.max_blocked => return Err(QpackError::Blocked),
                None => self.blocked.push((stream, prefix.required)),
            }
            return Ok(Begun::Blocked);
        }
        if let Some(at) = known {
            self.blocked.swap_remove(at);
        }
        Ok(Begun::Section(Section::new(&section[prefix.len..], &prefix)))
    }

    /// Returns the blocked streams whose field sections can now be decoded.
    pub fn unblocked(&self) -> impl Iterator<Item = u64> {
        self.blocked
            .iter()
            .filter(|&&(_, required)| required <= self.table.inserted())
            .map(|&(stream, _)| stream)
    }

    /// Records that the field section of a stream was decoded, and acknowledges it if it refers to the dynamic table.
    pub fn finish(&mut self, stream: u64, section: &Section<'_>) {
        let required = section.required();
        if required > 0 {
            write(&mut self.output, 7, SECTION_ACKNOWLEDGMENT, stream);
            self.acknowledged = self.acknowledged.max(required);
        }
    }

    /// Records that a stream ends before all of its field sections were decoded. Must be called for each stream that is
    /// reset, by either side, before its request is complete.
    pub fn cancel(&mut self, stream: u64) {
        let before = self.blocked.len();
        self.blocked.retain(|&(blocked, _)| blocked != stream);
        // Without insertions, no section can refer to a field.
        if self.table.inserted() > 0 || self.blocked.len() < before {
            write(&mut self.output, 6, STREAM_CANCELLATION, stream);
        }
    }

    /// Returns the instructions that wait to be sent on the decoder stream. The caller removes what it has sent. Fails
    /// if the client does not permit them to be sent.
    pub fn output(&mut self) -> Result<&mut Vec<u8>, Fault> {
        if self.table.inserted() > self.acknowledged {
            write(&mut self.output, 6, INSERT_COUNT_INCREMENT, self.table.inserted() - self.acknowledged);
            self.acknowledged = self.table.inserted();
        }
        if self.output.len() > MAX_OUTPUT {
            return Err(Fault::connection(Reason::ExcessiveLoad, "H3: QPACK decoder stream is blocked"));
        }
        Ok(&mut self.output)
    }

    /// Decodes the next field of a section to the start of `out`.
    #[inline]
    pub fn next(&self, section: &mut Section<'_>, out: &mut [u8]) -> Result<Step, QpackError> {
        section.next(&self.table, out)
    }

    /// Returns a size of a buffer that is always sufficient for the next field of a section: no byte of a string
    /// expands to more than two, and a name may come from a table.
    pub fn field_size_bound(&self, input: &Section<'_>) -> usize {
        2 * input.left() + self.table.size() + 128
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &lacquer_h2::hpack::dynamic_table::DynamicTable {
        self.table.fields()
    }
}
