//! Writes a response to a stream. The connection holds the bytes until the client has acknowledged them, so each byte is
//! copied once.

use std::rc::Rc;

use lacquer_cache::{BodyState, Chunk, Object, Read};
use lacquer_deliver::{Behind, Head, ResponseSink, SendError, Sent, Sink};
use lacquer_h3::{Error, Reason, frame, response};

use super::stream::{Gone, Stream};
use crate::send_limits::{SendLimits, StreamLimits};
use crate::stream_wait::{self, ResponseStream};
use crate::trailers::Trailers;

/// The size up to which pieces of a body are collected before they are written.
const GATHER_MAX: usize = 32 * 1024;
/// The largest piece that is written before other streams write.
const PIECE_MAX: usize = 64 * 1024;

impl From<Gone> for SendError {
    fn from(_: Gone) -> Self {
        SendError::disconnected()
    }
}

pub struct StreamSender {
    stream: Rc<Stream>,
    limits: StreamLimits,
    block: Vec<u8>,
    /// The HEADERS frame waits for the first bytes of the body.
    has_head: bool,
    /// The bytes that are written before anything else: small pieces of the body, and headers of frames.
    gathered: Vec<u8>,
    /// The number of bytes of the body in `gathered`.
    gathered_body: usize,
    /// The bytes of the current DATA frame that are neither written nor gathered yet.
    owed: u64,
    sent: Sent,
    ended: bool,
    /// The trailers that may follow the body.
    trailers: Option<Rc<Trailers>>,
}

impl StreamSender {
    /// Opens the sink of a response. It assembles the header section in `buffer`.
    pub fn new(stream: Rc<Stream>, buffer: Vec<u8>, limits: SendLimits) -> StreamSender {
        let limits = StreamLimits::new(limits);
        stream.send_by.set(limits.by());
        StreamSender {
            stream,
            limits,
            block: buffer,
            has_head: false,
            gathered: Vec::new(),
            gathered_body: 0,
            owed: 0,
            sent: Sent::default(),
            ended: false,
            trailers: None,
        }
    }

    /// Makes trailers follow the body.
    pub fn follow_with(&mut self, trailers: Rc<Trailers>) {
        self.trailers = Some(trailers);
    }

    /// Returns the buffer of the header section.
    pub fn into_buffer(self) -> Vec<u8> {
        self.block
    }

    /// Moves the HEADERS frame to the gathered bytes.
    fn gather_head(&mut self) {
        if std::mem::take(&mut self.has_head) {
            self.gathered.extend_from_slice(&self.block);
            self.sent.head = self.block.len() as u64;
        }
    }

    /// Begins a DATA frame of `len` bytes, unless one is incomplete.
    fn begin_frame(&mut self, len: u64) {
        if self.owed == 0 {
            self.gathered.extend_from_slice(frame::data_header(len).as_slice());
            self.owed = len;
        }
    }

