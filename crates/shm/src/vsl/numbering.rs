//! The numbers of tags in shared memory. A reader has a table of its own, and nothing in the log says which one it needs.
//!
//! Varnish 9 inserted two tags in the middle of the table of 7.7, and thereby renumbered those behind. Lacquer's table is
//! that of 7.7 with the new tags at its end, so that the tools of 7.3 to 8.0 name every tag that they have. For the tools
//! of Varnish 9, the numbers are replaced in finished records, before they are copied to the ring.

use super::{RECORD_HEAD, Tag, padded};

/// The tags that Varnish 9 has in the middle, in its order, and the tag that precedes them.
const INSERTED: [Tag; 2] = [Tag::BackendSSL, Tag::TLS];
const BEFORE: Tag = Tag::BackendClose;

/// The numbers of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// Those of the table, for the tools of Varnish 7.3 to 8.0.
    #[default]
    Varnish7,
    Varnish9,
}

impl Numbering {
    /// Replaces the numbers of finished records and heads of batches.
    #[inline]
    pub(super) fn apply(self, records: &mut [u8]) {
        if self == Numbering::Varnish9 {
            renumber(records);
        }
    }

    /// Returns the tag that has this number.
    pub fn tag_of(self, number: u8) -> Option<Tag> {
        let number_of = |tag: Tag| match self {
            Numbering::Varnish7 => tag as u32,
            Numbering::Varnish9 => number_in_9(tag as u32),
        };
        Tag::ALL.iter().copied().find(|tag| number_of(*tag) == u32::from(number))
    }
}

#[cold]
fn renumber(mut records: &mut [u8]) {
    while let Some((head, rest)) = records.split_first_chunk_mut::<RECORD_HEAD>() {
        let word = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        head[..4].copy_from_slice(&(number_in_9(word >> 24) << 24 | word & 0xff_ffff).to_ne_bytes());
        // A record that is written in parts has its text elsewhere.
        let Some(next) = rest.get_mut(padded(word as usize & 0xffff)..) else { return };
        records = next;
    }
}

/// Returns the number that Varnish 9 has for a tag.
fn number_in_9(number: u32) -> u32 {
    const FIRST: u32 = BEFORE as u32 + 1;
    const LAST: u32 = INSERTED[INSERTED.len() - 1] as u32;
    let count = INSERTED.len() as u32;
    match INSERTED.iter().position(|tag| *tag as u32 == number) {
        Some(at) => FIRST + at as u32,
        None if (FIRST..=LAST).contains(&number) => number + count,
        None => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vsl::{Vxid, batch_head, record_head};

    fn names_in_9() -> Vec<&'static str> {
        let mut tags: Vec<_> = Tag::ALL.iter().map(|tag| (number_in_9(*tag as u32), tag.name())).collect();
        tags.sort_unstable();
        assert!(tags.iter().zip(1..).all(|((number, _), expected)| *number == expected), "{tags:?}");
        tags.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn varnish_9_has_the_new_tags_in_the_middle() {
        let names = names_in_9();
        assert_eq!(
            names[5..11],
            ["BackendOpen", "BackendClose", "BackendSSL", "TLS", "HttpGarbage", "Proxy"]
        );
        assert_eq!(names[names.len() - 3..], ["Notice", "VdpAcct", "ReqTarget"]);
        for special in [0, Tag::_Reserved as u32, Tag::_Batch as u32] {
            assert_eq!(number_in_9(special), special);
        }
    }

    #[test]
    fn all_records_of_a_batch_are_renumbered() {
        let vxid = Vxid::client(7);
        let batch = |begin: u32, end: u32, request: u32| {
            let mut bytes = Vec::new();
            for (number, text) in [(begin, &b"req 1 rxreq\0"[..]), (request, b"GET\0"), (end, b"\0")] {
                let mut head = record_head(Tag::Begin, text.len(), vxid);
                head[3] = number as u8;
                bytes.extend(head);
                bytes.extend(text);
                bytes.resize(padded(bytes.len()), 0);
            }
            [&batch_head(bytes.len())[..], &bytes].concat()
        };
        let (begin, end, method) = (Tag::Begin as u32, Tag::End as u32, Tag::ReqMethod as u32);
        let mut bytes = batch(begin, end, method);
        Numbering::Varnish7.apply(&mut bytes);
        assert_eq!(bytes, batch(begin, end, method));
        Numbering::Varnish9.apply(&mut bytes);
        assert_eq!(bytes, batch(begin + 2, end + 2, method + 2));
    }
}
