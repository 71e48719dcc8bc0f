//! The counts of an access log, which the process that writes it publishes in the working directory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The name of the file.
pub const FILE: &str = "_.access_log";
/// Maximum length of its text.
const MAX: usize = 100;

/// The numbers of lines of an access log that were written, dropped and missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub written: u64,
    /// Lines that the destination did not accept in time.
    pub dropped: u64,
    /// About how many requests were overwritten before they were read, or served while nobody read.
    pub missed: u64,
    /// The sum of all three when the present worker began.
    pub earlier: u64,
}

impl Counts {
    /// Returns the requests with and without a line.
    pub fn requests(self) -> u64 {
        self.written.saturating_add(self.dropped).saturating_add(self.missed)
    }

    /// Returns the text of the file. Its length is always the same, so that it can be overwritten.
    pub fn text(self) -> String {
        format!("{:20} {:20} {:20} {:20}\n", self.written, self.dropped, self.missed, self.earlier)
    }

    /// Reads the file in a working directory, whose writer may be any process with rights to the directory.
    pub fn read(directory: &Path) -> Option<Counts> {
        let mut text = String::new();
        File::open(directory.join(FILE)).ok()?.take(MAX as u64).read_to_string(&mut text).ok()?;
        Counts::parse(&text)
    }

    pub fn parse(text: &str) -> Option<Counts> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        let counts = Counts { written: next()?, dropped: next()?, missed: next()?, earlier: next()? };
        numbers.next().is_none().then_some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let zero = Counts::default().text();
        for counts in [
            Counts::default(),
            Counts { written: 1, dropped: 20, missed: 300, earlier: 40 },
            Counts { written: u64::MAX, dropped: 0, missed: u64::MAX, earlier: u64::MAX },
        ] {
            let text = counts.text();
            assert_eq!((Counts::parse(&text), text.len()), (Some(counts), zero.len()));
            assert!(text.len() <= MAX);
        }
        assert_eq!(Counts { written: 1, dropped: 2, missed: 3, earlier: 4 }.requests(), 6);
        for damaged in ["", "1 2 3", "1 2 3 4 5", "1 2 3 x", "1 2 3 -4", "1 2 3 99999999999999999999"] {
            assert_eq!(Counts::parse(damaged), None, "{damaged}");
        }
    }
}
