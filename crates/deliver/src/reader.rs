//! A complete stored body as a reader.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use lacquer_cache::{Chunk, Object, Read};

/// Reads what [`prepare`](StoredReader::prepare) got ready. It ends there, as at the end of the body.
pub struct StoredReader<'o> {
    object: &'o Object,
    /// The bytes that were got ready and not used up; `used` of the first chunk were.
    ready: VecDeque<Chunk<'o>>,
    used: usize,
    /// The position behind them.
    end: u64,
}

impl<'o> StoredReader<'o> {
    pub fn new(object: &'o Object) -> StoredReader<'o> {
        StoredReader { object, ready: VecDeque::new(), used: 0, end: 0 }
    }

    /// Gets bytes ready until there are at least `least`, or all that the body has. Waits for those that are not in memory.
    pub async fn prepare(&mut self, least: u64) {
        let mut there: u64 = self.ready.iter().map(|chunk| chunk.len() as u64).sum();
        there -= self.used as u64;
        while there < least {
            match self.object.read(self.end, u64::MAX) {
                Read::Mapped(chunk) => {
                    there += chunk.len() as u64;
                    self.end += chunk.len() as u64;
                    self.ready.push_back(chunk);
                }
                Read::Pending => drop(self.object.more(self.end).await),
                Read::Missing => return,
            }
        }
    }
}

impl io::Read for StoredReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for StoredReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.ready.front().is_some_and(|chunk| self.used >= chunk.len()) {
            self.ready.pop_front();
            self.used = 0;
        }
        Ok(self.ready.front().map_or(&[], |chunk| &chunk.bytes()[self.used..]))
    }

    fn consume(&mut self, n: usize) {
        self.used += n;
    }
}
