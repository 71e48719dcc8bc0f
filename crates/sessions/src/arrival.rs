//! A connection between its acceptance and its first request: the whole stream, and the bytes that were read ahead.

use std::io;

use lacquer_net::{Rx, Stream, TxHalf};

/// The number of bytes to read at a time.
const READ: usize = 1024;

/// A connection that has not begun its first request.
pub struct Arrival {
    pub stream: Stream,
    /// The bytes that were read and that no stage has used.
    pub ahead: Vec<u8>,
}

impl Arrival {
    /// Waits for bytes, and appends them to those read ahead. Returns false at the end of the stream.
    pub async fn read_more(&mut self) -> io::Result<bool> {
        let mut piece = [0; READ];
        let n = self.stream.read(&mut piece).await?;
        self.ahead.extend_from_slice(&piece[..n]);
        Ok(n > 0)
    }

    /// Splits the stream into halves. The bytes that were read ahead are the first that the receiving half reads.
    pub fn split(self) -> (Rx, TxHalf) {
        let (half, tx) = self.stream.split();
        let mut rx = Rx::new(half);
        if !self.ahead.is_empty() {
            rx.unread(&self.ahead);
        }
        (rx, tx)
    }
}
