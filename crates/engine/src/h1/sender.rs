//! Writes a response to an HTTP/1 client. The head is sent together with the beginning of the body, and large stored
//! bodies are sent with sendfile. A client that does not read is disconnected in time.

use std::io;
use std::rc::Rc;

use lacquer_cache::{BodyState, Chunk, Object, Read};
use lacquer_deliver::{Behind, Head, ResponseSink, SendError, Sent, Sink};
use lacquer_flow::delivery::End;
use lacquer_http::h1::{self, ChunkHeader, LAST_CHUNK};
use lacquer_net::{ClientSocket, PeerState, TxHalf, advance};
use lacquer_sources::clock::{self, Instant};

use crate::send_limits::SendLimits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFrame {
    Plain,
    Chunked,
}

/// The response when the workspace is too small for another.
const OUT_OF_WORKSPACE: &[u8] =
    b"HTTP/1.1 500 Internal Server Error\r\nServer: Varnish\r\nConnection: close\r\n\r\n";

pub struct Sender {
    tx: Rc<ClientSocket>,
    /// The bytes to send before the body. Those from `head_sent` on are not sent yet.
    head: Vec<u8>,
    head_sent: usize,
    /// Small pieces of the body that are sent with later ones.
    gathered: Vec<u8>,
    frame: BodyFrame,
    limits: SendLimits,
    deadline: Option<Instant>,
    /// The time when the client was first seen to have shut down its sending side, and the number of body bytes sent
    /// by then.
    half_closed: Option<(Instant, u64)>,
    /// The parameter whose limit ended the response.
    limit_hit: Option<&'static str>,
    sent: Sent,
}

/// The size from which on stored bodies are sent without copying. Below it, copying is cheaper.
const SENDFILE_MIN: usize = 48 * 1024;
/// The size up to which pieces of a body are collected before they are sent.
const GATHER_MAX: usize = 32 * 1024;
/// The largest number of stored chunks in one write.
const GATHER: usize = 16;
/// The largest body that is copied into the buffer of the head.
const COPY_MAX: usize = 8 * 1024;

impl Sender {
    /// Opens the sink of a response. It assembles the head in `buffer`.
    #[inline]
    pub fn new(tx: Rc<ClientSocket>, buffer: Vec<u8>, limits: SendLimits) -> Self {
        Sender {
            head_sent: tx.take_ahead(),
            tx,
            head: buffer,
            gathered: Vec::new(),
            frame: BodyFrame::Plain,
            limits,
            deadline: None,
            half_closed: None,
            limit_hit: None,
            sent: Sent::default(),
        }
    }

    /// Returns the buffer of the head.
    #[inline]
    pub fn into_buffer(self) -> Vec<u8> {
        self.head
    }

    /// Returns the time by which the client must have received the whole response, counted from the first wait.
    fn deadline(&mut self) -> Instant {
        let total = clock::seconds(clock::limit(self.limits.total));
        *self.deadline.get_or_insert_with(|| Instant::now() + total)
    }

    /// Returns whether a client that has shut down its sending side now counts as gone.
    fn is_half_close_over(&mut self) -> bool {
        let now = Instant::now();
        // Progress of the body restarts the wait.
        let (since, had) = self.half_closed.unwrap_or((now, self.sent.body));
        let since = if had == self.sent.body { since } else { now };
        self.half_closed = Some((since, self.sent.body));
        self.limits.patience.half_closed().is_some_and(|wait| now >= since + clock::seconds(wait))
    }

    /// Waits until the socket accepts more, within the limits.
    async fn writable(&mut self) -> io::Result<()> {
        let tx = self.tx.clone();
        self.in_time(tx.writable()).await
    }

    /// Passes on the bytes that the transport holds, within the limits.
    async fn pass_on(&mut self) -> io::Result<()> {
        let tx = self.tx.clone();
        while tx.held() > 0 {
            self.in_time(tx.flush_some()).await?;
        }
        Ok(())
    }

    /// Waits for progress of the client, within the limits.
    async fn in_time(&mut self, progress: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let left = self.deadline().saturating_duration_since(Instant::now());
        let idle = if self.limits.idle > 0.0 { clock::seconds(self.limits.idle) } else { left };
        match tokio::time::timeout(left.min(idle), progress).await {
            Ok(done) => done,
            Err(_) => Err(self.late(if left <= idle { "send_timeout" } else { "idle_send_timeout" })),
        }
    }

    /// Records that the limit of this parameter has expired, and returns the error.
    fn late(&mut self, limit: &'static str) -> io::Error {
        self.limit_hit = Some(limit);
        io::Error::from_raw_os_error(lacquer_system::EAGAIN)
    }

    /// Writes the rest of the head.
    async fn write_head(&mut self) -> io::Result<()> {
        self.write_head_by(TxHalf::try_write).await
    }

