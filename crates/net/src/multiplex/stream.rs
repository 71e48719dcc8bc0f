//! One stream of a connection, from the reservation of its place to the end of its use.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use lacquer_h2::client::{Failure, Received, Request};

use super::shared::Multiplexed;
use crate::facts::Facts;

/// The number of a stream that is not open.
const RESERVED: u32 = 0;

/// A stream. Dropping it before its end resets it.
pub struct Stream {
    connection: Arc<Multiplexed>,
    id: AtomicU32,
    /// The number of times that bytes had arrived on the connection when the stream was opened.
    reads: AtomicU32,
    is_first: bool,
}

fn broken(failure: Failure) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, failure)
}

/// Returns the failure of a stream that is the reason for an error.
pub fn failure_of(e: &io::Error) -> Option<&Failure> {
    e.get_ref()?.downcast_ref()
}

impl Stream {
    /// Reserves a place for a stream. Returns `None` if the connection has none.
    pub fn reserve(connection: &Arc<Multiplexed>) -> Option<Arc<Stream>> {
        let mut state = connection.state();
        if !state.protocol.has_room_for(state.reserved) {
            return None;
        }
        let is_first = state.protocol.opened() == 0 && state.reserved == 0;
        state.reserved += 1;
        drop(state);
        let (id, reads) = (AtomicU32::new(RESERVED), AtomicU32::new(0));
        Some(Arc::new(Stream { connection: connection.clone(), id, reads, is_first }))
    }

    /// Returns the facts about the connection.
    pub fn facts(&self) -> &Facts {
        self.connection.facts()
    }

    /// Returns whether this is the first stream of its connection.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }

    /// Opens the stream: sends the head of its request. Returns the length of the header block.
    pub fn open(&self, request: Request<'_>) -> io::Result<usize> {
        let opened = {
            let mut state = self.connection.state();
            if self.id() != RESERVED {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if !state.protocol.is_open() {
                return Err(broken(Failure::Unprocessed("the connection has ended")));
            }
            let before = state.protocol.output().len();
            state.protocol.open(request).map(|id| {
                state.reserved -= 1;
                self.reads.store(state.reads, Ordering::Relaxed);
                (id, state.protocol.output().len() - before)
            })
        };
        match opened {
            Ok((id, len)) => {
                self.id.store(id, Ordering::Relaxed);
                self.connection.wake_driver();
                Ok(len)
            }
            Err(refused) => Err(io::Error::new(io::ErrorKind::InvalidInput, refused.0)),
        }
    }

    pub(crate) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let (received, has_output) = {
            let mut state = self.connection.state();
            let before = state.protocol.output().len();
            let received = state.protocol.read(self.id(), buf);
            (received, state.protocol.output().len() > before)
        };
        if has_output {
            self.connection.wake_driver();
        }
        match received {
            Received::Bytes(n) => Ok(n),
            Received::End => Ok(0),
            Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Received::Failed(failure) => Err(broken(failure)),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.connection.state().protocol.send_body(self.id(), bytes);
        match sent {
            Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            Ok(n) => {
                self.connection.wake_driver();
                Ok(n)
            }
            Err(failure) => Err(broken(failure)),
        }
    }

    /// Ends the body of the request, with these trailers, whose lines end with CR LF. Returns false if they are longer than
    /// the origin accepts, and were not sent.
    pub fn end_body(&self, trailers: &[u8]) -> io::Result<bool> {
        let ended = self.connection.state().protocol.end_body(self.id(), trailers);
        self.connection.wake_driver();
        ended.map_err(broken)
    }

    /// Resets the stream, because the rest of its request will not come.
    pub fn cancel(&self) {
        self.connection.state().protocol.cancel(self.id());
        self.connection.wake_changed();
        self.connection.wake_driver();
    }

    /// Opens no further streams on the connection if nothing has arrived on it since this stream was opened. The origin
    /// has not responded in time, and may be gone.
    pub fn leave_if_silent(&self) {
        if self.connection.state().reads == self.reads.load(Ordering::Relaxed) {
            self.connection.leave();
        }
    }

    pub(crate) fn poll_readable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let (mut state, id) = (self.connection.state(), self.id());
        if id != RESERVED && state.protocol.is_readable(id) {
            return Poll::Ready(Ok(()));
        }
        state.wait_to_read(id, cx);
        Poll::Pending
    }

    pub(crate) fn poll_writable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let (mut state, id) = (self.connection.state(), self.id());
        if state.protocol.is_writable(id) {
            return Poll::Ready(Ok(()));
        }
        state.wait_to_write(id, cx);
        Poll::Pending
    }

    /// Ready when the stream has failed.
    pub(crate) fn poll_broken(&self, cx: &Context<'_>) -> Poll<()> {
        let (mut state, id) = (self.connection.state(), self.id());
        if state.protocol.end().is_some() || state.protocol.failure(id).is_some() {
            return Poll::Ready(());
        }
        state.wait_to_write(id, cx);
        Poll::Pending
    }

    /// Returns whether the response has arrived to its end, and all of it was read.
    pub fn is_drained(&self) -> bool {
        self.connection.state().protocol.is_drained(self.id())
    }

    /// Returns the failure of the stream, if it has failed.
    pub fn failure(&self) -> Option<Failure> {
        self.connection.state().protocol.failure(self.id())
    }

    /// Returns whether trailers have arrived that were not taken.
    pub fn has_trailers(&self) -> bool {
        self.connection.state().protocol.has_trailers(self.id())
    }

    /// Removes and returns the trailers of the response, as lines that end with CR LF.
    pub fn take_trailers(&self) -> Vec<u8> {
        self.connection.state().protocol.take_trailers(self.id())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        {
            let mut state = self.connection.state();
            match self.id() {
                RESERVED => state.reserved -= 1,
                id => state.release(id),
            }
        }
        // The driver sends a reset, or closes a connection that was waiting for its last stream.
        self.connection.wake_driver();
    }
}
