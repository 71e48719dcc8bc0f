//! Writes a response to an HTTP/1 client. The head is sent together with the beginning of the body, and large stored
//! bodies are sent with sendfile. A client that does not read is disconnected in time.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use lacquer_cache::{BodyState, Chunk, Object, Read};
use lacquer_deliver::{Behind, Head, ResponseSink, SendError, Sent, Sink};
use lacquer_flow::delivery::End;
use lacquer_http::h1::{self, ChunkHeader, LAST_CHUNK};
use lacquer_net::{ClientSocket, FilePart, PeerState, advance};
use lacquer_sources::clock::{self, Instant};
use lacquer_storage::FileRange;

use crate::send_limits::{self, SendLimits};
use crate::trailers::Trailers;

enum BodyFrame {
    Plain,
    Chunked,
    /// Chunks, with trailers behind the last one.
    Trailed(Rc<Trailers>),
    /// The size of a chunk was sent whose bytes cannot be read. Nothing can follow.
    Torn,
}

impl BodyFrame {
    fn is_plain(&self) -> bool {
        matches!(self, BodyFrame::Plain)
    }
}

/// The bytes around a piece of a stored body that are not sent yet.
struct Around<'a> {
    size: &'a [u8],
    /// Bytes of the body that come before the piece, in the same frame.
    front: &'a [u8],
    end: &'a [u8],
}

