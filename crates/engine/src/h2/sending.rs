//! Sending of a connection's frames. They are gathered and sent together. The task that holds the write lock writes
//! the gathered frames before its own.

use std::io;
use std::task::{Context, Poll};

use lacquer_h2::frame::{self, FrameHeader, Kind};
use lacquer_h2::hpack::encode;
use lacquer_h2::{Error, Reason};
use lacquer_net::ClientSocket;
use lacquer_shm::Tag;
use tokio::sync::MutexGuard;

use super::conn::Conn;
use super::data_frames::DataFrames;
use super::output::{Flush, Gathered};
use crate::send_limits::{self, StreamLimits};

/// The number of gathered bytes above which streams wait before they add more.
const GATHERED_MAX: usize = 64 * 1024;

/// Wakes the connection's own task at its end.
struct Wake<'c>(&'c Conn);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The right to write to the socket. Afterwards, the connection's own task sends the frames that were gathered meanwhile.
pub(super) struct Turn<'c> {
    wake: Wake<'c>,
    _lock: MutexGuard<'c, ()>,
}

/// Frames that a write has begun, and that must follow before any other. If their request ends before they are sent,
/// the connection's own task sends them.
pub(super) struct Begun<'c> {
    turn: Turn<'c>,
    /// The bytes that are not sent yet.
    rest: Gathered,
    /// The number of bytes of the body in these frames and those that were sent.
    pub len: usize,
    /// The socket did not accept all bytes.
    is_full: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let output = &self.turn.wake.0.output;
        if !self.rest.rest().is_empty() && !output.broken.get() {
            output.gathered.borrow_mut().follow(std::mem::take(&mut self.rest));
        }
    }
}

/// The reason why a write failed.
enum WriteError {
    Io(io::Error),
    /// The time limit of this parameter has expired.
    Late(&'static str),
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> WriteError {
        WriteError::Io(e)
    }
}

impl Conn {
    pub fn tx(&self) -> &ClientSocket {
        &self.output.tx
    }

    /// Returns the number of DATA frames sent since the last call.
    pub fn take_progress(&self) -> u32 {
        self.output.progress.replace(0)
    }

    /// Adds frames to the gathered frames. They are sent before anything that is added later.
    pub fn queue(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.output.broken.get() {
            return;
        }
        let mut gathered = self.output.gathered.borrow_mut();
        if gathered.bytes.capacity() == 0 {
            gathered.bytes = self.services().http2().buffers().output().take();
        }
        let from = gathered.bytes.len();
        write(&mut gathered.bytes);
        for (header, payload) in frame::split(&gathered.bytes[from..]) {
            self.count_sent(&header, payload);
        }
        drop(gathered);
        self.wake();
    }

    fn count_sent(&self, header: &FrameHeader, payload: &[u8]) {
        let is_data = u32::from(header.number == Kind::Data as u8);
        self.output.progress.set(self.output.progress.get().saturating_add(is_data));
        self.sends(header, payload);
    }

    pub fn reset_stream(&self, stream: u32, error: Error) {
        self.conduct().record_reset(stream);
        self.log(Tag::Debug, format_args!("H2: stream {stream}: {}", error.text()));
        self.queue(|out| frame::rst_stream(out, stream, error.code()));
    }

    /// Returns the largest frame payload that the client accepts.
    pub fn max_frame(&self) -> usize {
        (self.client_settings().max_frame_size as usize).max(1)
    }

    /// Queues a header block. It begins with the size of the header table, if the client has made that smaller.
    pub fn queue_block(&self, stream: u32, ends: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let (max, empties_table) = (self.max_frame(), self.take_smaller_table());
        self.queue(|out| {
            frame::write_headers(out, stream, ends, max, |out| {
                if empties_table {
                    encode::empty_table(out);
                }
                write(out);
            });
        });
    }

    /// Returns whether so many bytes wait to be sent that no more should be added.
    pub fn is_clogged(&self) -> bool {
        self.output.gathered.borrow().rest().len() >= GATHERED_MAX
    }

    /// Returns the number of bytes that wait to be sent, or are held by the transport.
    pub fn gathered(&self) -> usize {
        self.output.gathered.borrow().rest().len() + self.output.tx.held()
    }

    /// Returns the number of bytes that the socket has accepted so far, without those that the transport holds.
    pub fn taken(&self) -> u64 {
        self.output.taken.get() - self.output.tx.held() as u64
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        self.output.gathered.borrow().rest().len() + bytes < GATHERED_MAX
    }

