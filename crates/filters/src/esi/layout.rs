//! Lays the parts of a body out in storage and records them in the program. Parts that are delivered
//! and parts that are not alternate; where they meet, a packed body is flushed to a byte boundary, so
//! that each part can be taken or left on its own.

use flate2::Crc;

use super::program::Recorder;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Send,
    Skip,
}

/// The cut of packed output after a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The output continues.
    None,
    /// At a byte boundary.
    Align,
    /// At a byte boundary, and what follows does not refer back.
    Reset,
    /// It is the end.
    Finish,
}

/// Turns the body into what is stored.
pub trait Packer {
    const GZIP: bool;
    /// Appends the bytes to be stored to `out`; returns how many were stored so far in all.
    fn pack(&mut self, bytes: &[u8], cut: Cut, out: &mut Vec<u8>) -> u64;
}

/// Stores the body as it is.
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
    /// Bytes of the part before packing that are not in the program yet.
    waiting: u64,
    /// Stored length that is in the program.
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

    /// Returns the position at which faults are reported.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Begins with a part of its own for the gzip header, which must be out before anything is included.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.began {
            self.began = true;
            self.record(Cut::Reset, out);
            self.part = Part::Send;
        }
    }

    /// The next bytes of the body are such a part.
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
