//! Compression and decompression with gzip, and a check that a body is encoded as its Content-Encoding declares.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{Filter, Flow, Report, take_front};

const WINDOW_BITS: u8 = 15;
/// The length of a gzip header without optional fields in bits, and of a gzip trailer in bytes.
const HEADER_BITS: u64 = 80;
const TRAILER: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Pack,
    Unpack,
}

/// Returns the text of a `Gzip` record: input and output length, then the beginning of the deflate stream, of its
/// last block, and its end, in bits. The last two are not determined: they are the values for a stream with one
/// block.
pub(crate) fn account(direction: Direction, id: &str, taken: u64, made: u64) -> String {
    let packed = if direction == Direction::Pack { made } else { taken };
    let stop = packed.saturating_sub(TRAILER) * 8;
    let start = HEADER_BITS.min(stop);
    format!("{id} {taken} {made} {start} {start} {stop}")
}

/// The place where a body is decompressed. It determines the wording of errors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Fetch,
    Delivery,
    Test,
}

/// Decompresses a gzip body. Bytes after its end are an error, and so is an early end.
pub struct Gunzip {
    state: Decompress,
    side: Side,
    ended: bool,
    faults: Vec<String>,
}

impl Gunzip {
    fn on(side: Side) -> Gunzip {
        Gunzip { state: Decompress::new_gzip(WINDOW_BITS), side, ended: false, faults: Vec::new() }
    }

    /// Creates a filter for a body from an origin.
    pub fn new() -> Gunzip {
        Gunzip::on(Side::Fetch)
    }

    /// Creates a filter for a body that is sent to a client.
    pub fn for_delivery() -> Gunzip {
        Gunzip::on(Side::Delivery)
    }

    fn junk(&mut self) -> String {
        if self.side == Side::Delivery {
            self.faults.push("G(un)zip error: 1 (junk after VGZ_END)".to_owned());
        }
        "Junk after gzip data".to_owned()
    }

    fn invalid(&mut self, error: &flate2::DecompressError) -> String {
        let why = error.message().unwrap_or("(null)");
        self.faults.push(format!("Gunzip error: -3 ({why})"));
        format!("Invalid Gzip data: {why}")
    }
}

impl Default for Gunzip {
    fn default() -> Self {
        Gunzip::new()
    }
}

impl Filter for Gunzip {
    fn name(&self) -> &'static str {
        "gunzip"
    }

    fn push(&mut self, input: &mut &[u8], end: bool, out: &mut Vec<u8>, step: usize) -> Result<Flow, String> {
        while !self.ended {
            if out.len() >= step {
                return Ok(Flow::Full);
            }
            let (taken, made) = (self.state.total_in(), self.state.total_out());
            out.reserve_exact(step - out.len());
            let status = self.state.decompress_vec(input, out, FlushDecompress::None);
            let _ = take_front(input, (self.state.total_in() - taken) as usize);
            match status {
                Ok(Status::StreamEnd) => self.ended = true,
                Ok(_) if self.state.total_in() == taken && self.state.total_out() == made => break,
                Ok(_) => {}
                Err(e) => return Err(self.invalid(&e)),
            }
        }
        if self.ended && !input.is_empty() {
            return Err(self.junk());
        }
        match self.side {
            Side::Fetch if end && !self.ended => Err("Gunzip error at the very end".to_owned()),
            Side::Test if end && !self.ended => Err("tGunzip failed".to_owned()),
            _ => Ok(Flow::Taken),
        }
    }

    /// Output for a client is held until a step is full or the body ends.
    fn fills_steps(&self) -> bool {
        self.side == Side::Delivery && !self.ended
    }

    fn report(&mut self, report: &mut Report) {
        let id = match self.side {
            Side::Fetch => "U F -",
            Side::Delivery => "U D -",
            Side::Test => "u F -",
        };
        let (taken, made) = (self.state.total_in(), self.state.total_out());
        report.gzip.append(&mut self.faults);
        report.gzip.push(account(Direction::Unpack, id, taken, made));
        if self.side == Side::Test && self.ended {
            report.unpacked = Some(made);
        }
    }
}

/// The maximum number of steps of decompressed output that are checked before their input is passed on. This limits
/// the work that a small piece of input can cause without a pause.
const TESTED_STEPS: usize = 16;

/// Passes a gzip body on unchanged, after checking that it can be decompressed.
pub struct TestGunzip {
    inner: Gunzip,
    scratch: Vec<u8>,
}

