//! Cuts what the worker writes into lines.

/// Longer lines are passed on in pieces.
const LONGEST: usize = 16 << 10;

/// Bytes in, lines out.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes bytes; calls `line` for each line they complete.
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&str)) {
        for byte in bytes {
            if *byte != b'\n' {
                self.rest.push(*byte);
            }
            if *byte == b'\n' || self.rest.len() >= LONGEST {
                self.flush(&mut line);
            }
        }
    }

    /// The line that was begun and not ended, if there is one.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            self.flush(&mut line);
        }
    }

    fn flush(&mut self, line: &mut impl FnMut(&str)) {
        line(String::from_utf8_lossy(&self.rest).trim_end_matches('\r'));
        self.rest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        lines.feed(b"one\r\ntw", |l| seen.push(l.to_owned()));
        lines.feed(b"o\n\nthr", |l| seen.push(l.to_owned()));
        lines.finish(|l| seen.push(l.to_owned()));
        assert_eq!(seen, ["one", "two", "", "thr"]);
    }
}
