//! Field sections (RFC 9204 section 4.5): a prefix that names the required insertions, and field lines.

use super::table::Table;
use super::text::{Halt, copy_name, number, separate, static_line, string};
use super::{QpackError, integer};
use lacquer_h2::hpack::{Line, is_well_formed};

/// The result of [`super::Decoder::begin`].
#[derive(Debug)]
pub enum Begun<'a> {
    Section(Section<'a>),
    /// The section refers to fields that have not arrived.
    Blocked,
}

/// The result of [`super::Decoder::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Field(Line),
    /// The section has ended.
    End,
    /// There is no room for the field. Nothing was consumed; see [`super::Decoder::field_size_bound`].
    Full,
}

/// The prefix of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The number of insertions that must have arrived.
    pub required: u64,
    /// The absolute number from which relative ones count.
    pub base: u64,
    /// The length of the prefix in bytes.
    pub len: usize,
}

impl Prefix {
    /// Reads the prefix, for a decoder with this table. `known` is the required count of a section that was blocked: it
    /// is encoded relative to the insertions at the time when the section arrived.
    pub(super) fn read(section: &[u8], table: &Table, known: Option<u64>) -> Result<Prefix, QpackError> {
        let (encoded, at) = integer::read(section, 8)?.ok_or(QpackError::Truncated)?;
        let rest = &section[at..];
        let (delta, used) = integer::read(rest, 7)?.ok_or(QpackError::Truncated)?;
        let is_negative = rest[0] & 0x80 != 0;
        let required = match known {
            Some(required) => required,
            None => required(encoded, table.max_entries(), table.inserted())?,
        };
        let base = if is_negative {
            required.checked_sub(delta + 1).ok_or(QpackError::InsertCount)?
        } else {
            required + delta
        };
        Ok(Prefix { required, base, len: at + used })
    }
}

/// Restores the required insert count, which is encoded modulo twice the maximum number of entries (section 4.5.1.1).
fn required(encoded: u64, max_entries: u64, inserted: u64) -> Result<u64, QpackError> {
    if encoded == 0 {
        return Ok(0);
    }
    let range = 2 * max_entries;
    if encoded > range {
        return Err(QpackError::InsertCount);
    }
    let max = inserted + max_entries;
    let required = max / range * range + encoded - 1;
    if required <= max {
        return if required == 0 { Err(QpackError::InsertCount) } else { Ok(required) };
    }
    required.checked_sub(range).filter(|&required| required > 0).ok_or(QpackError::InsertCount)
}

/// A field section that is being decoded.
#[derive(Debug)]
pub struct Section<'a> {
    input: &'a [u8],
    required: u64,
    base: u64,
}

impl<'a> Section<'a> {
    pub(super) fn new(input: &'a [u8], prefix: &Prefix) -> Section<'a> {
        Section { input, required: prefix.required, base: prefix.base }
    }

    /// Returns the number of bytes that are not decoded yet.
    pub(super) fn left(&self) -> usize {
        self.input.len()
    }

    pub(super) fn required(&self) -> u64 {
        self.required
    }

    /// Decodes the next field to the start of `out`.
    #[inline]
    pub(super) fn next(&mut self, table: &Table, out: &mut [u8]) -> Result<Step, QpackError> {
        let Some(&first) = self.input.first() else { return Ok(Step::End) };
        let mut at = 0;
        match self.field(first, &mut at, table, out) {
            Ok(line) => {
                self.input = &self.input[at..];
                Ok(Step::Field(line))
            }
            Err(Halt::Full) => Ok(Step::Full),
            Err(Halt::More(_)) => Err(QpackError::Truncated),
            Err(Halt::Damaged(error)) => Err(error),
        }
    }

    #[inline]
    fn field(&self, first: u8, at: &mut usize, table: &Table, out: &mut [u8]) -> Result<Line, Halt> {
        let input = self.input;
        let name_len = match first {
            0xc0.. => return copy(static_line(number(input, at, 6)?)?, out),
            0x80..0xc0 => return copy(self.relative(number(input, at, 6)?, table)?, out),
            0x50..0x60 | 0x70..0x80 => copy_name(static_line(number(input, at, 4)?)?, out)?,
            0x40..0x50 | 0x60..0x70 => copy_name(self.relative(number(input, at, 4)?, table)?, out)?,
            0x20..0x40 => string(input, at, 3, usize::MAX, out)?,
            0x10..0x20 => return copy(self.post_base(number(input, at, 4)?, table)?, out),
            0x00..0x10 => copy_name(self.post_base(number(input, at, 3)?, table)?, out)?,
        };
        let value_at = separate(name_len, out)?;
        let len = value_at + string(input, at, 7, usize::MAX, &mut out[value_at..])?;
        Ok(Line::new(len, name_len, is_well_formed(&out[..name_len], &out[value_at..len])))
    }

    /// Returns the field that was inserted `index + 1` insertions before the base.
    #[inline]
    fn relative<'d>(&self, index: u64, table: &'d Table) -> Result<(&'d [u8], Line), QpackError> {
        let absolute = self.base.checked_sub(1).and_then(|newest| newest.checked_sub(index));
        self.absolute(absolute.ok_or(QpackError::Index)?, table)
    }

    /// Returns the field that was inserted `index` insertions after the base.
    fn post_base<'d>(&self, index: u64, table: &'d Table) -> Result<(&'d [u8], Line), QpackError> {
        self.absolute(self.base + index, table)
    }

    #[inline]
    fn absolute<'d>(&self, absolute: u64, table: &'d Table) -> Result<(&'d [u8], Line), QpackError> {
        if absolute >= self.required {
            return Err(QpackError::Index);
        }
        table.line(absolute)
    }
}

/// Copies a field that is in a table.
#[inline]
fn copy((bytes, line): (&[u8], Line), out: &mut [u8]) -> Result<Line, Halt> {
    out.get_mut(..line.len).ok_or(Halt::Full)?.copy_from_slice(bytes);
    Ok(line)
}
