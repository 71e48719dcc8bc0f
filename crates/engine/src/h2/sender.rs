//! Writes a response to a stream. Small pieces are copied to the gathered frames. Large pieces are written to the
//! socket directly from storage, a few frames at a time, so that streams alternate.

use std::rc::Rc;

use lacquer_cache::{BodyState, Chunk, Object, Read};
use lacquer_deliver::{Behind, Head, ResponseSink, SendError, Sent, Sink};
use lacquer_flow::delivery::End;
use lacquer_h2::frame::{FrameHeader, Kind, flag as frame_flag};
use lacquer_h2::{Error, Reason, response};

use super::sending::{Begun, Turn};
use super::stream::{Gone, Stream};
use crate::send_limits::{SendLimits, StreamLimits};
use crate::stream_wait::{self, ResponseStream};
use crate::trailers::Trailers;

/// The largest piece that is copied to the gathered frames. Above this size, a separate write is cheaper.
const COPY_MAX: usize = 8 * 1024;
/// The size up to which pieces of a body are collected before they are sent.
const GATHER_MAX: usize = 32 * 1024;
/// The largest window credit that is taken at a time.
const CREDIT_MAX: usize = 64 * 1024;

impl From<Gone> for SendError {
    fn from(_: Gone) -> Self {
        SendError::disconnected()
    }
}

/// A header block that is sent with the first bytes of the body.
#[derive(Clone, Copy)]
struct Waiting {
    /// The header block ends the stream.
    ends: bool,
}

pub struct StreamSender {
    stream: Rc<Stream>,
    limits: StreamLimits,
    block: Vec<u8>,
    head: Option<Waiting>,
    /// Small pieces of the body that are sent with later ones.
    gathered: Vec<u8>,
    sent: Sent,
    ended: bool,
    /// The trailers that may follow the body, which then does not end the stream.
    trailers: Option<Rc<Trailers>>,
}

impl StreamSender {
    /// Opens the sink of a response. It assembles the header block in `buffer`.
    pub fn new(stream: Rc<Stream>, buffer: Vec<u8>, limits: SendLimits) -> StreamSender {
        let limits = StreamLimits::new(limits);
        stream.limit_response(limits.by());
        StreamSender {
            stream,
            limits,
            block: buffer,
            head: None,
            gathered: Vec::new(),
            sent: Sent::default(),
            ended: false,
            trailers: None,
        }
    }

    /// Makes trailers follow the body.
    pub fn follow_with(&mut self, trailers: Rc<Trailers>) {
        self.trailers = Some(trailers);
    }

    /// Returns the buffer of the header block.
    pub fn into_buffer(self) -> Vec<u8> {
        self.block
    }

    /// Queues the header block, unless it was queued already.
    async fn send_head(&mut self) -> Result<(), SendError> {
        let Some(Waiting { ends }) = self.head else { return Ok(()) };
        let conn = self.stream.conn();
        conn.until_unclogged(self.stream.id(), self.limits).await.map_err(|()| Gone)?;
        if self.stream.error().is_some() {
            return Err(Gone.into());
        }
        if ends {
            self.ended = true;
            self.stream.uncount_open();
        }
        conn.queue_block(self.stream.id(), ends, |out| out.extend_from_slice(&self.block));
        self.sent.head = self.block.len() as u64;
        self.head = None;
        Ok(())
    }

    /// Sends one piece of the body. With `end`, also ends the stream.
    async fn body(&mut self, mut piece: &[u8], end: bool) -> Result<(), SendError> {
        self.send_head().await?;
        self.sent.pieces += 1;
        while !piece.is_empty() {
            self.stream.open_window().await?;
            let sent = self.frames(piece, end).await?;
            self.sent.body += sent as u64;
            piece = &piece[sent..];
        }
        Ok(())
    }

