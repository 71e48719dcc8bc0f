//! The body of a client's request: the source of its bytes, and its framing.
//!
//! The reader of the body owns the receiving half of the connection while it reads. Between requests, this is the
//! session; while it forwards the body, the fetch.

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
    /// The receiving half of the connection; absent while a fetch has it.
    pub rx: Option<Rx>,
    /// The HTTP/2 stream that the body comes from instead.
    stream: Option<Rc<Stream>>,
    status: BodyStatus,
    frame: Frame,
    tally: Tally,
    cached: Option<Arc<Object>>,
    /// The filters that the body passes through when it is read.
    pub filters: Option<Box<BodyFilters>>,
    allowance: Allowance,
    buffer: Vec<u8>,
}

/// The framing of the body, and the progress of reading it.
#[derive(Default)]
struct Frame {
    /// The framing that the head declared.
    announced: BodyStatus,
    length: u64,
    left: u64,
    decoder: ChunkedDecoder,
}

impl Frame {
    fn of(framing: &Framing) -> Frame {
        let length = framing.content_length;
        Frame { announced: framing.status, length, left: length, decoder: ChunkedDecoder::new() }
    }
}

/// The statistics of reading the body, for the request's log.
#[derive(Default)]
struct Tally {
    /// Reading has begun and was not logged yet.
    has_begun: bool,
    /// The bytes that were received, and the number of reads.
    bytes: u64,
    reads: u64,
    fault: Option<BodyError>,
    /// The time when reading ended.
    ended: f64,
}

/// The result of reading a body, for the log.
pub struct Reading {
    pub fault: Option<BodyError>,
    pub ended: f64,
}

const STEP: usize = 16 * 1024;
const STEP_MAX: usize = 1024 * 1024;

impl ReqBody {
    /// Returns an empty body.
    #[inline]
    pub fn none() -> ReqBody {
        ReqBody::new(None, Framing::NONE)
    }

    /// Returns the body that follows a head with this framing.
    #[inline]
    pub fn new(rx: Option<Rx>, framing: Framing) -> ReqBody {
        ReqBody {
            rx,
            stream: None,
            status: framing.status,
            frame: Frame::of(&framing),
            tally: Tally::default(),
            cached: None,
            filters: None,
            allowance: Allowance::default(),
            buffer: Vec::new(),
        }
    }

    /// Returns the body that comes from an HTTP/2 stream.
    pub fn of_stream(stream: Rc<Stream>, framing: Framing) -> ReqBody {
        ReqBody { stream: Some(stream), ..ReqBody::new(None, framing) }
    }

