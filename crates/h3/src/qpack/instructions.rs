//! The instructions of the client's encoder stream (RFC 9204 section 4.3), which change the dynamic table. They arrive
//! in pieces of any size.

use super::QpackError;
use super::table::Table;
use super::text::{Halt, copy_name, number, separate, static_line, string};
use lacquer_h2::hpack::{Line, is_well_formed};

/// The state of the encoder stream.
#[derive(Debug, Default)]
pub(super) struct Instructions {
    /// The beginning of an incomplete instruction, and the minimum number of bytes that it needs.
    rest: Vec<u8>,
    needed: usize,
    /// The field that is being inserted.
    field: Vec<u8>,
}

impl Instructions {
    /// Applies the complete instructions in the bytes, which follow those of the last call.
    pub(super) fn receive(&mut self, input: &[u8], table: &mut Table) -> Result<(), QpackError> {
        if self.rest.is_empty() {
            let used = self.apply_all(input, table)?;
            self.rest.extend_from_slice(&input[used..]);
            return Ok(());
        }
        self.rest.extend_from_slice(input);
        if self.rest.len() >= self.needed {
            let mut rest = std::mem::take(&mut self.rest);
            let used = self.apply_all(&rest, table)?;
            rest.drain(..used);
            self.rest = rest;
        }
        Ok(())
    }

    /// Applies complete instructions. Returns the number of bytes that they use.
    fn apply_all(&mut self, input: &[u8], table: &mut Table) -> Result<usize, QpackError> {
        let mut used = 0;
        while used < input.len() {
            let mut at = 0;
            match self.apply(&input[used..], &mut at, table) {
                Ok(()) => used += at,
                Err(Halt::More(needed)) => {
                    self.needed = needed;
                    break;
                }
                Err(Halt::Full) => return Err(QpackError::TooLarge),
                Err(Halt::Damaged(error)) => return Err(error),
            }
        }
        Ok(used)
    }

    /// Applies the instruction at the start of `input`, and advances `at` past it.
    fn apply(&mut self, input: &[u8], at: &mut usize, table: &mut Table) -> Result<(), Halt> {
        let first = input[0];
        match first {
            0x80.. => {
                let index = number(input, at, 6)?;
                self.reserve(table);
                let name = if first & 0x40 == 0 { table.recent(index)? } else { static_line(index)? };
                let name_len = copy_name(name, &mut self.field)?;
                self.insert(name_len, input, at, table)
            }
            0x40..0x80 => {
                self.reserve(table);
                let name_len = string(input, at, 5, table.max_encoded(), &mut self.field)?;
                self.insert(name_len, input, at, table)
            }
            0x20..0x40 => {
                let capacity = number(input, at, 5)?;
                table.set_capacity(capacity)?;
                Ok(())
            }
            0x00..0x20 => {
                let index = number(input, at, 5)?;
                self.reserve(table);
                let (bytes, line) = table.recent(index)?;
                self.field.get_mut(..line.len).ok_or(Halt::Full)?.copy_from_slice(bytes);
                Ok(table.insert(&self.field, line)?)
            }
        }
    }

    /// Makes room for the largest field that the table can hold.
    fn reserve(&mut self, table: &Table) {
        self.field.resize(table.max_line(), 0);
    }

    /// Inserts the field whose name is decoded and whose value is at `at`.
    fn insert(
        &mut self,
        name_len: usize,
        input: &[u8],
        at: &mut usize,
        table: &mut Table,
    ) -> Result<(), Halt> {
        let out = &mut self.field[..];
        let value_at = separate(name_len, out)?;
        let len = value_at + string(input, at, 7, table.max_encoded(), &mut out[value_at..])?;
        let line = Line::new(len, name_len, is_well_formed(&out[..name_len], &out[value_at..len]));
        Ok(table.insert(out, line)?)
    }
}
