//! The sending half of a client's connection, and the first bytes of a response that may be sent ahead of the rest.
//!
//! TCP reports a client that closed its connection and one that only shut down its sending side in the same way until
//! something is sent: the closed one responds with a reset. Every HTTP/1 response begins with the same bytes, so they
//! can be sent one by one as probes before the rest of the response is known.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::ops::Deref;

use crate::TxHalf;

/// The beginning of every response.
const BEGINNING: &[u8] = b"HTTP/1.";

/// The maximum number of parts in one write. Further parts wait for the next write.
const MOST_PARTS: usize = 20;

/// Removes the first `n` bytes, which were sent, from the parts.
pub fn advance(parts: &mut [&[u8]], mut n: usize) {
    for part in parts {
        let of_part = n.min(part.len());
        *part = &part[of_part..];
        n -= of_part;
    }
}

/// The sending half of a client's connection.
pub struct ClientSocket {
    half: TxHalf,
    /// Bytes of the next response that were sent ahead.
    ahead: Cell<usize>,
    /// A response ended too early, so the connection must not end in order.
    is_cut: Cell<bool>,
    /// That response had no other end than that of the connection.
    is_unframed: Cell<bool>,
}

impl ClientSocket {
    pub fn new(half: TxHalf) -> ClientSocket {
        ClientSocket { half, ahead: Cell::new(0), is_cut: Cell::new(false), is_unframed: Cell::new(false) }
    }

    /// Sends the next byte of the response that the client waits for. Returns false once all known bytes are sent.
    pub fn send_ahead(&self) -> io::Result<bool> {
        let at = self.ahead.get();
        let Some(byte) = BEGINNING.get(at..=at) else { return Ok(false) };
        match self.half.try_write(byte) {
            Ok(_) => {
                self.ahead.set(at + 1);
                self.half.try_flush()?;
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Returns whether part of the next response was already sent.
    pub fn is_ahead(&self) -> bool {
        self.ahead.get() > 0
    }

    /// Returns the number of bytes of the response head that were already sent, and resets it.
    pub fn take_ahead(&self) -> usize {
        self.ahead.replace(0)
    }

    /// Writes as many bytes of these parts as the kernel accepts at once. Returns their number.
    pub fn try_write_parts<'p>(&self, parts: impl Iterator<Item = &'p [u8]>) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MOST_PARTS];
        let mut used = 0;
        for (slice, part) in slices.iter_mut().zip(parts.filter(|part| !part.is_empty())) {
            *slice = IoSlice::new(part);
            used += 1;
        }
        if used == 1 {
            self.half.try_write(&slices[0])
        } else {
            self.half.try_write_vectored(&slices[..used])
        }
    }

    /// Records that a response ended too early. The connection then ends without the transport's farewell, and the
    /// client can detect that bytes are missing.
    pub fn cut(&self) {
        self.is_cut.set(true);
    }

    /// Records, like [`cut`](Self::cut), that a response ended too early whose end is the end of the connection.
    /// Sockets have no farewell that could be missing, so they are reset.
    pub fn cut_unframed(&self) {
        self.is_cut.set(true);
        self.is_unframed.set(true);
    }

    /// Completes the sending side like [`TxHalf::finish`]. Does nothing if a response was cut.
    pub async fn finish(&self) {
        if !self.is_cut.get() {
            // An error means that the connection is broken.
            let _ = self.half.finish().await;
        }
    }

    /// Completes the sending side like [`finish`](Self::finish), and ends it.
    pub async fn end(&self) {
        self.finish().await;
        self.half.shutdown();
    }

    /// Drops the sending half without shutting it down.
    pub fn forget(self) {
        if self.is_unframed.get() && !self.half.has_farewell() {
            self.half.reset();
        } else {
            self.half.forget();
        }
    }
}

impl Deref for ClientSocket {
    type Target = TxHalf;

    fn deref(&self) -> &TxHalf {
        &self.half
    }
}
