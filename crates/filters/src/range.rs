//! Passes a range of the body.

use crate::{Filter, Flow, take_front};

/// Drops the bytes outside of a range of the body.
pub struct RangeOf {
    at: u64,
    from: u64,
    to: u64,
}

impl RangeOf {
    /// Passes the bytes `from..to`.
    pub fn new(from: u64, to: u64) -> RangeOf {
        RangeOf { at: 0, from, to }
    }
}

impl Filter for RangeOf {
    fn name(&self) -> &'static str {
        "range"
    }

    fn push(
        &mut self,
        input: &mut &[u8],
        _end: bool,
        out: &mut Vec<u8>,
        step: usize,
    ) -> Result<Flow, String> {
        while !input.is_empty() {
            let distance = |to: u64| usize::try_from(to.saturating_sub(self.at)).unwrap_or(usize::MAX);
            let (before, within) = (distance(self.from), distance(self.to));
            if before > 0 || within == 0 {
                // These bytes are outside: those before the range, or all after it.
                let most = if within == 0 { usize::MAX } else { before };
                self.at += take_front(input, most).len() as u64;
                continue;
            }
            if out.len() >= step {
                return Ok(Flow::Full);
            }
            let piece = take_front(input, within.min(step - out.len()));
            self.at += piece.len() as u64;
            out.extend_from_slice(piece);
        }
        Ok(Flow::Taken)
    }

    fn is_done(&self) -> bool {
        self.at >= self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_extend_over_pieces() {
        let mut range = RangeOf::new(2, 5);
        let mut out = Vec::new();
        for mut piece in [b"ab".as_slice(), b"c", b"defg", b"h"] {
            assert_eq!(range.push(&mut piece, false, &mut out, 100), Ok(Flow::Taken));
        }
        assert_eq!(out, b"cde");
        assert!(range.is_done());
    }
}
