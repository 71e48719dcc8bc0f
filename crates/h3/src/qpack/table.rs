//! The dynamic table of a decoder (RFC 9204 section 3.2), whose fields have absolute numbers.

use super::QpackError;
use lacquer_h2::hpack::dynamic_table::DynamicTable;
use lacquer_h2::hpack::{Line, SEPARATOR};

/// The size of an entry in addition to its name and value, in bytes.
pub(super) const OVERHEAD: usize = 32;

/// The maximum number of bytes that a byte of a string occupies in Huffman code, rounded up.
const MAX_EXPANSION: usize = 4;

/// The fields that the client has inserted.
#[derive(Debug)]
pub(super) struct Table {
    fields: DynamicTable,
    /// The announced limit on the capacity.
    max_capacity: usize,
    /// The number of fields that were ever inserted.
    inserted: u64,
}

impl Table {
    /// Creates a table with capacity 0.
    pub(super) fn new(max_capacity: usize) -> Table {
        Table { fields: DynamicTable::new(0), max_capacity, inserted: 0 }
    }

    pub(super) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Returns the number of entries that would fit into a table with the announced limit.
    pub(super) fn max_entries(&self) -> u64 {
        (self.max_capacity / OVERHEAD) as u64
    }

    /// Returns the total size of all entries.
    pub(super) fn size(&self) -> usize {
        self.fields.size()
    }

    pub(super) fn set_capacity(&mut self, capacity: u64) -> Result<(), QpackError> {
        let capacity = usize::try_from(capacity).ok().filter(|&capacity| capacity <= self.max_capacity);
        self.fields.set_max_size(capacity.ok_or(QpackError::Capacity)?);
        Ok(())
    }

    /// Returns the length of the longest line that the table can hold.
    pub(super) fn max_line(&self) -> usize {
        (self.fields.max_size() + SEPARATOR.len()).saturating_sub(OVERHEAD)
    }

    /// Returns the maximum length of an encoded string that the table can hold.
    pub(super) fn max_encoded(&self) -> usize {
        self.fields.max_size().saturating_sub(OVERHEAD) * MAX_EXPANSION
    }

    /// Returns the field that was inserted `age` insertions before the newest one.
    pub(super) fn recent(&self, age: u64) -> Result<(&[u8], Line), QpackError> {
        let age = usize::try_from(age).map_err(|_| QpackError::Index)?;
        self.fields.get(age).ok_or(QpackError::Index)
    }

    /// Returns the field with this absolute number.
    #[inline]
    pub(super) fn line(&self, absolute: u64) -> Result<(&[u8], Line), QpackError> {
        let age = (self.inserted.checked_sub(1)).and_then(|newest| newest.checked_sub(absolute));
        self.recent(age.ok_or(QpackError::Index)?)
    }

    /// Inserts the line at the start of `bytes`.
    pub(super) fn insert(&mut self, bytes: &[u8], line: Line) -> Result<(), QpackError> {
        if line.len > self.max_line() {
            return Err(QpackError::TooLarge);
        }
        self.fields.insert(bytes, line);
        self.inserted += 1;
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> &DynamicTable {
        &self.fields
    }
}