    async fn write_head_by(&mut self, write: fn(&TxHalf, &[u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.head_sent < self.head.len() {
            match write(&self.tx, &self.head[self.head_sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.head_sent += n,
                Err(e) => self.wait_after(e).await?,
            }
        }
        Ok(())
    }

    /// Writes the rest of the head and then all of the parts.
    async fn write_parts(&mut self, parts: &mut [&[u8]]) -> io::Result<()> {
        while self.head_sent < self.head.len() || parts.iter().any(|p| !p.is_empty()) {
            match self.try_parts(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.advance(n, parts),
                Err(e) => self.wait_after(e).await?,
            }
        }
        Ok(())
    }

    /// Writes as much as the socket accepts without waiting.
    fn try_parts(&self, parts: &[&[u8]]) -> io::Result<usize> {
        self.tx.try_write_parts(std::iter::once(&self.head[self.head_sent..]).chain(parts.iter().copied()))
    }

    /// Handles a failed write: waits if the socket is full. Any other error ends the response.
    async fn wait_after(&mut self, e: io::Error) -> io::Result<()> {
        match e.kind() {
            io::ErrorKind::WouldBlock => self.writable().await,
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(e),
        }
    }

    fn advance(&mut self, n: usize, parts: &mut [&[u8]]) {
        let of_head = n.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        advance(parts, n - of_head);
    }

    /// Sends one piece of the body with its framing.
    async fn body(&mut self, piece: &[u8]) -> Result<(), SendError> {
        self.body_of(piece, &[]).await
    }

    /// Sends one piece of the body, given in two parts, with its framing.
    async fn body_of(&mut self, front: &[u8], back: &[u8]) -> Result<(), SendError> {
        let length = front.len() + back.len();
        if length == 0 {
            return Ok(());
        }
        self.sent.body += length as u64;
        self.sent.pieces += 1;
        match self.frame {
            BodyFrame::Plain => self.write_parts(&mut [front, back]).await?,
            BodyFrame::Chunked => {
                let size = ChunkHeader::new(length);
                self.write_parts(&mut [size.as_bytes(), front, back, b"\r\n"]).await?;
            }
        }
        Ok(())
    }

    /// Sends a whole body. A small body is copied into the buffer of the head, because that is cheaper than a second
    /// buffer in the write.
    async fn one_piece(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if piece.len() > COPY_MAX || self.head_sent == self.head.len() {
            return self.body(piece).await;
        }
        self.sent.body += piece.len() as u64;
        self.sent.pieces += 1;
        self.head.extend_from_slice(piece);
        Ok(self.write_head().await?)
    }

    async fn send_gathered(&mut self) -> Result<(), SendError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.send_gathered_with(&[]).await
    }

    /// Sends the gathered pieces, followed by a piece that is too long to be copied.
    async fn send_gathered_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let sent = self.body_of(&gathered, piece).await;
        gathered.clear();
        self.gathered = gathered;
        sent
    }

    /// Sends one piece of a stored body that is still being fetched, or needs framing. Returns the position after it.
    async fn piece(&mut self, object: &Object, at: u64, to: u64) -> Result<u64, SendError> {
        if Instant::now() > self.deadline() {
            return Err(self.late("send_timeout").into());
        }
        let chunk = match object.read(at, to) {
            Read::Mapped(chunk) => chunk,
            Read::Pending => return Ok(at),
            Read::Missing => return Err(SendError::Source),
        };
        self.body(chunk.bytes()).await?;
        Ok(at + chunk.len() as u64)
    }

    /// Sends a part of a complete body without framing: gathered if small, with sendfile if large. Returns the
    /// position after it.
    async fn run(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let first = match object.read(from, to) {
            Read::Mapped(chunk) => chunk,
            Read::Pending => return Ok(from),
            Read::Missing => return Err(SendError::Source),
        };
        if first.len() >= SENDFILE_MIN {
            return self.send_file(&first, from).await;
        }
        if from + first.len() as u64 == to {
            self.one_piece(first.bytes()).await?;
            return Ok(to);
        }
        Box::pin(self.small_chunks(object, first, from, to)).await
    }

    /// Sends small chunks of a stored body in one write.
    async fn small_chunks(
        &mut self,
        object: &Object,
        first: Chunk<'_>,
        from: u64,
        to: u64,
    ) -> Result<u64, SendError> {
        let mut chunks: [Option<Chunk<'_>>; GATHER] = Default::default();
        let mut at = from + first.len() as u64;
        chunks[0] = Some(first);
        for slot in &mut chunks[1..] {
            let next = object.chunk_before(at, to).filter(|chunk| chunk.len() < SENDFILE_MIN);
            let Some(next) = next else { break };
            at += next.len() as u64;
            *slot = Some(next);
        }
        let mut parts: [&[u8]; GATHER] = [&[]; GATHER];
        for (part, chunk) in parts.iter_mut().zip(chunks.iter().flatten()) {
            *part = chunk.bytes();
        }
        self.sent.body += at - from;
        self.sent.pieces += 1;
        self.write_parts(&mut parts).await?;
        Ok(at)
    }

    /// Sends a part of a stored body that others follow: gathered if small, by sendfile if large.
    async fn part(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let is_file = self.frame == BodyFrame::Plain && object.state() == BodyState::Complete;
        let chunk = match object.read(from, to) {
            Read::Mapped(chunk) => chunk,
            Read::Pending => return Ok(from),
            Read::Missing => return Err(SendError::Source),
        };
        if is_file && chunk.len() >= SENDFILE_MIN {
            self.send_gathered().await?;
            return self.send_file(&chunk, from).await;
        }
        self.write(chunk.bytes()).await?;
        Ok(from + chunk.len() as u64)
    }

    async fn send_file(&mut self, chunk: &Chunk<'_>, from: u64) -> Result<u64, SendError> {
        let range = if self.tx.sends_files() { chunk.file_range() } else { None };
        let Some(mut range) = range else {
            self.body(chunk.bytes()).await?;
            return Ok(from + chunk.len() as u64);
        };
        // The head is sent in one packet with the beginning of the body. A separate packet would cost as much as a
        // full one.
        self.write_head_by(TxHalf::try_write_before_more).await?;
        while !range.is_empty() {
            match self.tx.try_send_by(range.len(), |socket| range.send(socket)) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(n) => {
                    self.sent.body += n as u64;
                    self.sent.pieces += 1;
                }
                Err(e) => self.wait_after(e).await?,
            }
        }
        Ok(from + chunk.len() as u64)
    }
}

impl ResponseSink for Sender {
    #[inline]
    fn head(&mut self, head: Head<'_>) -> usize {
        self.head.clear();
        match head {
            Head::Message(head) => {
                self.frame = if head.end == End::Chunked { BodyFrame::Chunked } else { BodyFrame::Plain };
                h1::write_response_head(head.message, head.ws, &mut self.head);
            }
            Head::Status(status) => h1::minimal_response(status, &mut self.head),
            Head::OutOfWorkspace => {
                self.frame = BodyFrame::Plain;
                self.head.extend_from_slice(OUT_OF_WORKSPACE);
            }
        }
        self.sent.head = self.head.len() as u64;
        self.head.len()
    }

