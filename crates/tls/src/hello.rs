//! The fingerprint of a client, JA3: the version, ciphers, extensions, groups and point formats of its first message, in
//! decimal numbers. Reserved values that clients add at random (RFC 8701) do not count.

use std::fmt::Write as _;

/// The length of the type, version and length before a record.
const HEADER: usize = 5;
const SUPPORTED_GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const CLIENT_HELLO: u8 = 1;

/// The rest of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn short(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Takes bytes that are preceded by their number, of one byte.
    fn short_vector(&mut self) -> Option<&'a [u8]> {
        let n = self.byte()?;
        self.take(n.into())
    }

    /// Takes bytes that are preceded by their number, of two bytes.
    fn vector(&mut self) -> Option<&'a [u8]> {
        let n = self.short()?;
        self.take(n.into())
    }
}

/// Returns the fingerprint of the client whose records these are; `None` if they begin with no whole ClientHello.
pub fn ja3(records: &[u8]) -> Option<Box<str>> {
    let mut message = Vec::new();
    let mut rest = Reader(records);
    loop {
        let _type_and_version = rest.take(HEADER - 2)?;
        message.extend_from_slice(rest.vector()?);
        if let Some(body) = body_of(&message) {
            return of_hello(&mut Reader(body));
        }
    }
}

/// Returns the fingerprint of the client whose handshake messages these are, without records, as in QUIC; `None` if they
/// begin with no whole ClientHello.
pub fn ja3_of_message(messages: &[u8]) -> Option<Box<str>> {
    of_hello(&mut Reader(body_of(messages)?))
}

/// Returns the body of the ClientHello with which handshake messages begin, if it is whole.
fn body_of(messages: &[u8]) -> Option<&[u8]> {
    match messages.split_first_chunk::<4>()? {
        (&[CLIENT_HELLO, a, b, c], rest) => rest.get(..u32::from_be_bytes([0, a, b, c]) as usize),
        _ => None,
    }
}

fn of_hello(hello: &mut Reader<'_>) -> Option<Box<str>> {
    let version = hello.short()?;
    let _random = hello.take(32)?;
    let _session = hello.short_vector()?;
    let ciphers = shorts(hello.vector()?);
    let _compressions = hello.short_vector()?;
    let (mut types, mut groups, mut formats) = (Vec::new(), Vec::new(), Vec::new());
    if !hello.0.is_empty() {
        let mut extensions = Reader(hello.vector()?);
        while !extensions.0.is_empty() {
            let typ = extensions.short()?;
            let mut body = Reader(extensions.vector()?);
            types.push(typ);
            match typ {
                SUPPORTED_GROUPS => groups = shorts(body.vector()?),
                POINT_FORMATS => formats = body.short_vector()?.iter().map(|&f| u16::from(f)).collect(),
                _ => {}
            }
        }
    }
    let mut text = version.to_string();
    for (list, is_reserved) in [(ciphers, true), (types, true), (groups, true), (formats, false)] {
        text.push(',');
        let listed = list.iter().filter(|&&value| !(is_reserved && is_grease(value)));
        for (i, value) in listed.enumerate() {
            let _ = write!(text, "{}{value}", if i > 0 { "-" } else { "" });
        }
    }
    Some(text.into())
}

fn shorts(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect()
}

/// Returns whether a value is reserved for clients that add it at random.
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value & 0xff == value >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ClientHello with these ciphers and extensions, in records of at most `split` bytes.
    fn hello(ciphers: &[u16], extensions: &[(u16, &[u8])], split: usize) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend((ciphers.len() as u16 * 2).to_be_bytes());
        body.extend(ciphers.iter().flat_map(|cipher| cipher.to_be_bytes()));
        body.extend([1, 0]);
        let mut all = Vec::new();
        for (typ, bytes) in extensions {
            all.extend(typ.to_be_bytes());
            all.extend((bytes.len() as u16).to_be_bytes());
            all.extend(*bytes);
        }
        body.extend((all.len() as u16).to_be_bytes());
        body.extend(all);
        let mut message = vec![1];
        message.extend(&(body.len() as u32).to_be_bytes()[1..]);
        message.extend(body);
        let record = |piece: &[u8]| {
            let mut record = vec![22, 3, 1];
            record.extend((piece.len() as u16).to_be_bytes());
            record.extend(piece);
            record
        };
        message.chunks(split).flat_map(record).collect()
    }

    #[test]
    fn a_fingerprint_lists_what_the_client_offers_without_reserved_values() {
        let extensions: &[(u16, &[u8])] =
            &[(0x1a1a, &[]), (0, &[]), (10, &[0, 6, 0x2a, 0x2a, 0, 29, 0, 23]), (11, &[1, 0]), (16, &[])];
        for split in [7, 50, 1000] {
            let bytes = hello(&[0x0a0a, 4865, 4866], extensions, split);
            let found = ja3(&bytes).expect("a whole message");
            assert_eq!(&*found, "771,4865-4866,0-10-11-16,29-23,0");
            if split == 1000 {
                assert_eq!(ja3_of_message(&bytes[HEADER..]), Some(found));
            }
        }
    }

    #[test]
    fn no_prefix_of_a_message_has_a_fingerprint() {
        let bytes = hello(&[4865], &[(10, &[0, 2, 0, 29])], 1000);
        assert!((0..bytes.len()).all(|n| ja3(&bytes[..n]).is_none()));
        assert!((HEADER..bytes.len()).all(|n| ja3_of_message(&bytes[HEADER..n]).is_none()));
        assert!(ja3(&bytes).is_some());
    }

    #[test]
    fn a_message_with_wrong_lengths_has_no_fingerprint() {
        let bytes = hello(&[4865], &[(10, &[0, 9, 0, 29])], 1000);
        assert_eq!(ja3(&bytes), None);
    }
}