impl Around<'_> {
    fn is_sent(&self) -> bool {
        self.size.is_empty() && self.front.is_empty() && self.end.is_empty()
    }
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
/// The number of hits from which on they are: pages that a socket has received must be returned to the system before
/// they are used again, which costs more than a copy if the object is evicted after one hit.
const HITS_BEFORE_SENDFILE: u32 = 2;
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

    /// Makes trailers follow the body, if its head, which was prepared, announces chunks.
    pub fn follow_with(&mut self, trailers: Rc<Trailers>) {
        if matches!(self.frame, BodyFrame::Chunked) {
            self.frame = BodyFrame::Trailed(trailers);
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
        self.limits.disconnect.half_closed().is_some_and(|wait| now >= since + clock::seconds(wait))
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
        let tx = self.tx.clone();
        let done = send_limits::in_time(&tx, progress, || self.longest_wait()).await;
        done.map_err(|limit| self.late(limit))?
    }

    /// Returns the time until which the response may wait from now on, and the parameter that limits it.
    fn longest_wait(&mut self) -> (Instant, &'static str) {
        let by = self.deadline();
        let idle =
            if self.limits.idle > 0.0 { Instant::now() + clock::seconds(self.limits.idle) } else { by };
        (by.min(idle), if by <= idle { "send_timeout" } else { "idle_send_timeout" })
    }

    /// Records that the limit of this parameter has expired, and returns the error.
    fn late(&mut self, limit: &'static str) -> io::Error {
        self.limit_hit = Some(limit);
        io::Error::from_raw_os_error(lacquer_system::EAGAIN)
    }

    /// Writes the rest of the head.
    async fn write_head(&mut self) -> io::Result<()> {
        while self.head_sent < self.head.len() {
            match self.tx.try_write(&self.head[self.head_sent..]) {
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

    /// Sends one piece of the body, given in two parts, with its framing.
    async fn body_of(&mut self, front: &[u8], back: &[u8]) -> Result<(), SendError> {
        let length = front.len() + back.len();
        if length == 0 {
            return Ok(());
        }
        self.sent.body += length as u64;
        self.sent.pieces += 1;
        match &self.frame {
            BodyFrame::Plain => self.write_parts(&mut [front, back]).await?,
            BodyFrame::Chunked | BodyFrame::Trailed(_) => {
                let size = ChunkHeader::new(length);
                self.write_parts(&mut [size.as_bytes(), front, back, b"\r\n"]).await?;
            }
            BodyFrame::Torn => return Err(SendError::Source),
        }
        Ok(())
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

    /// Sends a piece of a stored body, after `front`, in one frame. Returns the position after it. Between two writes
    /// it waits without the chunk, which it then reads again.
    async fn piece(&mut self, front: &[u8], object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        if Instant::now() > self.deadline() {
            return Err(self.late("send_timeout").into());
        }
        let length = match object.read(from, to) {
            Read::Mapped(chunk) => chunk.len(),
            Read::Pending => return Ok(from),
            Read::Missing => return Err(SendError::Source),
        };
        let size = ChunkHeader::new(front.len() + length);
        let mut around = match &self.frame {
            BodyFrame::Plain => Around { size: b"", front, end: b"" },
            BodyFrame::Chunked | BodyFrame::Trailed(_) => {
                Around { size: size.as_bytes(), front, end: b"\r\n" }
            }
            BodyFrame::Torn => return Err(SendError::Source),
        };
        self.sent.pieces += 1;
        let (mut at, end) = (from, from + length as u64);
        while at < end || !around.is_sent() {
            let written = match object.read(at, end) {
                Read::Mapped(chunk) => {
                    self.try_piece(&mut around, chunk.bytes(), at + chunk.len() as u64 == end)
                }
                Read::Missing if at == end => self.try_piece(&mut around, &[], true),
                Read::Pending => {
                    self.wait_for(object, at).await?;
                    continue;
                }
                Read::Missing => {
                    self.frame = BodyFrame::Torn;
                    return Err(SendError::Source);
                }
            };
            match written {
                Ok(n) => at += n,
                Err(e) => self.wait_after(e).await?,
            }
        }
        Ok(at)
    }

    /// Writes the bytes before a piece, bytes of the piece, and after its last byte the end of its frame, as far as the
    /// socket accepts them. Returns the number of bytes of the piece that were sent.
    fn try_piece(&mut self, around: &mut Around<'_>, bytes: &[u8], is_last: bool) -> io::Result<u64> {
        let end = if is_last { around.end } else { b"" };
        let mut parts = [around.size, around.front, bytes, end];
        let n = self.try_parts(&parts)?;
        self.advance(n, &mut parts);
        let [size, front, rest, end] = parts.map(<[u8]>::len);
        let sent = bytes.len() - rest;
        self.sent.body += (around.front.len() - front + sent) as u64;
        around.size = &around.size[around.size.len() - size..];
        around.front = &around.front[around.front.len() - front..];
        if is_last {
            around.end = &around.end[around.end.len() - end..];
        }
        Ok(sent as u64)
    }

    /// Sends bytes of a complete body without framing, as many as the socket accepts. Small ones are sent with the
    /// head, large ones with sendfile. Returns the position after them. If the socket is full, waits without a chunk.
    async fn run(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let written = match object.read(from, to) {
            Read::Mapped(chunk) if chunk.len() >= SENDFILE_MIN && object.hits() >= HITS_BEFORE_SENDFILE => {
                self.try_file(&chunk)
            }
            Read::Mapped(chunk) if from + (chunk.len() as u64) < to => {
                self.try_chunks(object, chunk, from, to)
            }
            Read::Mapped(chunk) => self.try_last(chunk.bytes()),
            Read::Pending => return Ok(from),
            Read::Missing => return Err(SendError::Source),
        };
        match written {
            Ok(n) => return Ok(from + n),
            Err(e) => self.wait_after(e).await?,
        }
        Ok(from)
    }

    /// Writes the last bytes of a body. A small body is copied into the buffer of the head, which is sent at the end of
    /// the response: that is cheaper than a second buffer in the write.
    fn try_last(&mut self, bytes: &[u8]) -> io::Result<u64> {
        if bytes.len() > COPY_MAX || self.head_sent == self.head.len() {
            return self.try_body(&[bytes]);
        }
        self.head.extend_from_slice(bytes);
        self.sent.body += bytes.len() as u64;
        self.sent.pieces += 1;
        Ok(bytes.len() as u64)
    }

    /// Writes the head and parts of a body without framing, as far as the socket accepts them. Returns the number of
    /// bytes of the body that were sent.
    fn try_body(&mut self, parts: &[&[u8]]) -> io::Result<u64> {
        let n = self.try_parts(parts)?;
        let of_head = n.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        self.count((n - of_head) as u64);
        Ok((n - of_head) as u64)
    }

    /// Counts bytes of the body that one write has sent.
    fn count(&mut self, sent: u64) {
        self.sent.body += sent;
        self.sent.pieces += u64::from(sent > 0);
    }

    /// Writes small chunks of a stored body in one write. Returns the number of bytes sent.
    fn try_chunks(&mut self, object: &Object, first: Chunk<'_>, from: u64, to: u64) -> io::Result<u64> {
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
        self.try_body(&parts)
    }

    /// Writes the head and a large chunk without copying it, as far as the socket accepts them. Returns the number of
    /// bytes of the chunk that were sent.
    fn try_file(&mut self, chunk: &Chunk<'_>) -> io::Result<u64> {
        let range = if self.tx.sends_files() { chunk.file_range() } else { None };
        let Some(mut range) = range.map(Range) else { return self.try_body(&[chunk.bytes()]) };
        // The head is sent in one packet with the beginning of the body. A separate packet would cost as much as a
        // full one.
        while self.head_sent < self.head.len() {
            match self.tx.try_write_before_more(&self.head[self.head_sent..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => self.head_sent += n,
            }
        }
        let before = range.len();
        while !range.is_empty() {
            match self.tx.try_send_file(&mut range) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.count(n as u64),
                Err(e) if range.len() == before => return Err(e),
                Err(_) => break,
            }
        }
        Ok((before - range.len()) as u64)
    }

    /// Sends a part of a stored body that others follow: gathered if small, by sendfile if large.
    async fn part(&mut self, object: &Object, from: u64, to: u64) -> Result<u64, SendError> {
        let is_file = self.frame.is_plain() && object.state() == BodyState::Complete;
        let at = match object.read(from, to) {
            Read::Mapped(chunk) if chunk.len() >= GATHER_MAX => None,
            Read::Mapped(chunk) => {
                self.gathered.extend_from_slice(chunk.bytes());
                Some(from + chunk.len() as u64)
            }
            Read::Pending => return Ok(from),
            Read::Missing => return Err(SendError::Source),
        };
        let Some(at) = at else {
            if is_file {
                self.send_gathered().await?;
                return self.run(object, from, to).await;
            }
            let mut gathered = std::mem::take(&mut self.gathered);
            let at = self.piece(&gathered, object, from, to).await;
            gathered.clear();
            self.gathered = gathered;
            return at;
        };
        if self.gathered.len() >= GATHER_MAX {
            self.send_gathered().await?;
        }
        Ok(at)
    }
}

/// A range of the arena's file, for the transport.
struct Range<'r>(FileRange<'r>);

impl FilePart for Range<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.0.send(socket)
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
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
            Head::Interim { message, ws } => {
                h1::write_response_head(message, ws, &mut self.head);
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

        if self.frame.is_plain() && object.state() == BodyState::Complete {
            self.run(object, from, to.min(object.body_len())).await
        } else {
            self.piece(&[], object, from, to).await
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
        let (until, limit) = self.longest_wait();
        let (disconnect, has_one_reader, tx) =
            (self.limits.disconnect, object.has_one_reader(), Rc::clone(&self.tx));
        let is_connected = if object.is_awaited(at) {
            Box::pin(disconnect.while_connected(&tx, has_one_reader, object.fetched(at))).await.is_some()
        } else {
            let more = disconnect.while_connected(&tx, has_one_reader, object.more(at));
            let more = Box::pin(tokio::time::timeout_at(until, more));
            more.await.map_err(|_| self.late(limit))?.is_some()
        };
        if is_connected { Ok(()) } else { Err(SendError::disconnected()) }
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
        match &self.frame {
            BodyFrame::Plain => self.write_head().await?,
            BodyFrame::Chunked => self.write_parts(&mut [LAST_CHUNK]).await?,
            BodyFrame::Trailed(trailers) => {
                let trailers = trailers.clone();
                self.write_parts(&mut [b"0\r\n", trailers.lines(), b"\r\n"]).await?;
            }
            BodyFrame::Torn => return Err(SendError::Source),
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
