//! A request of a client, with all that is needed to check its response.

/// A requested page. Its variant is selected by a header that `Vary` names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub path: String,
    pub variant: u64,
}

/// A part of a page, in bytes.
#[derive(Clone, Copy, Debug)]
pub enum Range {
    Between(usize, usize),
    From(usize),
    Last(usize),
}

impl Range {
    pub fn text(self) -> String {
        match self {
            Range::Between(from, to) => format!("bytes={from}-{to}"),
            Range::From(from) => format!("bytes={from}-"),
            Range::Last(bytes) => format!("bytes=-{bytes}"),
        }
    }

    /// Returns the positions of the first and last byte in a page of `length` bytes, or `None` if it has no such part.
    pub fn of(self, length: usize) -> Option<(usize, usize)> {
        let (from, to) = match self {
            Range::Between(from, to) => (from, to.min(length.checked_sub(1)?)),
            Range::From(from) => (from, length.checked_sub(1)?),
            Range::Last(bytes) => (length.saturating_sub(bytes), length.checked_sub(1)?),
        };
        (from <= to).then_some((from, to))
    }
}

/// A condition of a request. The number is that of a response that the client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    NoneMatch(usize),
    ModifiedSince(usize),
}

pub struct PageRequest {
    pub key: Key,
    pub method: &'static str,
    pub fields: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub upload: Option<usize>,
    pub at: f64,
    pub number: u64,
    pub accepts_gzip: bool,
    pub range: Option<Range>,
    /// The range applies to this response only.
    pub if_range: Option<usize>,
    pub condition: Option<Condition>,
}

impl PageRequest {
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_page() {
        let table = [
            (Range::Between(0, 4), 10, Some((0, 4))),
            (Range::Between(5, 40), 10, Some((5, 9))),
            (Range::Between(10, 40), 10, None),
            (Range::From(9), 10, Some((9, 9))),
            (Range::From(10), 10, None),
            (Range::Last(3), 10, Some((7, 9))),
            (Range::Last(30), 10, Some((0, 9))),
            (Range::Last(0), 10, None),
        ];
        for (range, length, expected) in table {
            assert_eq!(range.of(length), expected, "{range:?} of {length}");
        }
    }
}