    /// Sends the waiting frames, as far as the socket accepts them and no other task is sending.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Flush {
        loop {
            let is_sent = self.output.gathered.borrow().rest().is_empty();
            if is_sent && self.output.tx.held() == 0 || self.output.broken.get() {
                return Flush::Done;
            }
            let Ok(_turn) = self.output.write_lock.try_lock() else { return Flush::Busy };
            if is_sent {
                match self.output.tx.poll_flush(cx) {
                    Poll::Ready(Ok(())) => return Flush::Done,
                    Poll::Ready(Err(e)) => self.write_failed(0, &WriteError::Io(e)),
                    Poll::Pending => return Flush::Blocked,
                }
                continue;
            }
            let mut gathered = self.output.gathered.borrow_mut();
            match self.output.tx.try_write(gathered.rest()) {
                Ok(n) => {
                    self.output.taken.set(self.output.taken.get() + n as u64);
                    gathered.sent += n;
                    if gathered.rest().is_empty() {
                        gathered.clear(self.services().http2().buffers());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.output.tx.poll_writable(cx).is_pending() {
                        return Flush::Blocked;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    drop(gathered);
                    self.write_failed(0, &WriteError::Io(e));
                }
            }
        }
    }

    /// Ends the connection after a failed write.
    fn write_failed(&self, stream: u32, why: &WriteError) {
        match why {
            WriteError::Late(limit) => {
                self.log(Tag::SessError, format_args!("H2: stream {stream}: Hit {limit}"));
            }
            WriteError::Io(e) => {
                let errno = e.raw_os_error().unwrap_or(0);
                self.log(Tag::Debug, format_args!("H2: stream {stream}: write error s=-1 errno={errno}"));
            }
        }
        self.output.broken.set(true);
        self.output.tx.cut();
        self.fail(Error::Connection(Reason::ProtocolError));
    }

    /// Ends the connection, because the client did not take the waiting bytes within the limit of this parameter.
    pub fn stalled(&self, limit: &'static str) {
        self.write_failed(0, &WriteError::Late(limit));
    }

    /// Waits until no other task writes.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, ()> {
        // A request that ends may already own the lock, for which the connection's own task waits.
        let wake = Wake(self);
        let turn = Turn { _lock: self.output.write_lock.lock().await, wake };
        if self.output.broken.get() { Err(()) } else { Ok(turn) }
    }

    /// Writes all gathered frames and then DATA frames of one stream, as far as the socket accepts them. Copies the
    /// rest of a frame that was begun, so that the caller need not keep `data` until it is sent. With `end`, the last
    /// byte ends the stream.
    pub(super) fn try_data<'c>(
        &self,
        turn: Turn<'c>,
        stream: u32,
        data: &[u8],
        end: bool,
    ) -> Result<Begun<'c>, ()> {
        let frames = DataFrames::new(stream, data, self.max_frame(), end);
        let mut before = std::mem::take(&mut *self.output.gathered.borrow_mut());
        let parts = frames.parts(before.rest());
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let written = match self.output.tx.try_write_parts(parts.into_iter()) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(e) => {
                self.write_failed(stream, &WriteError::Io(e));
                return Err(());
            }
        };
        self.output.taken.set(self.output.taken.get() + written as u64);
        let is_full = written < total;
        let Some(of_frames) = written.checked_sub(before.rest().len()) else {
            before.sent += written;
            return Ok(Begun { turn, rest: before, len: 0, is_full });
        };
        before.clear(self.services().http2().buffers());
        let (len, bytes) = frames.begin(of_frames, |frame| {
            self.count_sent(&frame.header, frame.payload);
        });
        Ok(Begun { turn, rest: Gathered { bytes, sent: 0 }, len, is_full })
    }

    /// Sends the rest of frames that were begun, and waits until the socket accepts a byte if none was begun. Returns
    /// the number of bytes of the body in these frames.
    pub(super) async fn complete(
        &self,
        stream: u32,
        mut begun: Begun<'_>,
        limits: StreamLimits,
    ) -> Result<usize, ()> {
        if (begun.is_full || self.output.tx.held() > 0)
            && let Err(e) = self.write_rest(&mut begun, limits).await
        {
            self.write_failed(stream, &e);
            return Err(());
        }
        begun.rest.clear(self.services().http2().buffers());
        Ok(begun.len)
    }

    async fn write_rest(&self, begun: &mut Begun<'_>, limits: StreamLimits) -> Result<(), WriteError> {
        let limits = limits.of_write();
        if begun.is_full && begun.len == 0 {
            self.in_time(self.output.tx.writable(), limits).await?;
        }
        while !begun.rest.rest().is_empty() {
            match self.output.tx.try_write(begun.rest.rest()) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(n) => {
                    self.output.taken.set(self.output.taken.get() + n as u64);
                    begun.rest.sent += n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.in_time(self.output.tx.writable(), limits).await?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        while self.output.tx.held() > 0 {
            self.in_time(self.output.tx.flush_some(), limits).await?;
        }
        Ok(())
    }

    /// Waits for progress of the client, within the limits.
    async fn in_time(
        &self,
        progress: impl Future<Output = io::Result<()>>,
        limits: StreamLimits,
    ) -> Result<(), WriteError> {
        let done = send_limits::in_time(&self.output.tx, progress, || limits.longest_wait()).await;
        Ok(done.map_err(WriteError::Late)??)
    }

    /// Waits until frames may be added again.
    pub async fn until_unclogged(&self, stream: u32, limits: StreamLimits) -> Result<(), ()> {
        while self.is_clogged() {
            // An empty write sends the gathered frames.
            let begun = self.try_data(self.turn().await?, stream, &[], false)?;
            self.complete(stream, begun, limits).await?;
        }
        if self.output.broken.get() { Err(()) } else { Ok(()) }
    }
}