    /// Sends frames for as much of the piece as the windows allow and one write takes. Returns the number of bytes that
    /// were sent.
    async fn frames(&mut self, piece: &[u8], end: bool) -> Result<usize, SendError> {
        let (id, stream) = (self.stream.id(), self.stream.clone());
        let allowed = stream.credit().min(piece.len());
        if self.try_queue(&piece[..allowed], end && allowed == piece.len()) {
            stream.take_window(allowed);
            return Ok(allowed);
        }
        let turn = stream.conn().turn().await.map_err(|()| Gone)?;
        if stream.error().is_some() {
            return Err(Gone.into());
        }
        let Some((begun, has_ended)) = begin(&stream, turn, piece, end)? else { return Ok(0) };
        let sent = stream.conn().complete(id, begun, self.limits).await.map_err(|()| Gone)?;
        self.after_frames(has_ended).await?;
        Ok(sent)
    }

    /// Copies a small piece to the gathered frames. Returns false if it is too long, or the gathered frames are.
    fn try_queue(&mut self, piece: &[u8], end: bool) -> bool {
        let conn = self.stream.conn();
        let is_small = piece.len() <= COPY_MAX.min(conn.max_frame()) && conn.has_room(piece.len());
        if is_small {
            self.queue(piece);
            if end {
                self.queue_end();
                self.end_stream();
            }
        }
        is_small
    }

    fn end_stream(&mut self) {
        self.ended = true;
        self.stream.uncount_open();
    }

