//! Strings (RFC 9204 section 4.1.2): a bit for the Huffman code, a length, and bytes.

use super::{QpackError, integer};
use lacquer_h2::hpack::{Line, SEPARATOR, StaticField, huffman};

/// The reason why a field could not be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The input ends within the field, which has at least so many bytes.
    More(usize),
    /// There is no room for the field.
    Full,
    Damaged(QpackError),
}

impl From<QpackError> for Halt {
    fn from(error: QpackError) -> Halt {
        Halt::Damaged(error)
    }
}

/// Returns the number at `at`, and advances `at` past it.
#[inline]
pub(super) fn number(input: &[u8], at: &mut usize, prefix: u32) -> Result<u64, Halt> {
    let input = input.get(*at..).unwrap_or_default();
    let (value, used) = integer::read(input, prefix)?.ok_or(Halt::More(*at + input.len() + 1))?;
    *at += used;
    Ok(value)
}

/// Decodes the string at `at` to the start of `out`, and advances `at` past it. The length begins in the low `prefix`
/// bits; the bit above it announces the Huffman code. Fails if the encoded string exceeds `max` bytes. Returns the
/// decoded length.
#[inline]
pub(super) fn string(
    input: &[u8],
    at: &mut usize,
    prefix: u32,
    max: usize,
    out: &mut [u8],
) -> Result<usize, Halt> {
    let is_huffman = input.get(*at).is_some_and(|byte| byte & (1 << prefix) != 0);
    let len = number(input, at, prefix)?;
    let len = usize::try_from(len).ok().filter(|&len| len <= max).ok_or(QpackError::TooLarge)?;
    let end = *at + len;
    let bytes = input.get(*at..end).ok_or(Halt::More(end))?;
    *at = end;
    if is_huffman {
        return huffman::decode(bytes, out).map_err(|_| QpackError::Huffman)?.ok_or(Halt::Full);
    }
    out.get_mut(..len).ok_or(Halt::Full)?.copy_from_slice(bytes);
    Ok(len)
}

/// Copies the name of a known field to the start of `out`. Returns its length.
#[inline]
pub(super) fn copy_name((bytes, known): (&[u8], Line), out: &mut [u8]) -> Result<usize, Halt> {
    out.get_mut(..known.name_len).ok_or(Halt::Full)?.copy_from_slice(&bytes[..known.name_len]);
    Ok(known.name_len)
}

/// Writes the separator after the name. Returns the index of the value.
#[inline]
pub(super) fn separate(name_len: usize, out: &mut [u8]) -> Result<usize, Halt> {
    let value_at = name_len + SEPARATOR.len();
    out.get_mut(name_len..value_at).ok_or(Halt::Full)?.copy_from_slice(SEPARATOR);
    Ok(value_at)
}

/// Returns the row of the static table with this number.
#[inline]
pub(super) fn static_line(index: u64) -> Result<(&'static [u8], Line), QpackError> {
    let row = usize::try_from(index).ok().and_then(|index| super::static_table::STATIC.get(index));
    let &StaticField { line, name_len } = row.ok_or(QpackError::Index)?;
    Ok((line, Line::new(line.len(), name_len, true)))
}