    fn abort(&mut self) {}

    fn sent(&self) -> Sent {
        self.sent
    }

    fn limit_hit(&self) -> Option<&'static str> {
        self.limit_hit
    }
}

impl Sink for Sender {
    async fn write(&mut self, piece: &[u8]) -> Result<(), SendError> {
        if piece.len() >= GATHER_MAX {
            return self.send_gathered_with(piece).await;
        }
        self.gathered.extend_from_slice(piece);
        if self.gathered.len() >= GATHER_MAX { self.send_gathered().await } else { Ok(()) }
    }

    async fn write_stored(
        &mut self,
        object: &Object,
        from: u64,
        to: u64,
        behind: Behind,
    ) -> Result<u64, SendError> {
        if behind == Behind::More {
            return Box::pin(self.part(object, from, to)).await;
        }
        if !self.gathered.is_empty() {
            Box::pin(self.send_gathered()).await?;
        }

        if self.frame == BodyFrame::Plain && object.state() == BodyState::Complete {
            self.run(object, from, to.min(object.body_len())).await
        } else {
            self.piece(object, from, to).await
        }
    }

    async fn flush(&mut self) -> Result<(), SendError> {
        self.send_gathered().await?;
        self.write_head().await?;
        if self.tx.held() > 0 {
            Box::pin(self.pass_on()).await?;
        }
        Ok(())
    }

    async fn wait_for(&mut self, object: &Object, at: u64) -> Result<(), SendError> {
        // The limit for the whole response counts from now at the latest.
        self.deadline();
        let more = self.limits.patience.while_connected(&self.tx, object.has_one_reader(), object.more(at));
        Box::pin(more).await.map(drop).ok_or_else(SendError::disconnected)
    }

    /// Fails if the client is gone, or its time for the whole response is over.
    fn check(&mut self) -> Result<(), SendError> {
        if Instant::now() > self.deadline() {
            return Err(self.late("send_timeout").into());
        }
        let is_gone = match self.tx.peer() {
            PeerState::Open => false,
            PeerState::ShutDown => self.is_half_close_over(),
            PeerState::Broken => true,
        };
        if is_gone {
            return Err(SendError::disconnected());
        }
        Ok(())
    }

    async fn end_with(&mut self, piece: &[u8]) -> Result<(), SendError> {
        self.send_gathered_with(piece).await?;
        self.end().await
    }

    async fn end(&mut self) -> Result<(), SendError> {
        self.send_gathered().await?;
        match self.frame {
            BodyFrame::Plain => self.write_head().await?,
            BodyFrame::Chunked => self.write_parts(&mut [LAST_CHUNK]).await?,
        }
        // The response is complete once the transport holds no part of it.
        if self.tx.held() > 0 {
            Box::pin(self.pass_on()).await?;
        }
        Ok(())
    }
}

/// Writes a short message that begins a response. Fails if the client takes none of it for `idle` seconds.
pub async fn write_message(tx: &ClientSocket, message: &[u8], idle: f64) -> io::Result<()> {
    let rest = &message[tx.take_ahead().min(message.len())..];
    match tokio::time::timeout(clock::seconds(clock::limit(idle)), tx.write_all(rest)).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::from_raw_os_error(lacquer_system::EAGAIN)),
    }
}
