//! The body of a client's request: where its bytes are and how they are framed.
//!
//! Whoever reads the body owns the receiving half of the connection meanwhile: the session between
//! requests, the fetch while it forwards the body.

use std::io;
use std::rc::Rc;

use lacquer_backend::RxHalf;
use lacquer_http::BodyStatus;
use lacquer_http::h1::{ChunkedDecoder, Framing};
use lacquer_params::Params;

use crate::clock;

/// The receiving half with what was read beyond the last message.
pub struct Rx {
    pub half: RxHalf,
    pub pending: Vec<u8>,
}

impl Rx {
    pub fn new(half: RxHalf) -> Rx {
        Rx { half, pending: Vec::new() }
    }

    /// Bytes that are there already, else what the socket has.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.pending.is_empty() {
            return self.half.read(buf).await;
        }
        let n = buf.len().min(self.pending.len());
        buf[..n].copy_from_slice(&self.pending[..n]);
        self.pending.drain(..n);
        Ok(n)
    }

    /// Puts bytes back that belong to the next message.
    pub fn unread(&mut self, bytes: &[u8]) {
        if self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
        } else {
            let tail = std::mem::take(&mut self.pending);
            self.pending = [bytes, &tail].concat();
        }
    }
}

/// Why a body ended early.
#[derive(Debug)]
pub enum BodyError {
    Io(io::Error),
    /// The framing is wrong; the text is for the log.
    Framing(&'static str),
    /// More than the limit given.
    TooBig,
}

impl BodyError {
    pub fn text(&self) -> String {
        match self {
            BodyError::Io(e) => e.to_string(),
            BodyError::Framing(text) => (*text).to_owned(),
            BodyError::TooBig => "Request body too big to cache".to_owned(),
        }
    }
}

pub struct ReqBody {
    /// Absent while a fetch has it.
    pub rx: Option<Rx>,
    status: BodyStatus,
    length: u64,
    left: u64,
    decoder: ChunkedDecoder,
    cached: Option<Rc<Vec<u8>>>,
    counted: u64,
    buffer: Vec<u8>,
}

const STEP: usize = 16 * 1024;

impl ReqBody {
    /// Between requests: no body.
    pub fn idle(rx: Rx) -> ReqBody {
        ReqBody::idle_without(Some(rx))
    }

    /// Without a connection yet; see [`ReqBody::begin`].
    pub fn idle_without(rx: Option<Rx>) -> ReqBody {
        ReqBody {
            rx,
            status: BodyStatus::None,
            length: 0,
            left: 0,
            decoder: ChunkedDecoder::new(),
            cached: None,
            counted: 0,
            buffer: Vec::new(),
        }
    }

    /// Nothing of the body is left on the connection.
    pub fn is_settled(&self) -> bool {
        match self.status {
            BodyStatus::Error => false,
            _ => !self.is_available() || self.is_done(),
        }
    }

    pub fn begin(&mut self, framing: Framing) {
        self.status = framing.status;
        self.length = framing.content_length;
        self.left = framing.content_length;
        self.decoder = ChunkedDecoder::new();
        self.cached = None;
        self.counted = 0;
    }

    pub fn status(&self) -> BodyStatus {
        self.status
    }

    pub fn set_status(&mut self, status: BodyStatus) {
        self.status = status;
    }

    /// Not yet read, and to be read at most once.
    pub fn is_available(&self) -> bool {
        matches!(self.status, BodyStatus::Length | BodyStatus::Chunked | BodyStatus::Eof)
    }

    pub fn has_pending(&self) -> bool {
        self.rx.as_ref().is_some_and(|rx| !rx.pending.is_empty())
    }

    pub fn announced(&self) -> Option<u64> {
        (self.status == BodyStatus::Length).then_some(self.length)
    }

    pub fn cached(&self) -> Option<Rc<Vec<u8>>> {
        self.cached.clone()
    }

