//! Lets a window of the body through.

use crate::Filter;

/// Drops what lies outside of a range of the body.
pub struct RangeOf {
    at: u64,
    from: u64,
    to: u64,
}

impl RangeOf {
    /// Bytes `from..to`.
    pub fn new(from: u64, to: u64) -> RangeOf {
        RangeOf { at: 0, from, to }
    }
}

impl Filter for RangeOf {
    fn name(&self) -> &'static str {
        "range"
    }

    fn push(&mut self, input: &[u8], _end: bool, out: &mut Vec<u8>) -> Result<(), String> {
        let end = self.at + input.len() as u64;
        let from = self.from.clamp(self.at, end) - self.at;
        let to = self.to.clamp(self.at, end) - self.at;
        out.extend_from_slice(&input[from as usize..to.max(from) as usize]);
        self.at = end;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.at >= self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_over_pieces() {
        let mut range = RangeOf::new(2, 5);
        let mut out = Vec::new();
        for piece in [b"ab".as_slice(), b"c", b"defg", b"h"] {
            range.push(piece, false, &mut out).unwrap();
        }
        assert_eq!(out, b"cde");
        assert!(range.is_done());
    }
}