impl TestGunzip {
    pub fn new() -> TestGunzip {
        TestGunzip { inner: Gunzip::on(Side::Test), scratch: Vec::new() }
    }
}

impl Default for TestGunzip {
    fn default() -> Self {
        TestGunzip::new()
    }
}

impl Filter for TestGunzip {
    fn name(&self) -> &'static str {
        "testgunzip"
    }

    fn push(&mut self, input: &mut &[u8], end: bool, out: &mut Vec<u8>, step: usize) -> Result<Flow, String> {
        let whole = *input;
        let mut piece = take_front(input, step.saturating_sub(out.len()).max(1));
        let (start, ends) = (piece, end && input.is_empty());
        for _ in 0..TESTED_STEPS {
            self.scratch.clear();
            let flow = self.inner.push(&mut piece, ends, &mut self.scratch, step)?;
            if flow == Flow::Taken {
                break;
            }
        }
        let taken = start.len() - piece.len();
        out.extend_from_slice(&start[..taken]);
        *input = &whole[taken..];
        let is_full = !input.is_empty() || self.scratch.len() >= step;
        Ok(if is_full { Flow::Full } else { Flow::Taken })
    }

    fn report(&mut self, report: &mut Report) {
        self.inner.report(report);
    }
}

/// Compresses a body.
pub struct Gzip {
    state: Compress,
    ended: bool,
}

impl Gzip {
    /// Creates a filter with a compression level from 0 to 9.
    pub fn new(level: u32) -> Gzip {
        Gzip { state: Compress::new_gzip(Compression::new(level), WINDOW_BITS), ended: false }
    }
}

impl Filter for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn push(&mut self, input: &mut &[u8], end: bool, out: &mut Vec<u8>, step: usize) -> Result<Flow, String> {
        while !self.ended && (end || !input.is_empty()) {
            if out.len() >= step {
                return Ok(Flow::Full);
            }
            let taken = self.state.total_in();
            out.reserve_exact(step - out.len());
            let flush = if end { FlushCompress::Finish } else { FlushCompress::None };
            let status = self.state.compress_vec(input, out, flush).map_err(|e| e.to_string())?;
            let _ = take_front(input, (self.state.total_in() - taken) as usize);
            self.ended = status == Status::StreamEnd;
        }
        Ok(Flow::Taken)
    }

    fn report(&mut self, report: &mut Report) {
        let (taken, made) = (self.state.total_in(), self.state.total_out());
        report.gzip.push(account(Direction::Pack, "G F -", taken, made));
        if self.ended {
            report.unpacked = Some(taken);
        }
    }
}

/// Compresses a whole text into one stream.
#[cfg(test)]
pub(crate) fn pack(text: &[u8], level: u32) -> Vec<u8> {
    let mut out = Vec::new();
    Gzip::new(level).push(&mut &*text, true, &mut out, 1 << 24).unwrap();
    out
}

/// Decompresses a whole stream.
#[cfg(test)]
pub(crate) fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut chain = crate::Chain::new(vec![Box::new(Gunzip::new())], 1 << 15);
    let mut out = Vec::new();
    while let Some(piece) = chain.next(&mut packed, true).unwrap() {
        out.extend_from_slice(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(filter: &mut dyn Filter, input: &[u8], step: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        for mut piece in input.chunks(step) {
            while filter.push(&mut piece, false, &mut out, 1 << 24)? == Flow::Full {}
        }
        while filter.push(&mut &[][..], true, &mut out, 1 << 24)? == Flow::Full {}
        Ok(out)
    }

    #[test]
    fn compressed_bodies_decompress_to_the_original() {
        let text: Vec<u8> = (0..200_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let packed = through(&mut Gzip::new(6), &text, 1000).unwrap();
        assert!(packed.len() < text.len());
        assert_eq!(through(&mut Gunzip::new(), &packed, 77).unwrap(), text);
        let mut check = TestGunzip::new();
        assert_eq!(through(&mut check, &packed, 4096).unwrap(), packed);
        assert_eq!(check.inner.state.total_out(), text.len() as u64);
    }

    #[test]
    fn broken_bodies_are_rejected() {
        let packed = through(&mut Gzip::new(6), b"hello, world", 100).unwrap();
        assert!(through(&mut Gunzip::new(), &packed[..packed.len() - 3], 5).is_err());
        assert!(through(&mut Gunzip::new(), &[&packed[..], b"x"].concat(), 500).is_err());
        assert!(through(&mut Gunzip::new(), b"not gzip at all", 500).is_err());
    }
}