    /// Body bytes received since the last call.
    pub fn take_counted(&mut self) -> u64 {
        std::mem::take(&mut self.counted)
    }

    /// Marks the body as being read; the reader gets all that reading needs.
    pub fn take(&mut self) -> ReqBody {
        let placeholder = ReqBody {
            rx: self.rx.take(),
            status: self.status,
            length: self.length,
            left: self.left,
            decoder: std::mem::take(&mut self.decoder),
            cached: self.cached.clone(),
            counted: 0,
            buffer: std::mem::take(&mut self.buffer),
        };
        self.status = BodyStatus::Taken;
        placeholder
    }

    /// The reader is done; the connection comes back.
    pub fn give_back(&mut self, reader: ReqBody) {
        self.counted += reader.counted;
        self.status = if reader.is_done() { BodyStatus::Taken } else { reader.status };
        self.rx = reader.rx;
        self.left = reader.left;
        self.decoder = reader.decoder;
        self.buffer = reader.buffer;
    }

    /// All of it was read.
    pub fn is_done(&self) -> bool {
        match self.status {
            BodyStatus::Length => self.left == 0,
            BodyStatus::Chunked => self.decoder.is_done(),
            _ => true,
        }
    }

    /// The next piece of the body; empty at its end.
    pub async fn next(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        if self.is_done() {
            return Ok(&[]);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(STEP, 0);
        let outcome = self.fill(&mut buffer, params).await;
        self.buffer = buffer;
        match outcome {
            Ok((from, to)) => {
                self.counted += (to - from) as u64;
                Ok(&self.buffer[from..to])
            }
            Err(e) => {
                self.status = BodyStatus::Error;
                Err(e)
            }
        }
    }

    async fn fill(&mut self, buffer: &mut [u8], params: &Params) -> Result<(usize, usize), BodyError> {
        loop {
            let want = match self.status {
                BodyStatus::Length => buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)),
                _ => buffer.len(),
            };
            let Some(rx) = self.rx.as_mut() else {
                return Err(BodyError::Framing("connection is in use"));
            };
            let limit = clock::seconds(params.timeout_idle.max(0.001));
            let n = match tokio::time::timeout(limit, rx.read(&mut buffer[..want])).await {
                Ok(Ok(0)) => return Err(BodyError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(Ok(n)) => n,
                Ok(Err(e)) => return Err(BodyError::Io(e)),
                Err(_) => return Err(BodyError::Io(io::ErrorKind::TimedOut.into())),
            };
            if self.status == BodyStatus::Length {
                self.left -= n as u64;
                return Ok((0, n));
            }
            let piece = self.decoder.decode(&buffer[..n]).map_err(|e| BodyError::Framing(e.text()))?;
            rx.unread(&buffer[piece.consumed..n]);
            if piece.data_len > 0 || self.decoder.is_done() {
                return Ok((piece.consumed - piece.data_len, piece.consumed));
            }
        }
    }

    /// Reads and forgets the rest.
    pub async fn drain(&mut self, params: &Params) -> Result<(), BodyError> {
        while !self.next(params).await?.is_empty() {}
        self.status = BodyStatus::Taken;
        Ok(())
    }

    /// Reads the whole body and keeps it, up to `limit` bytes. The result is its length.
    pub async fn cache(&mut self, limit: u64, params: &Params) -> Result<u64, BodyError> {
        if self.announced().is_some_and(|n| n > limit) {
            self.status = BodyStatus::Error;
            return Err(BodyError::TooBig);
        }
        let mut all = Vec::new();
        loop {
            let piece = self.next(params).await?;
            if piece.is_empty() {
                break;
            }
            all.extend_from_slice(piece);
            if all.len() as u64 > limit {
                self.status = BodyStatus::Error;
                return Err(BodyError::TooBig);
            }
        }
        let length = all.len() as u64;
        self.cached = Some(Rc::new(all));
        self.status = BodyStatus::Cached;
        Ok(length)
    }
}
