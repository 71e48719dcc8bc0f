//! Synchronous reading of a complete stored body.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use lacquer_cache::{Chunk, Object, Read};

use crate::sink::{SendError, Sink};

/// Bytes that can be read without waiting.
enum Piece<'o> {
    Stored(Chunk<'o>),
    Copied(Vec<u8>),
}

impl Piece<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Stored(chunk) => chunk.bytes(),
            Piece::Copied(bytes) => bytes,
        }
    }
}

/// A reader of the bytes that [`prepare`](StoredReader::prepare) has made available. It returns the end of the input
/// after them, as at the end of the body.
pub struct StoredReader<'o> {
    object: &'o Object,
    /// The pieces that were not read completely. `used` bytes of the first piece were read.
    ready: VecDeque<Piece<'o>>,
    used: usize,
    /// The position in the body after the mapped chunks.
    end: u64,
}

impl<'o> StoredReader<'o> {
    pub fn new(object: &'o Object) -> StoredReader<'o> {
        StoredReader { object, ready: VecDeque::new(), used: 0, end: 0 }
    }

    /// Maps chunks until at least `least` bytes can be read, or the rest of the body. Waits for bytes that are not in
    /// memory, and fails if the client leaves first or the wait is too long for `sink`.
    pub async fn prepare(&mut self, least: u64, sink: &mut impl Sink) -> Result<(), SendError> {
        let mut available: u64 = self.ready.iter().map(|piece| piece.bytes().len() as u64).sum();
        available -= self.used as u64;
        while available < least {
            match self.object.read(self.end, u64::MAX) {
                Read::Mapped(chunk) => {
                    available += chunk.len() as u64;
                    self.end += chunk.len() as u64;
                    self.ready.push_back(Piece::Stored(chunk));
                }
                Read::Pending => {
                    self.release_memory();
                    sink.wait_for(self.object, self.end).await?;
                }
                Read::Missing => break,
            }
        }
        Ok(())
    }

    /// Copies the mapped chunks before a wait for the store's memory. Otherwise readers that hold chunks while they
    /// wait could wait for each other.
    fn release_memory(&mut self) {
        for piece in &mut self.ready {
            if let Piece::Stored(chunk) = piece {
                *piece = Piece::Copied(chunk.bytes().to_vec());
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
        if self.ready.front().is_some_and(|piece| self.used >= piece.bytes().len()) {
            self.ready.pop_front();
            self.used = 0;
        }
        Ok(self.ready.front().map_or(&[], |piece| &piece.bytes()[self.used..]))
    }

    fn consume(&mut self, n: usize) {
        self.used += n;
    }
}
