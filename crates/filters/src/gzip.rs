//! gzip both ways, and a check that a body is what its Content-Encoding says.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::Filter;

const WINDOW_BITS: u8 = 15;
const STEP: usize = 32 * 1024;

/// Unpacks a gzip body. Anything behind its end is an error, as is an end too early.
pub struct Gunzip {
    state: Decompress,
    ended: bool,
    test_only: bool,
}

impl Gunzip {
    pub fn new() -> Gunzip {
        Gunzip { state: Decompress::new_gzip(WINDOW_BITS), ended: false, test_only: false }
    }

    /// Length of the body as unpacked so far.
    pub fn total_out(&self) -> u64 {
        self.state.total_out()
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

    fn push(&mut self, mut input: &[u8], end: bool, out: &mut Vec<u8>) -> Result<(), String> {
        while !self.ended {
            let (taken, made) = (self.state.total_in(), self.state.total_out());
            out.reserve(STEP);
            let status = self.state.decompress_vec(input, out, FlushDecompress::None);
            input = &input[(self.state.total_in() - taken) as usize..];
            match status {
                Ok(Status::StreamEnd) => self.ended = true,
                Ok(_) if self.state.total_in() == taken && self.state.total_out() == made => break,
                Ok(_) => {}
                Err(e) => return Err(format!("Invalid Gzip input: {e}")),
            }
            if self.test_only {
                out.clear();
            }
        }
        if self.ended && !input.is_empty() {
            return Err("Junk after gzip data".to_owned());
        }
        if end && !self.ended && self.state.total_in() > 0 {
            return Err("Unexpected end of gzip data".to_owned());
        }
        Ok(())
    }
}

/// Passes a gzip body on as it is, after making sure that it can be unpacked.
pub struct TestGunzip {
    inner: Gunzip,
    scratch: Vec<u8>,
}

impl TestGunzip {
    pub fn new() -> TestGunzip {
        TestGunzip { inner: Gunzip { test_only: true, ..Gunzip::new() }, scratch: Vec::new() }
    }

    pub fn total_out(&self) -> u64 {
        self.inner.total_out()
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

    fn push(&mut self, input: &[u8], end: bool, out: &mut Vec<u8>) -> Result<(), String> {
        self.inner.push(input, end, &mut self.scratch)?;
        out.extend_from_slice(input);
        Ok(())
    }
}

/// Packs a body.
pub struct Gzip {
    state: Compress,
    ended: bool,
}

impl Gzip {
    /// `level` 0 to 9.
    pub fn new(level: u32) -> Gzip {
        Gzip { state: Compress::new_gzip(Compression::new(level), WINDOW_BITS), ended: false }
    }

    /// Length of the body before packing, so far.
    pub fn total_in(&self) -> u64 {
        self.state.total_in()
    }
}

impl Filter for Gzip {
    fn name(&self) -> &'static str {
        "gzip"
    }

    fn push(&mut self, mut input: &[u8], end: bool, out: &mut Vec<u8>) -> Result<(), String> {
        while !self.ended && (end || !input.is_empty()) {
            let taken = self.state.total_in();
            out.reserve(STEP);
            let flush = if end { FlushCompress::Finish } else { FlushCompress::None };
            let status = self.state.compress_vec(input, out, flush).map_err(|e| e.to_string())?;
            input = &input[(self.state.total_in() - taken) as usize..];
            self.ended = status == Status::StreamEnd;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(filter: &mut dyn Filter, input: &[u8], step: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        for piece in input.chunks(step) {
            filter.push(piece, false, &mut out)?;
        }
        filter.push(&[], true, &mut out)?;
        Ok(out)
    }

    #[test]
    fn there_and_back() {
        let text: Vec<u8> = (0..200_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let packed = through(&mut Gzip::new(6), &text, 1000).unwrap();
        assert!(packed.len() < text.len());
        assert_eq!(through(&mut Gunzip::new(), &packed, 77).unwrap(), text);
        let mut test = TestGunzip::new();
        assert_eq!(through(&mut test, &packed, 4096).unwrap(), packed);
        assert_eq!(test.total_out(), text.len() as u64);
    }

    #[test]
    fn broken_bodies_are_errors() {
        let packed = through(&mut Gzip::new(6), b"hello, world", 100).unwrap();
        assert!(through(&mut Gunzip::new(), &packed[..packed.len() - 3], 5).is_err());
        assert!(through(&mut Gunzip::new(), &[&packed[..], b"x"].concat(), 500).is_err());
        assert!(through(&mut Gunzip::new(), b"not gzip at all", 500).is_err());
    }
}
