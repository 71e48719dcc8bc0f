//! A reader of DER (X.690), as far as certificates need it.

/// Tags that certificates use.
pub mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub const BIT_STRING: u8 = 0x03;
    pub const OCTET_STRING: u8 = 0x04;
    pub const OID: u8 = 0x06;
    pub const UTF8_STRING: u8 = 0x0c;
    pub const PRINTABLE_STRING: u8 = 0x13;
    pub const T61_STRING: u8 = 0x14;
    pub const IA5_STRING: u8 = 0x16;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    pub const UNIVERSAL_STRING: u8 = 0x1c;
    pub const BMP_STRING: u8 = 0x1e;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
}

/// An element: its tag, its content, and the bytes of both.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    pub whole: &'a [u8],
}

impl<'a> Element<'a> {
    /// Returns a reader of the elements in this one.
    pub fn inside(self) -> Reader<'a> {
        Reader::new(self.content)
    }
}

/// Reads elements one after the other.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the tag of the next element.
    pub fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Reads the next element. Returns `None` at the end, for a length that exceeds the bytes, and for the forms that
    /// DER or certificates do not use: indefinite lengths and tags of several bytes.
    pub fn next(&mut self) -> Option<Element<'a>> {
        let tag = self.peek().filter(|tag| tag & 0x1f != 0x1f)?;
        let first = *self.rest.get(1)?;
        let (length, head) = match first {
            0..=0x7f => (usize::from(first), 2),
            0x81..=0x84 => {
                let count = usize::from(first & 0x7f);
                let bytes = self.rest.get(2..2 + count)?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), 2 + count)
            }
            _ => return None,
        };
        let end = head.checked_add(length)?;
        let whole = self.rest.get(..end)?;
        self.rest = &self.rest[end..];
        Some(Element { tag, content: &whole[head..], whole })
    }

    /// Reads the next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// Reads the next element if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Option<Element<'a>> {
        if self.peek() == Some(tag) { self.next() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let long = [&[0x04, 0x81, 0x80][..], &[7; 0x80]].concat();
        let element = Reader::new(&long).next().unwrap();
        assert_eq!((element.tag, element.content.len(), element.whole.len()), (4, 0x80, 0x83));
        for bad in [&[][..], &[4], &[4, 1], &[4, 0x80, 0, 0], &[0x1f, 1, 0], &[4, 0x85, 0, 0, 0, 0, 1, 9]] {
            assert!(Reader::new(bad).next().is_none(), "{bad:?}");
        }
        assert!(Reader::new(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]).next().is_none());
    }
}
