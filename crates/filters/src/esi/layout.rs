//! Arranges the parts of a body in storage and records them in the program. Parts that are delivered alternate with
//! parts that are not. Between them a compressed body is flushed to a byte boundary, so that each part can be
//! delivered or skipped separately.

use flate2::Crc;

use super::program::Recorder;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Send,
    Skip,
}

/// How compressed output is cut after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The output continues without a cut.
    None,
    /// The output is flushed to a byte boundary.
    Align,
    /// The output is flushed to a byte boundary, and the following output does not refer back.
    Reset,
    /// The output ends.
    Finish,
}

/// Encodes the body for storage.
pub trait Packer {
    const GZIP: bool;
    /// Appends the encoded bytes to `out`. Returns the total number of bytes encoded so far.
    fn pack(&mut self, bytes: &[u8], cut: Cut, out: &mut Vec<u8>) -> u64;
}

/// Stores the body unchanged.
#[derive(Debug, Default)]
pub struct Plain {
    total: u64,
}

impl Packer for Plain {
    const GZIP: bool = false;

    fn pack(&mut self, bytes: &[u8], _cut: Cut, out: &mut Vec<u8>) -> u64 {
        out.extend_from_slice(bytes);
        self.total += bytes.len() as u64;
        self.total
    }
}

pub struct Layout<P> {
    pub packer: P,
    pub program: Recorder,
    part: Part,
    crc: Crc,
    /// The number of bytes of the part, before encoding, that are not in the program yet.
    waiting: u64,
    /// The stored length that is in the program.
    recorded: u64,
    began: bool,
}

impl<P: Packer> Layout<P> {
    pub fn new(packer: P) -> Layout<P> {
        Layout {
            packer,
            program: Recorder::new(P::GZIP),
            part: Part::Skip,
            crc: Crc::new(),
            waiting: 0,
            recorded: 0,
            began: false,
        }
    }

    /// Returns the position for error reports.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Begins with a separate part for the gzip header, which must be delivered before any include.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.began {
            self.began = true;
            self.record(Cut::Reset, out);
            self.part = Part::Send;
        }
    }

    /// Adds the next bytes of the body to a part of this kind.
    pub fn mark(&mut self, part: Part, bytes: &[u8], out: &mut Vec<u8>) {
        if self.part != part && self.waiting > 0 {
            self.record(if part == Part::Send { Cut::Reset } else { Cut::Align }, out);
        }
        self.part = part;
        if !bytes.is_empty() {
            if P::GZIP {
                self.crc.update(bytes);
            }
            self.waiting += bytes.len() as u64;
            self.packer.pack(bytes, Cut::None, out);
        }
    }

    fn record(&mut self, cut: Cut, out: &mut Vec<u8>) {
        let stored = self.packer.pack(&[], cut, out);
        let length = stored - self.recorded;
        if length > 0 {
            match self.part {
                Part::Skip => self.program.skip(length),
                Part::Send => self.program.send(length, P::GZIP.then_some((self.waiting, self.crc.sum()))),
            }
        }
        self.recorded = stored;
        self.waiting = 0;
        self.crc.reset();
    }

    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.waiting > 0 {
            self.record(Cut::Align, out);
        }
        self.packer.pack(&[], Cut::Finish, out);
    }
}
