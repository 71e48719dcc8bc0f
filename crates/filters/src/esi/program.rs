//! The ESI program of an object: which stored bytes are delivered, and which responses are included where.
//!
//! ```text
//! program = kind step*               kind: 0 plain, 1 gzip
//! step    = 1 length                 deliver this number of stored bytes (plain)
//!         | 1 length origin crc      the same (gzip): they decompress to `origin` bytes with this CRC-32
//!         | 2 length                 skip this number of stored bytes
//!         | 3 text text              include with Host header line (empty: the same) and URL, or fail
//!         | 4 text text              the same, but continue if it fails
//!         | 5 text                   the base of the following relative URLs
//!         | 6 text                   include relative URL with the same Host, or fail
//!         | 7 text                   the same, but continue if it fails
//! text    = length bytes             length, origin: LEB128; crc: 4 bytes, little endian
//! ```

const SEND: u8 = 1;
const SKIP: u8 = 2;
const INCLUDE: u8 = 3;
const INCLUDE_OPTIONAL: u8 = 4;
/// The base is written only once: it may be thousands of bytes that the client chose, and a page may have many
/// includes.
const BASE: u8 = 5;
const RELATIVE: u8 = 6;
const RELATIVE_OPTIONAL: u8 = 7;
/// The beginning of a Host header line.
const HOST: &[u8] = b"Host: ";

/// One step of delivery.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'p> {
    /// Deliver bytes. `origin` and `crc` are length and CRC-32 of the decompressed bytes; without gzip they are 0.
    Send {
        length: u64,
        origin: u64,
        crc: u32,
    },
    Skip {
        length: u64,
    },
    /// Include the response for the URL, which is `base` followed by `url`.
    Include {
        base: &'p [u8],
        url: &'p [u8],
        host: &'p [u8],
        or_fail: bool,
    },
}

/// Iterates over the steps of a program.
#[derive(Clone, Debug)]
pub struct Steps<'p> {
    rest: &'p [u8],
    base: &'p [u8],
    gzip: bool,
}

impl<'p> Steps<'p> {
    /// Begins with `program`, the result of the parser. An empty one has no steps.
    pub fn new(program: &'p [u8]) -> Steps<'p> {
        let (kind, rest) = program.split_first().unwrap_or((&0, &[]));
        Steps { rest, base: &[], gzip: *kind == 1 }
    }

    /// Returns whether the stored body is gzipped.
    pub fn is_gzip(&self) -> bool {
        self.gzip
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'p [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }

    fn step(&mut self) -> Option<Step<'p>> {
        let code = loop {
            let (code, rest) = self.rest.split_first()?;
            self.rest = rest;
            if *code != BASE {
                break *code;
            }
            self.base = self.text()?;
        };
        match code {
            SEND if self.gzip => {
                let length = self.number()?;
                let origin = self.number()?;
                let (crc, rest) = self.rest.split_first_chunk()?;
                self.rest = rest;
                Some(Step::Send { length, origin, crc: u32::from_le_bytes(*crc) })
            }
            SEND => Some(Step::Send { length: self.number()?, origin: 0, crc: 0 }),
            SKIP => Some(Step::Skip { length: self.number()? }),
            INCLUDE | INCLUDE_OPTIONAL => {
                let host = self.text()?;
                Some(Step::Include { base: &[], url: self.text()?, host, or_fail: code == INCLUDE })
            }
            RELATIVE | RELATIVE_OPTIONAL => {
                let url = self.text()?;
                Some(Step::Include { base: self.base, url, host: &[], or_fail: code == RELATIVE })
            }
            _ => None,
        }
    }
}

impl<'p> Iterator for Steps<'p> {
    type Item = Step<'p>;

    fn next(&mut self) -> Option<Step<'p>> {
        self.step()
    }
}

/// Checks a program that comes from outside this process. Returns whether it is complete, delivers or skips at most the
/// `body` bytes that are stored, and has no text that would end a line of a request.
pub fn is_sound(program: &[u8], body: u64) -> bool {
    let is_line = |text: &[u8]| !text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    let (mut steps, mut left, mut unpacked) = (Steps::new(program), body, 0_u64);
    while !steps.rest.is_empty() {
        let is_possible = match steps.step() {
            Some(Step::Send { length, origin, .. }) => {
                unpacked = unpacked.saturating_add(origin);
                left.checked_sub(length).is_some_and(|after| {
                    left = after;
                    unpacked < u64::MAX
                })
            }
            Some(Step::Skip { length }) => left.checked_sub(length).map(|after| left = after).is_some(),
            Some(Step::Include { base, url, host, .. }) => {
                let has_name = host.is_empty() || host.starts_with(HOST);
                has_name && [base, url, host].into_iter().all(is_line)
            }
            None => false,
        };
        if !is_possible {
            return false;
        }
    }
    program.first().is_some_and(|kind| *kind <= 1)
}

