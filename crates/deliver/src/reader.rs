//! A complete stored body as a reader.

use std::io::{self, BufRead, Read};

use lacquer_cache::{Chunk, Object};

pub struct StoredReader<'o> {
    object: &'o Object,
    at: u64,
    chunk: Option<Chunk<'o>>,
    used: usize,
}

impl<'o> StoredReader<'o> {
    pub fn new(object: &'o Object) -> StoredReader<'o> {
        StoredReader { object, at: 0, chunk: None, used: 0 }
    }
}

impl Read for StoredReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for StoredReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.as_ref().is_none_or(|c| self.used >= c.len()) {
            self.chunk = self.object.chunk_at(self.at).filter(|c| !c.is_empty());
            self.used = 0;
        }
        Ok(self.chunk.as_ref().map_or(&[], |c| &c.bytes()[self.used..]))
    }

    fn consume(&mut self, n: usize) {
        self.used += n;
        self.at += n as u64;
    }
}
