//! The dynamic table: fields that both sides record (RFC 7541 sections 2.3.2 and 4). They are stored contiguously as
//! lines "name: value". Evicted fields leave a gap at the front, which is closed when it has become large.

use super::line::{Line, SEPARATOR};
use std::collections::VecDeque;

/// The size of an entry in addition to its name and value, in bytes, as HPACK defines it.
const OVERHEAD: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    line: Line,
}

impl Entry {
    const fn size(&self) -> usize {
        size_of(self.line.len)
    }
}

const fn size_of(line_len: usize) -> usize {
    line_len - SEPARATOR.len() + OVERHEAD
}

/// The table. The newest field has number 0.
#[derive(Debug)]
pub struct DynamicTable {
    lines: Vec<u8>,
    /// The entries, the oldest first.
    entries: VecDeque<Entry>,
    size: usize,
    max_size: usize,
}

impl DynamicTable {
    /// Creates an empty table with this maximum size, as HPACK defines it.
    pub fn new(max_size: usize) -> DynamicTable {
        DynamicTable { lines: Vec::new(), entries: VecDeque::new(), size: 0, max_size }
    }

    /// Returns the line with this number.
    #[inline]
    pub fn get(&self, index: usize) -> Option<(&[u8], Line)> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        Some((&self.lines[entry.start..entry.start + entry.line.len], entry.line))
    }

    /// Changes the maximum size, and evicts the oldest fields that exceed it.
    pub fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
    }

    /// Lowers the maximum size to this one, if it is larger.
    pub fn limit(&mut self, max_size: usize) {
        self.set_max_size(self.max_size.min(max_size));
    }

    /// Inserts the line at the start of `bytes`. A line that is larger than the table empties the table.
    pub fn insert(&mut self, bytes: &[u8], line: Line) {
        let size = size_of(line.len);
        if size > self.max_size {
            self.evict_to(0);
            return;
        }
        self.evict_to(self.max_size - size);
        self.close_gap(line.len);
        self.entries.push_back(Entry { start: self.lines.len(), line });
        self.lines.extend_from_slice(&bytes[..line.len]);
        self.size += size;
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.size -= oldest.size();
        }
    }

    /// Closes the gap if the lines would exceed twice the size of the table.
    fn close_gap(&mut self, more: usize) {
        let Some(oldest) = self.entries.front() else {
            self.lines.clear();
            return;
        };
        if self.lines.len() + more <= 2 * self.max_size {
            return;
        }
        let gap = oldest.start;
        self.lines.drain(..gap);
        for entry in &mut self.entries {
            entry.start -= gap;
        }
    }

    /// Returns the total size of all entries, as HPACK defines it.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the maximum total size of all entries.
    pub fn max_size(&self) -> usize {
        self.max_size
    }

    /// Returns the number of fields.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_fields_are_evicted_and_memory_is_bounded() {
        let mut table = DynamicTable::new(100);
        for i in 0..if cfg!(miri) { 50 } else { 1000 } {
            let line = format!("n: {i:0>width$}", width = 1 + i % 20);
            let parts = Line::new(line.len(), 1, true);
            table.insert(line.as_bytes(), parts);
            assert_eq!(table.get(0), Some((line.as_bytes(), parts)));
            assert!(table.size() <= 100 && table.memory() <= 200);
        }
        assert!(table.count() >= 1);
        assert_eq!(table.get(table.count()), None);
        table.insert(&[b'x'; 100], Line::new(100, 3, true));
        assert_eq!((table.count(), table.size()), (0, 0));
        table.insert(b"a: b", Line::new(4, 1, true));
        table.set_max_size(33);
        assert_eq!(table.count(), 0);
    }
}
