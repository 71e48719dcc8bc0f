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
        let (code, rest) = self.rest.split_first()?;
        self.rest = rest;
        match *code {
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
                Some(Step::Include { base: &[], url: self.text()?, host, or_fail: *code == INCLUDE })
            }
            BASE => {
                self.base = self.text()?;
                self.step()
            }
            RELATIVE | RELATIVE_OPTIONAL => {
                let url = self.text()?;
                Some(Step::Include { base: self.base, url, host: &[], or_fail: *code == RELATIVE })
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
            self.text(&[b"Host: ", host]);
        }
        self.text(&[url]);
    }

    /// Returns the program, if it has any step.
    pub fn finish(self) -> Option<Vec<u8>> {
        (self.bytes.len() > 1).then_some(self.bytes)
    }
}
