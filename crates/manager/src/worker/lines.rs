//! Splits the worker's output into lines.

/// Maximum length of a line in bytes; longer lines are split.
const LONGEST: usize = 16 << 10;

/// A buffer for an incomplete line.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Appends bytes and calls `line` for each line that they complete.
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

    /// Calls `line` for an incomplete last line, if there is one.
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
    fn partial_lines_are_joined() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        lines.feed(b"one\r\ntw", |l| seen.push(l.to_owned()));
        lines.feed(b"o\n\nthr", |l| seen.push(l.to_owned()));
        lines.finish(|l| seen.push(l.to_owned()));
        assert_eq!(seen, ["one", "two", "", "thr"]);
    }
}