/// Writes a program.
#[derive(Debug)]
pub struct Recorder {
    bytes: Vec<u8>,
    has_base: bool,
}

impl Recorder {
    pub fn new(gzip: bool) -> Recorder {
        Recorder { bytes: vec![u8::from(gzip)], has_base: false }
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn text(&mut self, parts: &[&[u8]]) {
        self.number(parts.iter().map(|p| p.len() as u64).sum());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Records an include of a URL relative to `base`, which is the same throughout a program.
    pub fn include_relative(&mut self, base: &[u8], url: &[u8], or_fail: bool) {
        if !std::mem::replace(&mut self.has_base, true) {
            self.bytes.push(BASE);
            self.text(&[base, b"/"]);
        }
        self.bytes.push(if or_fail { RELATIVE } else { RELATIVE_OPTIONAL });
        self.text(&[url]);
    }

    /// Records bytes that are delivered. `unpacked` is length and CRC of the decompressed bytes, if they are gzipped.
    pub fn send(&mut self, length: u64, unpacked: Option<(u64, u32)>) {
        self.bytes.push(SEND);
        self.number(length);
        if let Some((origin, crc)) = unpacked {
            self.number(origin);
            self.bytes.extend_from_slice(&crc.to_le_bytes());
        }
    }

    pub fn skip(&mut self, length: u64) {
        self.bytes.push(SKIP);
        self.number(length);
    }

    pub fn include(&mut self, host: &[u8], url: &[u8], or_fail: bool) {
        self.bytes.push(if or_fail { INCLUDE } else { INCLUDE_OPTIONAL });
        if host.is_empty() {
            self.number(0);
        } else {
            self.text(&[HOST, host]);
        }
        self.text(&[url]);
    }

    /// Returns the program, if it has any step.
    pub fn finish(self) -> Option<Vec<u8>> {
        (self.bytes.len() > 1).then_some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_programs_are_checked() {
        let mut plain = Recorder::new(false);
        plain.send(100, None);
        plain.include(b"a.example", b"/x", true);
        plain.include_relative(b"/dir", b"y", false);
        plain.skip(20);
        let plain = plain.finish().expect("it has steps");
        assert!(is_sound(&plain, 120) && !is_sound(&plain, 119));
        let mut packed = Recorder::new(true);
        packed.send(100, Some((400, 7)));
        let packed = packed.finish().expect("it has steps");
        assert!(is_sound(&packed, 100));
        for cut in 1..packed.len() {
            assert_eq!(is_sound(&packed[..cut], 1000), cut == 1, "{cut}");
        }
        let with = |f: &dyn Fn(&mut Recorder)| {
            let mut program = Recorder::new(true);
            f(&mut program);
            is_sound(&program.finish().expect("it has steps"), u64::MAX)
        };
        assert!(with(&|p| p.include(b"a", b"/", true)));
        assert!(!with(&|p| p.include(b"a\r\nX: 1", b"/", true)));
        assert!(!with(&|p| p.include(b"a", b"/\nX: 1", true)));
        assert!(!with(&|p| p.include_relative(b"/\0", b"a", true)));
        assert!(!with(&|p| (0..2).for_each(|_| p.send(1 << 63, Some((1, 1))))));
        assert!(!with(&|p| (0..2).for_each(|_| p.send(1, Some((1 << 63, 1))))));
        assert!(!is_sound(&[], 10) && !is_sound(&[2, 1, 1], 10) && !is_sound(&[0, 9], 10));
        assert!(!is_sound(&[0, INCLUDE, 1, b'x', 0], 10), "no Host header");
    }

    /// A chain of bases does not use the stack.
    #[test]
    fn many_bases_are_read() {
        let program: Vec<u8> = std::iter::once(0).chain([BASE, 0].repeat(1 << 20)).chain([SKIP, 1]).collect();
        assert_eq!(Steps::new(&program).collect::<Vec<_>>(), [Step::Skip { length: 1 }]);
    }
}