    /// Returns whether no bytes of the body are left on the connection.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.is_done() || !(self.is_available() || self.status == BodyStatus::Error)
    }

    #[inline]
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

    /// Returns the length of the body as its reader receives it, if that is known.
    pub fn announced(&self) -> Option<u64> {
        (self.status == BodyStatus::Length && !self.is_resized()).then_some(self.frame.length)
    }

    /// Returns whether filters change the length of the body.
    pub fn is_resized(&self) -> bool {
        self.filters.as_ref().is_some_and(|filters| filters.changes_length())
    }

    pub fn framing(&self) -> BodyStatus {
        self.frame.announced
    }

    pub fn cached(&self) -> Option<Arc<Object>> {
        self.cached.clone()
    }

    /// Returns whether bytes were read since the last call of [`ReqBody::take_counted`].
    pub fn was_read(&self) -> bool {
        self.tally.reads > 0
    }

    /// Returns the number of reads and of body bytes since the last call.
    #[inline]
    pub fn take_counted(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.tally.reads), std::mem::take(&mut self.tally.bytes))
    }

    /// Returns the result of reading the body; `None` if it was not read since the last call.
    pub fn take_reading(&mut self) -> Option<Reading> {
        let begun = std::mem::take(&mut self.tally.has_begun);
        // The reports of filters contain their faults.
        let fault = self.tally.fault.take().filter(|fault| !matches!(fault, BodyError::Filter));
        begun.then_some(Reading { fault, ended: self.tally.ended })
    }

    /// Moves the body to a reader, and marks it as taken.
    #[must_use]
    pub fn take(&mut self) -> ReqBody {
        let left_here = Frame { announced: self.frame.announced, ..Frame::default() };
        let reader = ReqBody {
            rx: self.rx.take(),
            stream: self.stream.clone(),
            status: self.status,
            frame: std::mem::replace(&mut self.frame, left_here),
            tally: Tally::default(),
            cached: self.cached.clone(),
            filters: self.filters.take(),
            allowance: self.allowance,
            buffer: std::mem::take(&mut self.buffer),
        };
        self.status = BodyStatus::Taken;
        reader
    }

    /// Takes back the connection from a reader that is done.
    pub fn give_back(&mut self, reader: ReqBody) {
        // A failed body stays failed, because the start of the next request is unknown.
        let taken = reader.status != BodyStatus::Error && reader.is_done();
        self.status = if taken { BodyStatus::Taken } else { reader.status };
        let Tally { bytes, reads, .. } = self.tally;
        self.tally = reader.tally;
        self.tally.bytes += bytes;
        self.tally.reads += reads;
        self.rx = reader.rx;
        self.frame = reader.frame;
        self.filters = reader.filters;
        self.allowance = reader.allowance;
        self.buffer = reader.buffer;
    }

    /// Returns whether the whole body was read.
    pub fn is_done(&self) -> bool {
        match self.status {
            BodyStatus::Length | BodyStatus::Eof if self.stream.is_some() => self.stream_is_drained(),
            BodyStatus::Length => self.frame.left == 0,
            BodyStatus::Chunked => self.frame.decoder.is_done(),
            BodyStatus::Error => false,
            _ => true,
        }
    }

    /// Returns the next piece of the body. The piece is empty at the end of the body.
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

    /// Returns the next unfiltered piece.
    async fn receive(&mut self, params: &Params) -> Result<&[u8], BodyError> {
        let (from, to) = self.receive_range(params).await?;
        Ok(&self.buffer[from..to])
    }

    /// Reads the next piece into the buffer, and returns its range. The range is empty at the end of the body.
    async fn receive_range(&mut self, params: &Params) -> Result<(usize, usize), BodyError> {
        if self.is_done() {
            return Ok((0, 0));
        }
        if self.status == BodyStatus::Error {
            return Err(BodyError::Framing("failed before"));
        }
        self.tally.has_begun = true;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(self.step(params), 0);
        let outcome = self.fill(&mut buffer, params).await;
        self.buffer = buffer;
        self.tally.ended = clock::real();
        match outcome {
            Ok((from, to)) => {
                self.tally.bytes += (to - from) as u64;
                self.tally.reads += 1;
                Ok((from, to))
            }
            Err(e) => {
                self.status = BodyStatus::Error;
                Err(e)
            }
        }
    }

    /// Returns the number of bytes that are read at a time. It is larger for a stream, because reading extends the
    /// client's window.
    fn step(&self, params: &Params) -> usize {
        if self.stream.is_some() { (params.fetch_chunksize as usize).clamp(STEP, STEP_MAX) } else { STEP }
    }

    /// Returns whether the body of a stream was read to its end. The client marks the end, whatever length was
    /// declared.
    fn stream_is_drained(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.is_drained())
    }

    async fn fill(&mut self, buffer: &mut [u8], params: &Params) -> Result<(usize, usize), BodyError> {
        if let Some(stream) = &self.stream {
            let read = async { stream.read(buffer).await.map_err(|_| io::ErrorKind::ConnectionReset.into()) };
            return match self.allowance.wait(params, read).await {
                Ok(n) => {
                    self.frame.left = self.frame.left.saturating_sub(n as u64);
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
                BodyStatus::Length => {
                    buffer.len().min(usize::try_from(self.frame.left).unwrap_or(usize::MAX))
                }
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
                        if is_length { "straight insufficient bytes" } else { self.frame.decoder.eof_text() };
                    return Err(BodyError::missed(other.err().unwrap_or(Missed::Bytes), text));
                }
            };
            if self.status == BodyStatus::Length {
                self.frame.left -= n as u64;
                return Ok((0, n));
            }
            let run =
                self.frame.decoder.decode_run(&mut buffer[..n]).map_err(|e| BodyError::Framing(e.text()))?;
            rx.unread(&buffer[run.consumed..n]);
            if run.end > run.start || self.frame.decoder.is_done() {
                return Ok((run.start, run.end));
            }
        }
    }

    /// Records a fault for the request's log.
    pub fn fail(&mut self, fault: BodyError) {
        self.tally.fault = Some(fault);
    }

    /// Reads and discards the rest of the body. Returns false on failure.
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
