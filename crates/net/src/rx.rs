//! The bytes that a client sends, including bytes that were read ahead.

use std::io;
use std::task::{Context, Poll};

use crate::{Peeked, RxHalf};

/// The receiving half of a connection, with the bytes that were read past the end of the last message.
pub struct Rx {
    half: RxHalf,
    pending: Vec<u8>,
}

impl Rx {
    pub fn new(half: RxHalf) -> Rx {
        Rx { half, pending: Vec::new() }
    }

    /// Reads from the bytes that were read ahead; if there are none, from the socket.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.pending.is_empty() {
            return self.half.poll_read(cx, buf);
        }
        Poll::Ready(Ok(self.take_pending(buf)))
    }

    /// Reads like `poll_read`, but returns `None` if no bytes are available.
    pub fn try_read(&mut self, buf: &mut [u8]) -> Option<io::Result<usize>> {
        if self.pending.is_empty() {
            return match self.half.try_read(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
                done => Some(done),
            };
        }
        Some(Ok(self.take_pending(buf)))
    }

    fn take_pending(&mut self, buf: &mut [u8]) -> usize {
        let n = buf.len().min(self.pending.len());
        buf[..n].copy_from_slice(&self.pending[..n]);
        self.pending.drain(..n);
        n
    }

    /// Ready when a read would complete at once.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pending.is_empty() { self.half.poll_readable(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Ready when the handshake of a client that has sent early data is complete.
    pub fn poll_handshaken(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half.poll_handshaken(cx)
    }

    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buf)).await
    }

    /// Returns the bytes that were read ahead.
    pub fn read_ahead(&self) -> &[u8] {
        &self.pending
    }

    /// Removes and returns the bytes that were read ahead.
    pub fn take_read_ahead(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Checks the transport without reading from it, like [`RxHalf::peek`]. Bytes that were read ahead do not count.
    pub fn peek(&self) -> Peeked {
        self.half.peek()
    }

    /// Checks the transport like [`RxHalf::poll_peek`]. Bytes that were read ahead do not count.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<Peeked> {
        self.half.poll_peek(cx)
    }

    /// Acknowledges a new connection at once, like [`RxHalf::confirm`].
    pub fn confirm(&self) {
        self.half.confirm();
    }

    /// Returns the receiving half without the bytes that were read ahead.
    pub(crate) fn into_half(self) -> RxHalf {
        self.half
    }

    /// Returns whether bytes of the next message were already read.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Puts back bytes that belong to the next message.
    pub fn unread(&mut self, bytes: &[u8]) {
        if self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
        } else {
            let tail = std::mem::take(&mut self.pending);
            self.pending = [bytes, &tail].concat();
        }
    }
}
