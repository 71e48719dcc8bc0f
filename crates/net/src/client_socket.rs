//! The sending side of a client's connection, and the first bytes of a response that may go out ahead of the rest.
//!
//! A client that has closed its connection and one that has only shut down its sending side look the same to TCP until
//! something is sent: the closed one responds with a reset. Every HTTP/1 response begins with the same bytes, so that
//! they can be sent one by one while the rest of the response is not known yet.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::ops::Deref;

use crate::TxHalf;

/// The beginning of every response.
const BEGINNING: &[u8] = b"HTTP/1.";

/// The largest number of parts in one write. Further ones wait for the next.
const MOST_PARTS: usize = 20;

/// Drops so many bytes, which were sent, from the beginning of the parts.
pub fn advance(parts: &mut [&[u8]], mut n: usize) {
    for part in parts {
        let of_part = n.min(part.len());
        *part = &part[of_part..];
        n -= of_part;
    }
}

/// The sending side of a client's connection.
pub struct ClientSocket {
    half: TxHalf,
    /// The number of bytes of the next response that were sent ahead.
    ahead: Cell<usize>,
}

impl ClientSocket {
    pub fn new(half: TxHalf) -> ClientSocket {
        ClientSocket { half, ahead: Cell::new(0) }
    }

    /// Sends the next byte of the response that the client waits for. Returns false once all known bytes were sent.
    pub fn send_ahead(&self) -> io::Result<bool> {
        let at = self.ahead.get();
        let Some(byte) = BEGINNING.get(at..=at) else { return Ok(false) };
        match self.half.try_write(byte) {
            Ok(_) => self.ahead.set(at + 1),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Returns whether a part of the next response was sent already.
    pub fn is_ahead(&self) -> bool {
        self.ahead.get() > 0
    }

    /// Returns the number of bytes of a response's head that were sent already, and resets it.
    pub fn take_ahead(&self) -> usize {
        self.ahead.replace(0)
    }

    /// Hands the kernel as much of these parts as it takes at once.
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

    /// Drops the sending side without shutting it down.
    pub fn forget(self) {
        self.half.forget();
    }
}

impl Deref for ClientSocket {
    type Target = TxHalf;

    fn deref(&self) -> &TxHalf {
        &self.half
    }
}
