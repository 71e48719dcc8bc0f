//! A set of strings: exact matches by hash, and all prefixes of a text by one search in a sorted table.

use std::borrow::Cow;
use std::collections::HashMap;

/// The numbers of strings are those of their order, from 0.
pub(super) struct Strings {
    case_sensitive: bool,
    exact: HashMap<Vec<u8>, u32>,
    /// The strings in ascending order.
    sorted: Vec<Entry>,
}

struct Entry {
    text: Vec<u8>,
    number: u32,
    /// Position of the longest other string that is a prefix of this one.
    prefix: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// This string was added twice.
    Twice(Vec<u8>),
}

impl Strings {
    pub fn new<'s>(strings: impl Iterator<Item = &'s [u8]>, case_sensitive: bool) -> Result<Strings, Fault> {
        let mut exact = HashMap::new();
        let mut sorted = Vec::new();
        for (number, string) in strings.enumerate() {
            let text = folded(string, case_sensitive).into_owned();
            if exact.insert(text.clone(), number as u32).is_some() {
                return Err(Fault::Twice(string.to_vec()));
            }
            sorted.push(Entry { text, number: number as u32, prefix: None });
        }
        sorted.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        // The prefixes of a string are before it, each followed only by strings that begin with it.
        let mut open: Vec<u32> = Vec::new();
        for at in 0..sorted.len() {
            while open.last().is_some_and(|last| !sorted[at].text.starts_with(&sorted[*last as usize].text)) {
                open.pop();
            }
            sorted[at].prefix = open.last().copied();
            open.push(at as u32);
        }
        Ok(Strings { case_sensitive, exact, sorted })
    }

    pub fn has_overlaps(&self) -> bool {
        self.sorted.iter().any(|entry| entry.prefix.is_some())
    }

    pub fn find(&self, text: &[u8]) -> Option<u32> {
        self.exact.get(&*folded(text, self.case_sensitive)).copied()
    }

    /// Returns the numbers of all strings that the text begins with, from the longest to the shortest.
    pub fn prefixes(&self, text: &[u8]) -> Vec<u32> {
        let text = folded(text, self.case_sensitive);
        let mut found = Vec::new();
        // Every prefix of the text is a prefix of the last string that is not greater than the text, or that string.
        let mut at = self.sorted.partition_point(|entry| *entry.text <= *text).checked_sub(1);
        while let Some(entry) = at.map(|at| &self.sorted[at]) {
            if !found.is_empty() || text.starts_with(&entry.text) {
                found.push(entry.number);
            }
            at = entry.prefix.map(|prefix| prefix as usize);
        }
        found
    }
}

fn folded(text: &[u8], case_sensitive: bool) -> Cow<'_, [u8]> {
    if case_sensitive { Cow::Borrowed(text) } else { Cow::Owned(text.to_ascii_lowercase()) }
}

#[cfg(test)]
mod tests {
    use lacquer_sources::random::Random;

    use super::*;

    fn strings(all: &[&str], case_sensitive: bool) -> Result<Strings, Fault> {
        Strings::new(all.iter().map(|s| s.as_bytes()), case_sensitive)
    }

    #[test]
    fn strings_and_prefixes_are_found() {
        let set = strings(&["/foo/", "/foo/bar/", "/bar/", "/foo/bar/baz/", ""], true).expect("distinct");
        assert_eq!((set.find(b"/bar/"), set.find(b"/bar"), set.find(b"")), (Some(2), None, Some(4)));
        assert_eq!(set.prefixes(b"/foo/bar/quux"), [1, 0, 4]);
        assert_eq!(set.prefixes(b"/foo/bar/baz/"), [3, 1, 0, 4]);
        assert_eq!(set.prefixes(b"/zzz"), [4]);
        assert!(set.has_overlaps());
        let set = strings(&["Foo", "bar"], false).expect("distinct");
        assert_eq!((set.find(b"fOO"), set.prefixes(b"BARx")), (Some(0), vec![1]));
        assert!(!set.has_overlaps() && set.prefixes(b"fo").is_empty());
        assert_eq!(strings(&["Foo", "fOO"], false).err(), Some(Fault::Twice(b"fOO".to_vec())));
    }

    /// A scan of all strings is the model.
    #[test]
    fn prefixes_are_those_that_a_scan_finds() {
        let mut random = Random::new(1);
        let mut next = |end| random.below(end);
        for _ in 0..300 {
            let mut text = |most| (0..next(most)).map(|_| b"ab\xff"[next(3) as usize]).collect::<Vec<u8>>();
            let mut all: Vec<Vec<u8>> = (0..12).map(|_| text(6)).collect();
            all.sort_unstable();
            all.dedup();
            all.rotate_left(2);
            let set = Strings::new(all.iter().map(Vec::as_slice), true).expect("distinct");
            for _ in 0..20 {
                let subject = text(8);
                let mut expected: Vec<u32> =
                    (0..all.len() as u32).filter(|i| subject.starts_with(&all[*i as usize])).collect();
                expected.sort_by_key(|i| std::cmp::Reverse(all[*i as usize].len()));
                assert_eq!(set.prefixes(&subject), expected, "{subject:?} in {all:?}");
            }
        }
    }
}
