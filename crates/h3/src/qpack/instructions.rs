//! The instructions of the client's encoder stream (RFC 9204 section 4.3), which change the dynamic table. They arrive
//! in pieces of any size.

use super::QpackError;
use super::text::{Halt, copy_name, number, separate, static_line, string};
use lacquer_h2::hpack::dynamic_table::DynamicTable;
use lacquer_h2::hpack::{Line, SEPARATOR, is_well_formed};

/// The size of an entry in addition to its name and value, in bytes.
const OVERHEAD: usize = 32;

/// The maximum number of bytes that a byte of a string occupies in Huffman code, rounded up.
const MAX_EXPANSION: usize = 4;

/// The state of the encoder stream.
#[derive(Debug, Default)]
pub(super) struct Instructions {
    /// The beginning of an incomplete instruction, and the minimum number of bytes that it needs.
    rest: Vec<u8>,
    needed: usize,
    /// The field that is being inserted.
    field: Vec<u8>,
}

/// The table that instructions change.
struct Target<'a> {
    table: &'a mut DynamicTable,
    max_capacity: usize,
    inserted: &'a mut u64,
}

impl Instructions {
    /// Applies the complete instructions in the bytes, which follow those of the last call.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        table: &mut DynamicTable,
        max_capacity: usize,
        inserted: &mut u64,
    ) -> Result<(), QpackError> {
        let mut target = Target { table, max_capacity, inserted };
        if self.rest.is_empty() {
            let used = self.apply_all(input, &mut target)?;
            self.rest.extend_from_slice(&input[used..]);
            return Ok(());
        }
        self.rest.extend_from_slice(input);
        if self.rest.len() >= self.needed {
            let mut rest = std::mem::take(&mut self.rest);
            let used = self.apply_all(&rest, &mut target)?;
            rest.drain(..used);
            self.rest = rest;
        }
        Ok(())
    }

    /// Applies complete instructions. Returns the number of bytes that they use.
    fn apply_all(&mut self, input: &[u8], target: &mut Target<'_>) -> Result<usize, QpackError> {
        let mut used = 0;
        while used < input.len() {
            let mut at = 0;
            match self.apply(&input[used..], &mut at, target) {
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
    fn apply(&mut self, input: &[u8], at: &mut usize, target: &mut Target<'_>) -> Result<(), Halt> {
        let first = input[0];
        match first {
            0x80.. => {
                let index = number(input, at, 6)?;
                self.reserve(target);
                let name = if first & 0x40 == 0 { target.line(index)? } else { static_line(index)? };
                let name_len = copy_name(name, &mut self.field)?;
                self.insert(name_len, input, at, target)
            }
            0x40..0x80 => {
                self.reserve(target);
                let name_len = string(input, at, 5, target.max_encoded(), &mut self.field)?;
                self.insert(name_len, input, at, target)
            }
            0x20..0x40 => {
                let capacity = number(input, at, 5)?;
                let capacity = usize::try_from(capacity).ok().filter(|&size| size <= target.max_capacity);
                target.table.set_max_size(capacity.ok_or(QpackError::Capacity)?);
                Ok(())
            }
            0x00..0x20 => {
                let index = number(input, at, 5)?;
                self.reserve(target);
                let (bytes, line) = target.line(index)?;
                self.field.get_mut(..line.len).ok_or(Halt::Full)?.copy_from_slice(bytes);
                target.insert(&self.field, line)
            }
        }
    }

    /// Makes room for the largest field that the table can hold.
    fn reserve(&mut self, target: &Target<'_>) {
        self.field.resize(target.max_line(), 0);
    }

    /// Inserts the field whose name is decoded and whose value is at `at`.
    fn insert(
        &mut self,
        name_len: usize,
        input: &[u8],
        at: &mut usize,
        target: &mut Target<'_>,
    ) -> Result<(), Halt> {
        let out = &mut self.field[..];
        let value_at = separate(name_len, out)?;
        let len = value_at + string(input, at, 7, target.max_encoded(), &mut out[value_at..])?;
        let line = Line::new(len, name_len, is_well_formed(&out[..name_len], &out[value_at..len]));
        target.insert(out, line)
    }
}

impl Target<'_> {
    /// Returns the length of the longest line that the table can hold.
    fn max_line(&self) -> usize {
        (self.table.max_size() + SEPARATOR.len()).saturating_sub(OVERHEAD)
    }

    /// Returns the maximum length of an encoded string that the table can hold.
    fn max_encoded(&self) -> usize {
        self.table.max_size().saturating_sub(OVERHEAD) * MAX_EXPANSION
    }

    /// Returns the field that was inserted `index` insertions before the newest one.
    fn line(&self, index: u64) -> Result<(&[u8], Line), QpackError> {
        let index = usize::try_from(index).map_err(|_| QpackError::Index)?;
        self.table.get(index).ok_or(QpackError::Index)
    }

    fn insert(&mut self, bytes: &[u8], line: Line) -> Result<(), Halt> {
        if line.len > self.max_line() {
            return Err(Halt::Full);
        }
        self.table.insert(bytes, line);
        *self.inserted += 1;
        Ok(())
    }
}