    /// Gathers a piece of the body.
    fn gather(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            self.begin_frame(piece.len() as u64);
            let (now, later) = piece.split_at(piece.len().min(self.owed as usize));
            self.gathered.extend_from_slice(now);
            self.gathered_body += now.len();
            self.owed -= now.len() as u64;
            piece = later;
        }
    }

    /// Writes all gathered bytes.
    async fn write_gathered(&mut self) -> Result<(), SendError> {
        self.gather_head();
        if self.gathered.is_empty() {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered);
        let written = self.write_all(&gathered).await;
        self.gathered = gathered;
        self.gathered.clear();
        let body = std::mem::take(&mut self.gathered_body) as u64;
        written?;
        self.count(body);
        Ok(())
    }

    async fn write_all(&self, mut bytes: &[u8]) -> Result<(), SendError> {
        loop {
            let n = self.stream.write(bytes)?;
            bytes = &bytes[n..];
            if bytes.is_empty() {
                return Ok(());
            }
            if n == 0 {
                self.wait().await?;
            }
        }
    }

    /// Waits until the client accepts more, within the limits.
    async fn wait(&self) -> Result<(), SendError> {
        let (until, limit) = self.limits.longest_wait();
        match tokio::time::timeout_at(until, self.stream.wait_writable()).await {
            Ok(waited) => Ok(waited?),
            Err(_) => {
                self.stream.expire(limit);
                Err(Gone.into())
            }
        }
    }

    /// Counts bytes of the body that were written together.
    fn count(&mut self, written: u64) {
        self.sent.body += written;
        self.sent.pieces += u64::from(written > 0);
    }

    /// Writes bytes of a stored body. Returns the position after them. Waits for the client without a chunk.
    async fn write_chunk(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let Some(chunk) = next_chunk(object, from, to)? else { return Ok(from) };
        // A complete body is one frame.
        let is_complete = object.state() == BodyState::Complete;
        let len = if is_complete { to.min(object.body_len()) - from } else { chunk.len() as u64 };
        if (chunk.len() as u64) < len || chunk.len() > GATHER_MAX || self.owed > 0 {
            drop(chunk);
            self.begin_frame(len);
            self.write_gathered().await?;
            let Some(written) = self.try_chunk(object, from, to)? else { return Ok(from) };
            if written == 0 {
                self.wait().await?;
            } else {
                self.yield_to_others().await?;
            }
            return Ok(from + written as u64);
        }
        self.gather(chunk.bytes());
        Ok(from + len)
    }

    /// Writes as many bytes of a chunk as the connection accepts. Returns their number, or `None` if the chunk is not in
    /// memory.
    fn try_chunk(&mut self, object: &Object, from: u64, to: u64) -> Result<Option<usize>, SendError> {
        let Some(chunk) = next_chunk(object, from, to)? else { return Ok(None) };
        let most = chunk.len().min(PIECE_MAX).min(usize::try_from(self.owed).unwrap_or(usize::MAX));
        let written = self.stream.write(&chunk.bytes()[..most])?;
        self.owed -= written as u64;
        self.count(written as u64);
        Ok(Some(written))
    }

    /// Lets other streams write.
    async fn yield_to_others(&self) -> Result<(), SendError> {
        self.stream.check_time()?;
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// Returns the next chunk of a stored body, or `None` if it is not in memory.
fn next_chunk(object: &Object, from: u64, to: u64) -> Result<Option<Chunk<'_>>, SendError> {
    match object.read(from, to) {
        Read::Mapped(chunk) => Ok(Some(chunk)),
        Read::Pending => Ok(None),
        Read::Missing => Err(SendError::Source),
    }
}

impl ResponseStream for Stream {
    async fn gone(&self) {
        self.gone().await;
    }

    fn expire(&self, limit: &'static str) {
        self.expire(limit);
    }
}

impl ResponseSink for StreamSender {
    fn head(&mut self, head: Head<'_>) -> usize {
        self.block.clear();
        match head {
            Head::Message(head) => response::write(&mut self.block, head.message, head.ws),
            Head::Interim { message, ws } => response::write(&mut self.block, message, ws),
            Head::Status(status) => response::write_status(&mut self.block, status),
            Head::OutOfWorkspace => self.block.extend_from_slice(response::OUT_OF_WORKSPACE),
        }
        self.has_head = true;
        self.block.len()
    }

    fn abort(&mut self) {
        if self.stream.error().is_none() {
            self.stream.reset(Error::Stream(Reason::InternalError));
        }
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn limit_hit(&self) -> Option<&'static str> {
        self.stream.limit_hit()
    }
}

impl Sink for StreamSender {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if piece.len() < GATHER_MAX {
            self.gather_head();
            self.gather(piece);
            return if self.gathered.len() >= GATHER_MAX { self.write_gathered().await } else { Ok(()) };
        }
        let mut rest = piece;
        while !rest.is_empty() {
            self.gather_head();
            self.begin_frame(rest.len() as u64);
            self.write_gathered().await?;
            let (now, later) = rest.split_at(rest.len().min(self.owed as usize));
            self.write_all(now).await?;
            self.owed -= now.len() as u64;
            self.count(now.len() as u64);
            rest = later;
        }
        self.stream.check_time()?;
        Ok(())
    }

    async fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        _behind: Behind,
    ) -> Result<u64, SendError> {
        self.gather_head();
        if self.gathered.len() >= GATHER_MAX {
            self.write_gathered().await?;
        }
        self.write_chunk(object, from, to).await
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        self.write_gathered().await
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        stream_wait::wait_for(&*self.stream, self.limits, object, at).await
    }

    fn check(&mut self) -> Result<(), SendError> {
        self.stream.check_time()?;
        if self.stream.error().is_some() { Err(Gone.into()) } else { Ok(()) }
    }

    /// Ends the stream. A frame that is incomplete then is a fault of the caller, and resets it.
    async fn end(&mut self) -> Result<(), SendError> {
        self.write_gathered().await?;
        if self.ended {
            return Ok(());
        }
        if self.owed > 0 {
            return Err(SendError::Source);
        }
        if let Some(trailers) = self.trailers.take().filter(|trailers| !trailers.lines().is_empty()) {
            let mut section = Vec::new();
            response::write_trailers(&mut section, trailers.lines());
            self.write_all(&section).await?;
        }
        self.ended = true;
        self.stream.finish()?;
        Ok(())
    }
}
