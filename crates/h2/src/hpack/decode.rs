//! Decodes a header block, field by field.

use super::dynamic_table::DynamicTable;
use super::line::{Line, SEPARATOR};
use super::static_table::{COUNT, STATIC, StaticField};
use super::well_formed::is_well_formed;
use super::{HpackError, huffman, integer};

/// The result of [`Decoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Field(Line),
    /// The block has ended.
    End,
    /// The input ends within a field. Nothing was consumed; the field has at least `needed` bytes.
    More {
        needed: usize,
    },
    /// There is no room for the field. Nothing was consumed; see [`Decoder::field_size_bound`].
    Full,
}

/// The reason why a field could not be decoded.
enum Halt {
    More(usize),
    Full,
    Damaged(HpackError),
}

impl From<HpackError> for Halt {
    fn from(error: HpackError) -> Halt {
        Halt::Damaged(error)
    }
}

/// Decodes the header blocks of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The maximum table size that the peer may choose, as announced in SETTINGS_HEADER_TABLE_SIZE.
    granted: usize,
    /// No field of this block has been decoded yet.
    at_start: bool,
}

impl Decoder {
    pub fn new(table_size: usize) -> Decoder {
        Decoder { table: DynamicTable::new(table_size), granted: table_size, at_start: true }
    }

    /// Changes the maximum size of the table that the peer may choose, once the peer has acknowledged it.
    pub fn grant(&mut self, table_size: usize) {
        self.granted = table_size;
        self.table.limit(table_size);
    }

    /// Begins a block. Must be called before its first byte is decoded.
    pub fn begin(&mut self) {
        self.at_start = true;
    }

    /// Removes the next field from the front of `input` and writes it to the start of `out`.
    #[inline]
    pub fn next(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Step, HpackError> {
        loop {
            let Some(&first) = input.first() else { return Ok(Step::End) };
            let halt = match first {
                0x80.. => match self.indexed(input, out) {
                    Ok((used, line)) => return Ok(self.take(input, used, line)),
                    Err(halt) => halt,
                },
                0x20..0x40 => match self.update(input) {
                    Ok(used) => {
                        *input = &input[used..];
                        continue;
                    }
                    Err(halt) => halt,
                },
                _ => match self.literal(input, out) {
                    Ok((used, line)) => return Ok(self.take(input, used, line)),
                    Err(halt) => halt,
                },
            };
            return match halt {
                Halt::More(needed) => Ok(Step::More { needed }),
                Halt::Full => Ok(Step::Full),
                Halt::Damaged(error) => Err(error),
            };
        }
    }

    #[inline]
    fn take(&mut self, input: &mut &[u8], used: usize, line: Line) -> Step {
        *input = &input[used..];
        self.at_start = false;
        Step::Field(line)
    }

    /// Returns a size of `out` that is always sufficient for the next field of `input`: no byte of a string expands
    /// to more than two, and a name may come from the table.
    pub fn field_size_bound(&self, input: &[u8]) -> usize {
        2 * input.len() + self.table.size() + 64
    }

    #[inline]
    fn line(&self, index: usize) -> Result<(&[u8], Line), HpackError> {
        match index.checked_sub(1) {
            Some(row) if row < COUNT => {
                let StaticField { line, name_len } = STATIC[row];
                Ok((line, Line::new(line.len(), name_len, true)))
            }
            Some(row) => self.table.get(row - COUNT).ok_or(HpackError::Index),
            None => Err(HpackError::Index),
        }
    }

    /// Decodes a field that is in a table. Returns the number of input bytes that it uses.
    #[inline]
    fn indexed(&self, input: &[u8], out: &mut [u8]) -> Result<(usize, Line), Halt> {
        let (index, used) = number(input, 0, 7)?;
        let (bytes, line) = self.line(index)?;
        out.get_mut(..line.len).ok_or(Halt::Full)?.copy_from_slice(bytes);
        Ok((used, line))
    }

    /// Decodes a field with a literal value, and a literal name unless the name is in a table.
    fn literal(&mut self, input: &[u8], out: &mut [u8]) -> Result<(usize, Line), Halt> {
        let is_indexed = input[0] & 0x40 != 0;
        let prefix = if is_indexed { 6 } else { 4 };
        let (index, mut at) = number(input, 0, prefix)?;
        let name_len = if index == 0 {
            string(input, &mut at, out)?
        } else {
            let (bytes, known) = self.line(index)?;
            out.get_mut(..known.name_len).ok_or(Halt::Full)?.copy_from_slice(&bytes[..known.name_len]);
            known.name_len
        };
        let value_at = name_len + SEPARATOR.len();
        out.get_mut(name_len..value_at).ok_or(Halt::Full)?.copy_from_slice(SEPARATOR);
        let len = value_at + string(input, &mut at, &mut out[value_at..])?;
        let line = Line::new(len, name_len, is_well_formed(&out[..name_len], &out[value_at..len]));
        if is_indexed {
            self.table.insert(out, line);
        }
        Ok((at, line))
    }

    /// Applies a new size of the table, which is allowed only at the start of a block (RFC 7541 section 4.2).
    fn update(&mut self, input: &[u8]) -> Result<usize, Halt> {
        let (size, used) = number(input, 0, 5)?;
        if size > self.granted || !self.at_start {
            return Err(Halt::Damaged(HpackError::Update));
        }
        self.table.set_max_size(size);
        Ok(used)
    }

    #[cfg(test)]
    pub(crate) fn table(&self) -> &DynamicTable {
        &self.table
    }
}

/// Returns the number at `at`, and the index after it.
#[inline]
fn number(input: &[u8], at: usize, prefix: u32) -> Result<(usize, usize), Halt> {
    let input = input.get(at..).unwrap_or_default();
    match integer::read(input, prefix)? {
        Some((value, used)) => Ok((value as usize, at + used)),
        None => Err(Halt::More(at + input.len() + 1)),
    }
}

/// Decodes the string at `at` to the start of `out`, and advances `at` past it. Returns the decoded length.
#[inline]
fn string(input: &[u8], at: &mut usize, out: &mut [u8]) -> Result<usize, Halt> {
    let is_huffman = input.get(*at).is_some_and(|byte| byte & 0x80 != 0);
    let (len, start) = number(input, *at, 7)?;
    let end = start + len;
    let bytes = input.get(start..end).ok_or(Halt::More(end))?;
    *at = end;
    if is_huffman {
        return huffman::decode(bytes, out)?.ok_or(Halt::Full);
    }
    out.get_mut(..len).ok_or(Halt::Full)?.copy_from_slice(bytes);
    Ok(len)
}