    /// Records the end of the stream if the frames that were sent contain it. Otherwise lets other streams send.
    async fn after_frames(&mut self, has_ended: bool) -> Result<(), SendError> {
        if has_ended {
            self.end_stream();
            return Ok(());
        }
        self.stream.check_time()?;
        if self.stream.conn().streams() > 1 {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Sends bytes of a stored body. Returns the position after them. Waits for the windows and the socket without a
    /// chunk.
    async fn stored_frames(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<u64, SendError> {
        self.send_head().await?;
        self.send_gathered(false).await?;
        self.stream.open_window().await?;
        if let Some(at) = self.queue_stored(object, from, to, behind)? {
            return Ok(at);
        }
        let (id, stream) = (self.stream.id(), self.stream.clone());
        let turn = stream.conn().turn().await.map_err(|()| Gone)?;
        if stream.error().is_some() {
            return Err(Gone.into());
        }
        let (begun, has_ended) = {
            let Some((chunk, ends)) = next_chunk(object, from, to, behind)? else { return Ok(from) };
            let ends = ends && self.trailers.is_none();
            let Some(begun) = begin(&stream, turn, chunk.bytes(), ends)? else { return Ok(from) };
            begun
        };
        let sent = stream.conn().complete(id, begun, self.limits).await.map_err(|()| Gone)?;
        self.count(sent);
        self.after_frames(has_ended).await?;
        Ok(from + sent as u64)
    }

    /// Copies a small chunk of a stored body to the gathered frames. Returns the position after it, or `None` if it is
    /// too long.
    fn queue_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<Option<u64>, SendError> {
        let Some((chunk, ends)) = next_chunk(object, from, to, behind)? else { return Ok(Some(from)) };
        if chunk.len() > COPY_MAX {
            return Ok(None);
        }
        let taken = self.stream.take_window(chunk.len());
        let ends = ends && taken == chunk.len() && self.trailers.is_none();
        if !self.try_queue(&chunk.bytes()[..taken], ends) {
            self.stream.return_window(taken);
            return Ok(None);
        }
        self.count(taken);
        Ok(Some(from + taken as u64))
    }

    /// Counts bytes of the body that were sent together.
    fn count(&mut self, sent: usize) {
        self.sent.body += sent as u64;
        self.sent.pieces += u64::from(sent > 0);
    }

    /// Queues the end of the stream as a separate frame, as Varnish sends and counts it, or the trailers.
    fn queue_end(&self) {
        let trailers = self.trailers.as_deref().map_or(&[][..], Trailers::lines);
        if !trailers.is_empty() {
            let write = |out: &mut Vec<u8>| response::write_trailers(out, trailers);
            return self.stream.conn().queue_block(self.stream.id(), true, write);
        }
        let header = FrameHeader::new(Kind::Data, frame_flag::END_STREAM, self.stream.id(), 0);
        self.stream.conn().queue(|out| out.extend_from_slice(&header.bytes()));
    }

    fn queue(&self, piece: &[u8]) {
        let header = FrameHeader::new(Kind::Data, 0, self.stream.id(), piece.len());
        self.stream.conn().queue(|out| {
            out.extend_from_slice(&header.bytes());
            out.extend_from_slice(piece);
        });
    }

    async fn send_gathered(&mut self, end: bool) -> Result<(), SendError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        let sent = self.body(&gathered, end).await;
        gathered.clear();
        self.gathered = gathered;
        sent
    }
}

/// Writes frames for as much of the data as the windows allow and the socket accepts. Takes credit for these frames only,
/// because the request may end before they are sent. Also returns whether they end the stream. Returns `None` if other
/// streams have used the connection's window meanwhile.
fn begin<'c>(
    stream: &Stream,
    turn: Turn<'c>,
    data: &[u8],
    ends: bool,
) -> Result<Option<(Begun<'c>, bool)>, SendError> {
    let taken = stream.take_window(data.len().min(CREDIT_MAX));
    if taken == 0 {
        return Ok(None);
    }
    let ends = ends && taken == data.len();
    let begun = stream.conn().try_data(turn, stream.id(), &data[..taken], ends).map_err(|()| Gone)?;
    stream.return_window(taken - begun.len);
    let has_ended = ends && begun.len == taken;
    Ok(Some((begun, has_ended)))
}

/// Returns the next chunk of a stored body, and whether the response ends with it. Returns `None` if it is not in
/// memory.
fn next_chunk(
    object: &Object,
    from: u64,
    to: u64,
    behind: Behind,
) -> Result<Option<(Chunk<'_>, bool)>, SendError> {
    let state = object.state();
    match object.read(from, to) {
        Read::Mapped(chunk) => {
            let at = from + chunk.len() as u64;
            let is_end = at == to || (state == BodyState::Complete && at == object.body_len());
            Ok(Some((chunk, is_end && behind == Behind::End)))
        }
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
        let ends = match head {
            Head::Message(head) => {
                response::write(&mut self.block, head.message, head.ws, head.notes);
                head.end == End::Head
            }
            Head::Interim { message, ws } => {
                response::write(&mut self.block, message, ws, None);
                false
            }
            Head::Status(status) => {
                response::write_status(&mut self.block, status);
                status >= 200
            }
            Head::OutOfWorkspace => {
                self.block.extend_from_slice(response::OUT_OF_WORKSPACE);
                true
            }
        };
        self.head = Some(Waiting { ends });
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
        if self.gathered.is_empty() && piece.len() >= GATHER_MAX {
            return self.body(piece, false).await;
        }
        self.gathered.extend_from_slice(piece);
        if self.gathered.len() >= GATHER_MAX { self.send_gathered(false).await } else { Ok(()) }
    }

    async fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<u64, SendError> {
        if behind == Behind::More {
            let gathered = match object.read(from, to) {
                Read::Mapped(chunk) if chunk.len() < GATHER_MAX => {
                    self.gathered.extend_from_slice(chunk.bytes());
                    chunk.len()
                }
                Read::Mapped(_) => 0,
                Read::Pending => return Ok(from),
                Read::Missing => return Err(SendError::Source),
            };
            if gathered > 0 {
                if self.gathered.len() >= GATHER_MAX {
                    self.send_gathered(false).await?;
                }
                return Ok(from + gathered as u64);
            }
        }
        self.stored_frames(object, from, to, behind).await
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        self.send_head().await?;
        self.send_gathered(false).await
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        stream_wait::wait_for(&*self.stream, self.limits, object, at).await
    }

    fn check(&mut self) -> Result<(), SendError> {
        self.stream.check_time()?;
        if self.stream.error().is_some() { Err(Gone.into()) } else { Ok(()) }
    }

    async fn end_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        self.send_gathered(false).await?;
        self.body(piece, self.trailers.is_none()).await?;
        self.end().await
    }

    /// Ends the stream, unless the last piece has done so.
    async fn end(&mut self) -> Result<(), SendError> {
        self.send_head().await?;
        self.send_gathered(self.trailers.is_none()).await?;
        if self.ended {
            return Ok(());
        }
        if self.stream.error().is_some() {
            return Err(Gone.into());
        }
        self.ended = true;
        self.stream.uncount_open();
        self.queue_end();
        Ok(())
    }
}
