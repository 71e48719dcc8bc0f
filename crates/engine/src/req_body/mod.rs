//! The body of a client's request: the source of its bytes, and their framing.
//!
//! The reader of the body owns the receiving half of the connection while it reads: the session between
//! requests, the fetch while it forwards the body.

mod allowance;
mod error;
mod keep;
mod kept;

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use allowance::{Allowance, Missed};
pub use error::BodyError;
pub use keep::Keep;
use lacquer_cache::Object;
use lacquer_http::BodyStatus;
use lacquer_http::h1::{ChunkedDecoder, Framing};
use lacquer_net::Rx;
use lacquer_params::Params;
use lacquer_sources::clock;

use crate::h2::Stream;
use crate::req_filters::BodyFilters;

pub struct ReqBody {
    /// Absent while a fetch has it.
    pub rx: Option<Rx>,
    /// The stream that the body comes by instead, over HTTP/2.
    stream: Option<Rc<Stream>>,
    status: BodyStatus,
    length: u64,
    left: u64,
    decoder: ChunkedDecoder,
    cached: Option<Arc<Object>>,
    counted: u64,
    /// Number of reads in which the `counted` bytes came.
    reads: u64,
    /// The framing that the head announced. It stays the same when `status` changes.
    framing: BodyStatus,
    /// Filters that the body goes through when it is read.
    pub filters: Option<Box<BodyFilters>>,
    /// Reading has begun, and the request's log has to record it.
    begun: bool,
    /// The fault of the body, for the request's log, and the time when reading ended.
    fault: Option<BodyError>,
    ended: f64,
    allowance: Allowance,
    buffer: Vec<u8>,
}

/// The reading of a body, for the log.
pub struct Reading {
    pub fault: Option<BodyError>,
    pub ended: f64,
}

const STEP: usize = 16 * 1024;
const STEP_MAX: usize = 1024 * 1024;

impl ReqBody {
    /// Returns the body of a request that has none, or that was not read yet.
    pub fn none() -> ReqBody {
        ReqBody::new(None, Framing::NONE)
    }

    /// Returns the body that follows a head with this `framing`.
    pub fn new(rx: Option<Rx>, framing: Framing) -> ReqBody {
        ReqBody {
            rx,
            stream: None,
            status: framing.status,
            length: framing.content_length,
            left: framing.content_length,
            decoder: ChunkedDecoder::new(),
            cached: None,
            counted: 0,
            reads: 0,
            framing: framing.status,
            filters: None,
            begun: false,
            fault: None,
            ended: 0.0,
            allowance: Allowance::default(),
            buffer: Vec::new(),
        }
    }

    /// Returns the body that comes by a stream.
    pub fn of_stream(stream: Rc<Stream>, framing: Framing) -> ReqBody {
        ReqBody { stream: Some(stream), ..ReqBody::new(None, framing) }
    }

    /// Returns whether nothing of the body is left on the connection.
    pub fn is_settled(&self) -> bool {
        self.is_done() || !(self.is_available() || self.status == BodyStatus::Error)
    }

    pub fn status(&self) -> BodyStatus {
        self.status
    }

    pub fn set_status(&mut self, status: BodyStatus) {
        self.status = status;
    }

    /// Returns whether there is a body that was not read yet, and can be read only once.
    pub fn is_available(&self) -> bool {
        matches!(self.status, BodyStatus::Length | BodyStatus::Chunked | BodyStatus::Eof)
    }

    /// Returns the length of the body, if it is known.
    pub fn announced(&self) -> Option<u64> {
        (self.status == BodyStatus::Length && !self.is_resized()).then_some(self.length)
    }

    /// Returns whether filters change the length of the body.
    pub fn is_resized(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.resize())
    }

    pub fn framing(&self) -> BodyStatus {
        self.framing
    }

    pub fn cached(&self) -> Option<Arc<Object>> {
        self.cached.clone()
    }

    /// Returns whether bytes came since they were last counted.
    pub fn was_read(&self) -> bool {
        self.reads > 0
    }

    /// Returns the number of reads, and of body bytes received by them, since the last call.
    pub fn take_counted(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.reads), std::mem::take(&mut self.counted))
    }

    /// Returns how the body was read; `None` if it was not read since the last call.
    pub fn take_reading(&mut self) -> Option<Reading> {
        let begun = std::mem::take(&mut self.begun);
        // Filters log their faults themselves.
        let fault = self.fault.take().filter(|fault| !matches!(fault, BodyError::Filter));
        begun.then_some(Reading { fault, ended: self.ended })
    }

    /// Marks the body as being read. Returns the reader.
    #[must_use]
    pub fn take(&mut self) -> ReqBody {
        let reader = ReqBody {
            status: self.status,
            length: self.length,
            left: self.left,
            decoder: std::mem::take(&mut self.decoder),
            cached: self.cached.clone(),
            stream: self.stream.clone(),
            framing: self.framing,
            filters: self.filters.take(),
            allowance: self.allowance,
            buffer: std::mem::take(&mut self.buffer),
            ..ReqBody::new(self.rx.take(), Framing::NONE)
        };
        self.status = BodyStatus::Taken;
        reader
    }

    /// Takes the connection back from a reader that is done.
    pub fn give_back(&mut self, reader: ReqBody) {
        self.counted += reader.counted;
        self.reads += reader.reads;
        self.begun = reader.begun;
        self.ended = reader.ended;
        // A failed body stays failed, because the beginning of the next request is not known.
        let taken = reader.status != BodyStatus::Error && reader.is_done();
        self.fault = reader.fault;
        self.status = if taken { BodyStatus::Taken } else { reader.status };
        self.filters = reader.filters;
        self.rx = reader.rx;
        self.left = reader.left;
        self.allowance = reader.allowance;
        self.decoder = reader.decoder;
        self.buffer = reader.buffer;
    }

    /// Returns whether the whole body was read.
    pub fn is_done(&self) -> bool {
        match self.status {
            BodyStatus::Length | BodyStatus::Eof if self.stream.is_some() => self.stream_is_drained(),
            BodyStatus::Length => self.left == 0,
            BodyStatus::Chunked => self.decoder.is_done(),
            BodyStatus::Error => false,
            _ => true,
        }
    }

    /// Returns the next piece of the body, which is empty at its end.
    pub async fn next(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        if self.filters.is_some() {
            Box::pin(self.next_filtered(params)).await
        } else {
            self.receive(params).await
        }
    }

    /// Returns the next output of the filters.
    async fn next_filtered(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        let Some(mut filters) = self.filters.take() else { return Ok(&[]) };
        let outcome = self.filter_more(&mut filters, params).await;
        let filters = self.filters.insert(filters);
        outcome.map(|()| filters.out())
    }

    /// Reads until the filters have output, or the body ends.
    async fn filter_more(&mut self, filters: &mut BodyFilters, params: &Params) -> Result<(), BodyError> {
        loop {
            if !filters.is_broken() {
                filters.work(&self.buffer).await;
            }
            if filters.is_broken() {
                self.status = BodyStatus::Error;
                return Err(BodyError::Filter);
            }
            if !filters.out().is_empty() || filters.has_ended() {
                return Ok(());
            }
            let (from, to) = self.receive_range(params).await?;
            filters.take(from..to);
        }
    }

    /// Returns the next piece as it comes from the client.
    async fn receive(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        let (from, to) = self.receive_range(params).await?;
        Ok(&self.buffer[from..to])
    }

    /// Returns the range of the next piece in the buffer, which is empty at the end.
    async fn receive_range(&mut self, params: &Params) -> Result<(usize, usize), BodyError> {
        if self.is_done() {
            return Ok((0, 0));
        }
        if self.status == BodyStatus::Error {
            return Err(BodyError::Framing("failed before"));
        }
        self.begun = true;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(self.step(params), 0);
        let outcome = self.fill(&mut buffer, params).await;
        self.buffer = buffer;
        self.ended = clock::real();
        match outcome {
            Ok((from, to)) => {
                self.counted += (to - from) as u64;
                self.reads += 1;
                Ok((from, to))
            }
            Err(e) => {
                self.status = BodyStatus::Error;
                Err(e)
            }
        }
    }

    /// Returns the number of bytes that are read at a time. It is larger for a stream, whose client may send more once
    /// the bytes were read.
    fn step(&self, params: &Params) -> usize {
        if self.stream.is_some() { (params.fetch_chunksize as usize).clamp(STEP, STEP_MAX) } else { STEP }
    }

    /// Returns whether a stream's body has ended. The client marks the end, whatever length was announced.
    fn stream_is_drained(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_drained())
    }

    async fn fill(&mut self, buffer: &mut [u8], params: &Params) -> Result<(usize, usize), BodyError> {
        if let Some(stream) = &self.stream {
            let read = async { stream.read(buffer).await.map_err(|_| io::ErrorKind::ConnectionReset.into()) };
            return match self.allowance.wait(params, read).await {
                Ok(n) => {
                    self.left = self.left.saturating_sub(n as u64);
                    Ok((0, n))
                }
                Err(missed) => {
                    stream.refuse_body();
                    Err(BodyError::missed(missed, "stream gone"))
                }
            };
        }
        loop {
            let want = match self.status {
                BodyStatus::Length => buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)),
                _ => buffer.len(),
            };
            let Some(rx) = self.rx.as_mut() else {
                return Err(BodyError::Framing("connection is in use"));
            };
            let n = match self.allowance.wait(params, rx.read(&mut buffer[..want])).await {
                Ok(n) if n > 0 => n,
                other => {
                    let is_length = self.status == BodyStatus::Length;
                    let text =
                        if is_length { "straight insufficient bytes" } else { self.decoder.eof_text() };
                    return Err(BodyError::missed(other.err().unwrap_or(Missed::Bytes), text));
                }
            };
            if self.status == BodyStatus::Length {
                self.left -= n as u64;
                return Ok((0, n));
            }
            let run = self.decoder.decode_run(&mut buffer[..n]).map_err(|e| BodyError::Framing(e.text()))?;
            rx.unread(&buffer[run.consumed..n]);
            if run.end > run.start || self.decoder.is_done() {
                return Ok((run.start, run.end));
            }
        }
    }

    /// Records a fault for the request's log.
    pub fn fail(&mut self, fault: BodyError) {
        self.fault = Some(fault);
    }

    /// Reads and discards the rest. Returns false on failure.
    pub async fn drain(&mut self, params: &Params) -> bool {
        loop {
            match self.receive(params).await {
                Ok([]) => break,
                Ok(_) => {}
                Err(fault) => {
                    self.fail(fault);
                    return false;
                }
            }
        }
        self.status = BodyStatus::Taken;
        true
    }
}
